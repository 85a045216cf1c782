use burn::tensor::{Int, Tensor};

use super::{CrossEntropy, cross_entropy, reference, token_losses, token_losses_reference};
use crate::check::{Body, Check, Draw, Outputs};

type Op = fn(Tensor<2>, Tensor<2>, Tensor<1, Int>, Tensor<1>, f64) -> CrossEntropy;

pub(crate) fn checks() -> Vec<Check> {
    // The last two have more tokens or columns than a kernel takes at a time.
    let shapes = [[1, 1, 1], [3, 7, 5], [70, 33, 131], [1030, 5, 9], [3, 2, 32_770]];
    shapes.into_iter().flat_map(|shape| [sums(shape), by_token(shape)]).collect()
}

fn sums([t, d, v]: [usize; 3]) -> Check {
    let shape = format!("t {t}, d {d}, v {v}, tokens without weight, one of them NaN, views");
    Check::new("cross_entropy", shape, 2e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let (hidden, head) = (draw.leaf([d, t]), draw.leaf([v, d]));
        let weight = draw.tensor([t]);
        let is_ignored = weight.clone().lower_elem(-0.5);
        let weight = weight.abs().mask_fill(is_ignored.clone(), 0.0);
        let seen =
            hidden.clone().mask_fill(is_ignored.unsqueeze_dim::<2>(0).expand([d, t]), f32::NAN);
        let op: Op = match body {
            Body::Kernel => cross_entropy,
            Body::Reference => reference,
        };
        let (seen, of_head) = (seen.swap_dims(0, 1), head.clone().mul_scalar(3.0).swap_dims(0, 1));
        let losses = op(seen, of_head, targets(&draw, t, v), weight, 1e-2);
        let grads = draw.backward(&losses.total);
        Outputs::default()
            .float("total", losses.total)
            .float("cross_entropy_sum", losses.cross_entropy_sum)
            .float("z_sum", losses.z_sum)
            .gradient("dhidden", &hidden, &grads)
            .gradient("dhead", &head, &grads)
    })
}

fn by_token([t, d, v]: [usize; 3]) -> Check {
    let shape = format!("t {t}, d {d}, v {v}, token by token, views");
    Check::new("cross_entropy", shape, 2e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let (hidden, head) = (draw.tensor([d, t]).swap_dims(0, 1), draw.tensor([v, d]));
        let head = head.mul_scalar(3.0).swap_dims(0, 1);
        let op = match body {
            Body::Kernel => token_losses,
            Body::Reference => token_losses_reference,
        };
        let losses = op(hidden, head, targets(&draw, t, v));
        Outputs::default().float("nll", losses.nll).float("log_sum_exp", losses.log_sum_exp)
    })
}

/// Ids all over the vocabulary, its first and last among them.
fn targets(draw: &Draw, t: usize, v: usize) -> Tensor<1, Int> {
    draw.integers((0..t).map(|i| ((i * 7 + 1) * (v - 1) % v) as i32).collect(), [t])
}
