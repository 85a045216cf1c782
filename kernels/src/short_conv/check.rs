use super::{reference, short_conv};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let shapes =
        [([1, 1, 1], 1), ([2, 5, 7], 3), ([1, 130, 33], 4), ([3, 70, 96], 4), ([2, 2, 3], 5)];
    shapes.map(|(shape, taps)| check(shape, taps)).into()
}

fn check([b, s, d]: [usize; 3], taps: usize) -> Check {
    let shape = format!("[{b}, {s}, {d}], {taps} taps, documents, views");
    Check::new("short_conv", shape, 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let (x, weight) = (draw.leaf([b, d, s]), draw.leaf([d, taps]));
        // Documents of 1 to 7 positions; a row may go on with the one before.
        let segment = |position: usize| (position / 7 + (position % 11) / 4) as i32;
        let ids = (0..s * b).map(|i| segment(i % b * s + i / b)).collect();
        let ids = draw.integers(ids, [s, b]).swap_dims(0, 1);
        let op = match body {
            Body::Kernel => short_conv,
            Body::Reference => reference,
        };
        let y = op(x.clone().swap_dims(1, 2), weight.clone().swap_dims(0, 1), ids);
        let grads = draw.backward(&y);
        Outputs::default()
            .float("y", y)
            .gradient("dx", &x, &grads)
            .gradient("dweight", &weight, &grads)
    })
}
