use super::{reference, silu};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let check = |[rows, dim]: [usize; 2]| {
        let shape = format!("[{rows}, {dim}], a view");
        Check::new("silu", shape, 1e-5, move |device, body| {
            let mut draw = Draw::new(device);
            let x = draw.leaf([dim, rows]);
            let op = match body {
                Body::Kernel => silu,
                Body::Reference => reference,
            };
            let y = op(x.clone().swap_dims(0, 1).mul_scalar(9.0));
            let grads = draw.backward(&y);
            Outputs::default().float("y", y).gradient("dx", &x, &grads)
        })
    };
    [[1, 1], [3, 7], [65, 96], [200, 33]].map(check).into()
}
