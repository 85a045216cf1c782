//! Attention of one more position of every row over keys and values that were kept, in plain tensor
//! operations: its products are those of a matrix and a vector, which memory limits and not their
//! kernel. What [`attention`](super::attention()) means is unchanged.

use burn::tensor::{DType, Int, Tensor, TensorData, activation::softmax};

use super::AttentionOptions;
use super::reference::{exclude, place};

/// The bias of a position that must not be read: so far below every score that its weight is 0, and
/// finite, since not every device knows infinities.
pub const UNREADABLE: f32 = -1e30;

/// What a layer kept of c positions of each row, in any order of positions.
#[derive(Debug, Clone)]
pub struct KeptPositions {
    /// Keys by [`kept_keys`], [b, m, c, a].
    pub keys: Tensor<4>,
    /// Values by [`kept_values`], [b, m, c, a].
    pub values: Tensor<4>,
    /// 0 for a position that the row's newest may read, [`UNREADABLE`] for any other, [b, c].
    pub bias: Tensor<2>,
}

/// Keys `k` [b, s, j, a] as they are kept: normed, rotated to `positions` (one for each of s, or for
/// each of b s), in the type of `k`, [b, m, s, a]. m is the number of own heads, or of stored ones
/// where own ones do not serve equally many query heads.
pub fn kept_keys(k: Tensor<4>, positions: &[usize], options: &AttentionOptions) -> Tensor<4> {
    let dtype = k.dtype();
    let k = kept(k, options).cast(DType::F32);
    place(k, positions, options).cast(dtype).swap_dims(1, 2)
}

/// Values `v` [b, s, j, a] as they are kept, [b, m, s, a].
pub fn kept_values(v: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    kept(v, options).swap_dims(1, 2)
}

/// [`attention`](super::attention()) of the newest position of each row, which is at `positions`
/// `[b]`; its own key and value are among the kept ones.
///
/// # Shapes
/// `q` [b, 1, h, a] and `v` [b, 1, j, a], the values of the position itself; result [b, 1, h, a] in the
/// type of `q`.
///
/// # Panics
/// If the shapes disagree or an option is outside its range.
pub fn attention_step(
    q: Tensor<4>,
    v: Tensor<4>,
    positions: &[usize],
    kept: KeptPositions,
    options: &AttentionOptions,
) -> Tensor<4> {
    let ([b, s, h, a], j, dtype) = (q.dims(), v.dims()[2], q.dtype());
    assert_eq!(s, 1, "attention_step: `q` has {s} positions, needed 1");
    options.assert_fit(h, j, a);
    let m = options.kept_heads(j).len();
    let c = kept.keys.dims()[2];
    for (name, found) in [("keys", kept.keys.dims()), ("values", kept.values.dims())] {
        let needed = [b, m, c, a];
        assert_eq!(found, needed, "attention_step: `{name}` is {found:?}, needed {needed:?}");
    }
    let operand = |x: Tensor<4>| x.cast(dtype).cast(DType::F32);
    let [keys, values] = [kept.keys, kept.values].map(|x| x.cast(DType::F32));
    let q = operand(place(q.cast(DType::F32), positions, options)).mul_scalar(options.qk_mult);
    let q = q.reshape([b, m, h / m, a]);
    let scores = q.matmul(keys.transpose()).div_scalar((a as f64).sqrt());
    let weights = softmax(scores + kept.bias.reshape([b, 1, 1, c]), 3);
    let y = operand(weights).matmul(values).reshape([b, 1, h, a]);
    let own: Vec<i32> = (0..h).map(|head| options.own_head(head, h, j) as i32).collect();
    let v = select_heads(v.cast(DType::F32), own);
    exclude(y, v, options.exclusive_eps).cast(dtype)
}

fn kept(x: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    let j = x.dims()[2];
    let heads = options.kept_heads(j);
    if heads.len() == j && options.own_kv_heads == j { x } else { select_heads(x, heads) }
}

/// Heads of `x` [b, s, j, a] by index.
fn select_heads(x: Tensor<4>, heads: Vec<i32>) -> Tensor<4> {
    let heads = TensorData::from(&heads[..]);
    let heads = Tensor::<1, Int>::from_data(heads, &x.device());
    x.select(2, heads)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::attention::attention;

    fn drawn(shape: [usize; 4], salt: usize) -> Tensor<4> {
        let len: usize = shape.iter().product();
        let value = |i: usize| ((i * 7919 + salt * 104_729) % 1999) as f32 / 999.5 - 1.0;
        let values: Vec<f32> = (0..len).map(value).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    fn floats(x: Tensor<4>) -> Vec<f32> {
        x.into_data().iter::<f32>().collect()
    }

    /// The last position of rows of 9, whose document began at the third, against the whole.
    fn agrees(own: usize, window: Option<usize>, rope_base: Option<f64>) {
        let (b, s, h, j, a) = (2, 9, 6, 3, 8);
        let options = AttentionOptions {
            own_kv_heads: own,
            window,
            rope_base,
            qk_mult: 1.3,
            norm_eps: 1e-6,
            exclusive_eps: 1e-6,
        };
        let (q, k, v) = (drawn([b, s, h, a], 1), drawn([b, s, j, a], 2), drawn([b, s, j, a], 3));
        let segments: Vec<i32> = (0..b * s).map(|i| i32::from(i % s >= 2)).collect();
        let segments = Tensor::from_data(TensorData::new(segments, [b, s]), &Device::flex());
        let whole = attention(q.clone(), k.clone(), v.clone(), segments, &options);
        let positions: Vec<usize> = (0..s).collect();
        let seen = |t: usize| t >= 2 && window.is_none_or(|window| t + window >= s);
        let bias: Vec<f32> =
            (0..b * s).map(|i| if seen(i % s) { 0.0 } else { UNREADABLE }).collect();
        let kept = KeptPositions {
            keys: kept_keys(k, &positions, &options),
            values: kept_values(v.clone(), &options),
            bias: Tensor::from_data(TensorData::new(bias, [b, s]), &Device::flex()),
        };
        let last = |x: Tensor<4>| x.narrow(1, s - 1, 1);
        let step = attention_step(last(q), last(v), &[s - 1; 2], kept, &options);
        let pairs = floats(step).into_iter().zip(floats(last(whole)));
        let worst = pairs.map(|(found, needed)| (found - needed).abs()).fold(0.0, f32::max);
        // Sums of nine terms of size 1 in another order.
        assert!(worst < 2e-6, "{own} own heads, window {window:?}: off by {worst}");
    }

    #[test]
    fn one_position_over_kept_ones_is_the_last_of_the_whole() {
        for own in 1..=3 {
            agrees(own, None, None);
            agrees(own, Some(4), Some(1e4));
            agrees(own, Some(20), Some(1e4));
        }
    }
}
