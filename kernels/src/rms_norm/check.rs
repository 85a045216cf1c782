use super::{reference, rms_norm};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    // The last has more rows than a device takes cubes in one direction, and a sum over all of them.
    let shapes =
        [([1, 5], 1e-5), ([3, 7], 1e-5), ([65, 96], 1e-5), ([200, 33], 1e-5), ([66_000, 3], 1e-4)];
    let check = |(shape, tolerance): ([usize; 2], f64)| {
        Check::new("rms_norm", format!("{shape:?}"), tolerance, move |device, body| {
            let mut draw = Draw::new(device);
            let (x, gain) = (draw.leaf(shape), draw.leaf([shape[1]]));
            let op = match body {
                Body::Kernel => rms_norm,
                Body::Reference => reference,
            };
            let y = op(x.clone(), gain.clone(), 1e-5);
            let grads = draw.backward(&y);
            Outputs::default()
                .float("y", y)
                .gradient("dx", &x, &grads)
                .gradient("dgain", &gain, &grads)
        })
    };
    shapes.map(check).into()
}
