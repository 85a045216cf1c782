use super::{Precision, newton_schulz, reference};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let shapes = [[1, 1, 1], [3, 1, 9], [2, 7, 5], [5, 48, 48], [1, 97, 65], [2, 70, 130]];
    shapes.map(check).into()
}

fn check([n, p, q]: [usize; 3]) -> Check {
    let shape = format!("[{n}, {p}, {q}], the last of several matrices zero, a view");
    // Five steps magnify what rounding leaves.
    Check::new("newton_schulz", shape, 1e-4, move |device, body| {
        let u = Draw::new(device).tensor([n, q, p]);
        let u = if n > 1 { u.slice_fill([n - 1..n, 0..q, 0..p], 0.0) } else { u };
        let op = match body {
            Body::Kernel => newton_schulz,
            Body::Reference => reference,
        };
        Outputs::default().float("x", op(u.swap_dims(1, 2), Precision::F32))
    })
}
