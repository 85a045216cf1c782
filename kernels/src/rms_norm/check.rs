use super::{reference, rms_norm};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let shapes = [[1, 5], [3, 7], [65, 96], [200, 33], [0, 4]];
    let check = |shape: [usize; 2]| {
        Check::new("rms_norm", format!("{shape:?}"), 1e-5, move |device, body| {
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
