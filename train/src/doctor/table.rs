//! The diagnosis for people, line by line as it comes.

use std::fmt::{self, Display};

use super::{Diagnosis, Examined, Findings, Outcome, Worst};

impl Diagnosis {
    /// What stands above the operations.
    pub fn heading(&self) -> impl Display + use<> {
        let columns = format!(
            "{:<18}{:>7}{:>12}{:>11}{:>12}{:>14}  verdict",
            "operation", "shapes", "deviation", "allowed", "kernel ms", "reference ms"
        );
        format!("device   {}\nkernels  {}\n\n{columns}", self.device, self.kernels)
    }

    /// What stands below them.
    pub fn verdict(&self) -> impl Display + use<> {
        let (all, sick) = (self.operations.len(), self.unhealthy());
        if sick.is_empty() {
            format!("\nall {all} operations compute what they mean on this device")
        } else {
            format!("\n{} of {all} operations fail on this device: {}", sick.len(), sick.join(", "))
        }
    }
}

impl Display for Examined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<18}", self.op)?;
        let findings = match &self.outcome {
            Outcome::Ran(findings) => findings,
            Outcome::Died { cause } => return write!(f, "{:>56}  FAILED\n    {cause}", ""),
        };
        let Findings { shapes, worst, failures, kernel_ms, reference_ms } = findings;
        write!(
            f,
            "{shapes:>7}{:>12}{:>11}{kernel_ms:>12.2}{reference_ms:>14.2}  {}",
            relative(worst),
            exponent(worst.allowed),
            if failures.is_empty() { "ok" } else { "FAILED" }
        )?;
        for failure in failures {
            let Worst { shape, output, allowed, .. } = failure;
            let (found, allowed) = (relative(failure), exponent(*allowed));
            write!(f, "\n    {shape}: `{output}` deviates by {found}, allowed {allowed}")?;
        }
        Ok(())
    }
}

fn relative(worst: &Worst) -> String {
    worst.relative.map_or_else(|| "unbounded".to_owned(), exponent)
}

fn exponent(value: f64) -> String {
    if value == 0.0 { "exact".to_owned() } else { format!("{value:.1e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_shape_by_shape() {
        let worst = Worst {
            shape: "[3, 7]".to_owned(),
            output: "dx".to_owned(),
            relative: Some(0.25),
            allowed: 1e-5,
        };
        let failures = vec![worst.clone()];
        let findings = Findings { shapes: 4, worst, failures, kernel_ms: 0.5, reference_ms: 2.0 };
        let of_op = Examined { op: "silu".to_owned(), outcome: Outcome::Ran(findings) };
        let text = of_op.to_string();
        assert!(
            text.ends_with("FAILED\n    [3, 7]: `dx` deviates by 2.5e-1, allowed 1.0e-5"),
            "{text}"
        );
        let (device, kernels) = (String::new(), String::new());
        let diagnosis = Diagnosis { device, kernels, operations: vec![of_op] };
        assert_eq!(
            diagnosis.verdict().to_string(),
            "\n1 of 1 operations fail on this device: silu"
        );
    }
}
