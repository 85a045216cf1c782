use std::time::Instant;

use burn::tensor::Device;
use fulmar_kernels::check::{self, Body, Check, Deviation};

use super::{Findings, Worst};

/// Timed repetitions of which the fastest counts; the comparison before them compiled the kernels.
const REPEATS: usize = 3;

/// The operations that can be examined, each once.
pub fn operations() -> Vec<&'static str> {
    let mut ops: Vec<_> = check::all().iter().map(|check| check.op).collect();
    ops.dedup();
    ops
}

/// What is found of `op` on `device`; none if there is no such operation.
pub fn examine(op: &str, device: &Device) -> Option<Findings> {
    let checks: Vec<_> = check::all().into_iter().filter(|check| check.op == op).collect();
    let found: Vec<Worst> = checks.iter().filter_map(|check| worst(check, device)).collect();
    let furthest = found.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?.clone();
    let failures = found.into_iter().filter(|of_shape| share(of_shape) > 1.0).collect();
    let millis = |body| checks.iter().map(|check| millis(check, device, body)).sum();
    Some(Findings {
        shapes: checks.len(),
        worst: furthest,
        failures,
        kernel_ms: millis(Body::Kernel),
        reference_ms: millis(Body::Reference),
    })
}

fn worst(check: &Check, device: &Device) -> Option<Worst> {
    let deviations = check.compare(device).into_iter();
    let worst = deviations.max_by(|a, b| a.relative.total_cmp(&b.relative))?;
    let Deviation { name, relative } = worst;
    Some(Worst {
        shape: check.shape.clone(),
        output: name.to_owned(),
        relative: relative.is_finite().then_some(relative),
        allowed: check.tolerance,
    })
}

/// The deviation as a share of what is allowed.
fn share(worst: &Worst) -> f64 {
    match worst.relative {
        None => f64::INFINITY,
        Some(0.0) => 0.0,
        Some(relative) => relative / worst.allowed,
    }
}

fn millis(check: &Check, device: &Device, body: Body) -> f64 {
    let timed = || {
        let started = Instant::now();
        check.outputs(device, body);
        started.elapsed().as_secs_f64() * 1e3
    };
    (0..=REPEATS).map(|_| timed()).skip(1).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_healthy_on_the_cpu() {
        for op in operations() {
            let findings = examine(op, &Device::flex()).expect("a known operation");
            assert!(findings.failures.is_empty(), "{op}: {findings:?}");
            assert!(findings.shapes > 0 && findings.kernel_ms > 0.0, "{op}: {findings:?}");
        }
        assert_eq!(examine("no_such_op", &Device::flex()), None);
    }

    #[test]
    fn a_deviation_without_bound_is_beyond_every_allowance() {
        let worst = |relative, allowed| {
            share(&Worst { shape: String::new(), output: String::new(), relative, allowed })
        };
        assert_eq!(worst(None, 1.0), f64::INFINITY);
        assert_eq!(worst(Some(0.0), 0.0), 0.0);
        assert!(worst(Some(1e-9), 0.0) > 1.0);
        assert_eq!(worst(Some(1.0), 2.0), 0.5);
    }
}
