use burn::tensor::Tensor;

use super::{reference, route};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let shapes = [([2, 3], 2), ([5, 7], 6), ([65, 48], 4), ([33, 384], 8)];
    shapes.map(|(shape, k)| check(shape, k)).into()
}

fn check([t, e]: [usize; 2], k: usize) -> Check {
    let shape = format!("[{t}, {e}], k {k}, ties, a row that is not finite, a view");
    Check::new("route", shape, 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        // Few distinct values tie, and a bias of the same steps moves the ties.
        let steps = draw.tensor([e, t]).mul_scalar(4.0).round();
        let leaf = Tensor::from_inner(steps).require_grad();
        let bias = draw.tensor([e]).mul_scalar(2.0).round();
        let op = match body {
            Body::Kernel => route,
            Body::Reference => reference,
        };
        let logits = leaf.clone().swap_dims(0, 1).slice_fill([t - 1..t, 0..1], f32::NAN);
        let found = op(logits, bias, k, 2.5);
        let grads = draw.backward(&found.combine_weights);
        Outputs::default()
            .integers("selected", found.selected)
            .float("combine_weights", found.combine_weights)
            .float("alpha", found.alpha)
            .gradient("dlogits", &leaf, &grads)
    })
}
