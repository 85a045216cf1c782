use super::{reference, silu};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let shapes = [[1, 1], [3, 7], [65, 96], [200, 33]];
    shapes.into_iter().flat_map(|shape| [true, false].map(|among| check(shape, among))).collect()
}

/// A view that lies among other rows, or one whose rows are columns in memory.
fn check([rows, dim]: [usize; 2], is_among_others: bool) -> Check {
    let view = if is_among_others { "among other rows" } else { "transposed" };
    Check::new("silu", format!("[{rows}, {dim}], {view}"), 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let x = draw.leaf(if is_among_others { [rows + 128, dim] } else { [dim, rows] });
        let view = if is_among_others {
            x.clone().mul_scalar(9.0).narrow(0, 64, rows)
        } else {
            x.clone().mul_scalar(9.0).swap_dims(0, 1)
        };
        let op = match body {
            Body::Kernel => silu,
            Body::Reference => reference,
        };
        let y = op(view);
        let grads = draw.backward(&y);
        Outputs::default().float("y", y).gradient("dx", &x, &grads)
    })
}
