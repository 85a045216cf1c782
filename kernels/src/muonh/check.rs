use super::{MuonHNorm, MuonHOptions, muonh_step, reference};
use crate::check::{Body, Check, Draw, Outputs};
use crate::newton_schulz::Precision;

pub(crate) fn checks() -> Vec<Check> {
    let shapes = [[1, 1, 1], [2, 5, 3], [3, 16, 33], [2, 70, 64]];
    let norms = [MuonHNorm::PerMatrix, MuonHNorm::Joint];
    shapes.into_iter().flat_map(|shape| norms.map(|norm| check(shape, norm))).collect()
}

/// The first matrix of a stack is zero.
fn check([n, p, q]: [usize; 3], norm: MuonHNorm) -> Check {
    let shape = format!("[{n}, {p}, {q}], {norm:?}, a zero matrix, views");
    // Newton-Schulz steps magnify what rounding leaves.
    Check::new("muonh", shape, 1e-4, move |device, body| {
        let mut draw = Draw::new(device);
        let options = MuonHOptions { lr: 0.02, momentum: 0.95, precision: Precision::F32, norm };
        let [w, grad, momentum] = [(); 3].map(|()| draw.tensor([n, q, p]).swap_dims(1, 2));
        let w = if n > 1 { w.slice_fill([0..1, 0..p, 0..q], 0.0) } else { w };
        let op = match body {
            Body::Kernel => muonh_step,
            Body::Reference => reference,
        };
        let (w, momentum) = op(w, grad, momentum, &options);
        Outputs::default().float("w", w).float("momentum", momentum)
    })
}
