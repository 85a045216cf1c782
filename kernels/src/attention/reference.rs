use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData, activation::softmax};

use super::AttentionOptions;

/// The meaning of [`attention`](super::attention()) in plain tensor operations, with the whole
/// [b, h, s, s] matrix of scores.
pub fn reference(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    segment_ids: Tensor<2, Int>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let ([_, _, h, a], j, dtype) = (q.dims(), k.dims()[2], q.dtype());
    let [q, k, v] = [q, k, v].map(|x| x.cast(DType::F32));
    // What a product reads, in the type of the inputs.
    let operand = |x: Tensor<4>| x.cast(dtype).cast(DType::F32);
    let own: Vec<i32> = (0..h).map(|head| options.own_head(head, h, j) as i32).collect();
    let own = Tensor::<1, Int>::from_data(TensorData::new(own, [h]), &segment_ids.device());
    let positions: Vec<usize> = (0..q.dims()[1]).collect();
    let place = |x| operand(place(x, &positions, options));
    let q = place(q).mul_scalar(options.qk_mult).swap_dims(1, 2);
    let k = place(k.select(2, own.clone())).swap_dims(1, 2);
    let v = v.select(2, own);

    let scores = q.matmul(k.transpose()).div_scalar((a as f64).sqrt());
    let forbidden = forbidden(segment_ids, h, options.window);
    let weights = softmax(scores.mask_fill(forbidden, f32::NEG_INFINITY), 3);
    let y = operand(weights).matmul(v.clone().swap_dims(1, 2)).swap_dims(1, 2);

    exclude(y, v, options.exclusive_eps).cast(dtype)
}

/// `y` [b, s, h, a] without its part along `v`.
pub(super) fn exclude(y: Tensor<4>, v: Tensor<4>, eps: f64) -> Tensor<4> {
    let along = (y.clone() * v.clone()).sum_dim(3);
    let square = (v.clone() * v.clone()).sum_dim(3).add_scalar(eps);
    y - along / square * v
}

/// `x` [b, s, h, a] divided by the root mean square of each head, then rotated by its position, of
/// which there is one for each of s or of b s.
pub(super) fn place(x: Tensor<4>, positions: &[usize], options: &AttentionOptions) -> Tensor<4> {
    let mean_square = (x.clone() * x.clone()).mean_dim(3);
    let x = x / mean_square.add_scalar(options.norm_eps).sqrt();
    if options.rope_base.is_none() {
        return x;
    }
    let [b, s, h, a] = x.dims();
    let pairs = a / 4;
    let (cos, sin) = rotary(positions, [s, a], options, &x.device());
    let halves = x.split(a / 2, 3);
    let turned = halves[0].clone().reshape([b, s, h, pairs, 2]);
    let (even, odd) = (turned.clone().narrow(4, 0, 1), turned.narrow(4, 1, 1));
    let new_even = even.clone() * cos.clone() - odd.clone() * sin.clone();
    let new_odd = even * sin + odd * cos;
    let turned = Tensor::cat(vec![new_even, new_odd], 4).reshape([b, s, h, a / 2]);
    Tensor::cat(vec![turned, halves[1].clone()], 3)
}

/// Cosine and sine, each [1 or b, s, 1, pairs, 1].
fn rotary(
    positions: &[usize],
    [s, a]: [usize; 2],
    options: &AttentionOptions,
    device: &Device,
) -> (Tensor<5>, Tensor<5>) {
    let table = options.rotary_table(positions.iter().copied(), a);
    let shape = [positions.len() / s, s, 1, a / 4, 1];
    let part = |which: usize| {
        let values: Vec<f32> = table.iter().map(|turn| turn[which]).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    };
    (part(0), part(1))
}

/// True where a query (axis 2) may not read a key (axis 3), [b, h, s, s].
fn forbidden(segment_ids: Tensor<2, Int>, h: usize, window: Option<usize>) -> Tensor<4, Bool> {
    let [b, s] = segment_ids.dims();
    let positions = Tensor::<1, Int>::arange(0..s as i64, &segment_ids.device());
    let query = positions.clone().reshape([s, 1]).expand([s, s]);
    let key = positions.reshape([1, s]).expand([s, s]);
    let mut outside = key.clone().greater(query.clone());
    if let Some(window) = window {
        outside = outside.bool_or(key.add_scalar(window as i64).lower_equal(query));
    }
    let query_segment = segment_ids.clone().reshape([b, s, 1]).expand([b, s, s]);
    let key_segment = segment_ids.reshape([b, 1, s]).expand([b, s, s]);
    let foreign = query_segment.not_equal(key_segment);
    let forbidden = foreign.bool_or(outside.unsqueeze::<3>().expand([b, s, s]));
    forbidden.unsqueeze_dim::<4>(1).expand([b, h, s, s])
}
