use super::{Activation, gated, reference};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let activations = [Activation::Silu, Activation::Sigmoid, Activation::TwiceSigmoid];
    let shapes = [([1, 1], 1), ([3, 7], 7), ([3, 7], 1), ([130, 33], 33), ([130, 300], 1)];
    let pairs = shapes.into_iter().flat_map(|shape| activations.map(|f| (shape, f)));
    pairs.map(|((shape, gate_dim), activation)| check(shape, gate_dim, activation)).collect()
}

fn check([rows, dim]: [usize; 2], gate_dim: usize, activation: Activation) -> Check {
    let shape = format!("[{rows}, {dim}], gates of {gate_dim}, {activation:?}, views");
    Check::new("gated", shape, 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let (value, gate) = (draw.leaf([dim, rows]), draw.leaf([gate_dim, rows]));
        let op = match body {
            Body::Kernel => gated,
            Body::Reference => reference,
        };
        let gates = gate.clone().swap_dims(0, 1).mul_scalar(9.0);
        let y = op(value.clone().swap_dims(0, 1), gates, activation);
        let grads = draw.backward(&y);
        Outputs::default()
            .float("y", y)
            .gradient("dvalue", &value, &grads)
            .gradient("dgate", &gate, &grads)
    })
}
