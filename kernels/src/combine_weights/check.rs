use super::{combine_weights, reference};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let shapes = [([1, 3], 2), ([5, 7], 7), ([65, 48], 4), ([130, 384], 8)];
    shapes.map(|(shape, k)| check(shape, k)).into()
}

fn check([t, e]: [usize; 2], k: usize) -> Check {
    let shape = format!("[{t}, {e}], k {k}, slots without an expert, views");
    Check::new("combine_weights", shape, 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let logits = draw.leaf([e, t]);
        // Spread over the experts; every fifth slot has none.
        let id = |i: usize| if i % 5 == 4 { -1 } else { (i * (e / 2 + 1) % e) as i32 };
        let selected = draw.integers((0..t * k).map(id).collect(), [k, t]).swap_dims(0, 1);
        let op = match body {
            Body::Kernel => combine_weights,
            Body::Reference => reference,
        };
        let weights = op(logits.clone().swap_dims(0, 1).mul_scalar(4.0), selected, 2.5);
        let grads = draw.backward(&weights);
        Outputs::default().float("weights", weights).gradient("dlogits", &logits, &grads)
    })
}
