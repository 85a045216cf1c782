use super::{AdamOptions, adam_step, adamh_reference, adamh_step, reference};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let of = |len| {
        [false, true].into_iter().flat_map(move |is_shared| {
            [("step", 0.1), ("hyperball step", 0.0)]
                .map(|(which, decay)| check(which, len, decay, is_shared))
        })
    };
    [1, 7, 4099, 9000].into_iter().flat_map(of).collect()
}

/// The third step of a run. Where tensors are shared, their values must stay.
fn check(which: &'static str, len: usize, weight_decay: f64, is_shared: bool) -> Check {
    let shape = format!("{which}, {len} values{}", if is_shared { ", shared views" } else { "" });
    Check::new("adam", shape, 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let (beta1, beta2, eps) = (0.9, 0.95, 1e-8);
        let options = AdamOptions { lr: 0.02, beta1, beta2, eps, step: 3, weight_decay };
        let tensors = [(); 4].map(|()| {
            let values = draw.tensor([len + 64]);
            if is_shared { values.narrow(0, 64, len) } else { values.narrow(0, 0, len) + 0.0 }
        });
        let [w, grad, m, v] = tensors;
        let v = v.abs();
        let kept = is_shared.then(|| [w.clone(), grad.clone(), m.clone(), v.clone()]);
        let op = match (body, which) {
            (Body::Kernel, "step") => adam_step,
            (Body::Kernel, _) => adamh_step,
            (Body::Reference, "step") => reference,
            (Body::Reference, _) => adamh_reference,
        };
        let (w, m, v) = op(w, grad, m, v, &options);
        let outputs = Outputs::default().float("w", w).float("m", m).float("v", v);
        let kept = kept.into_iter().flatten();
        kept.fold(outputs, |outputs, tensor| outputs.float("kept", tensor))
    })
}
