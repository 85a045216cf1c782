//! Operations that are bound by memory: the bytes they must read and write against a copy's.

use burn::tensor::Tensor;
use fulmar_kernels::gated::{Activation, gated as gated_op, reference as gated_reference};
use fulmar_kernels::pack::{Header, pack_rows, reference as pack_reference};
use fulmar_kernels::permute::{
    RowMap, combine_reference, combine_rows, dispatch_reference, dispatch_rows,
};
use fulmar_kernels::{adam as adam_op, combine_weights as weights_op, rms_norm as rms_norm_op};
use fulmar_kernels::{short_conv as short_conv_op, silu as silu_op, top_k as top_k_op};

use super::inputs::{forward_backward, ints, leaf, tensor, values};
use super::settings::Settings;
use super::table::{Row, Work};

/// Tokens and width of a row of the ladder's first rung.
fn tokens(settings: &Settings) -> (usize, usize) {
    settings.pick((4_096, 768), (130, 40))
}

/// Tokens, experts and experts of a token.
fn routing(settings: &Settings) -> (usize, usize, usize) {
    settings.pick((8_192, 384, 8), (130, 12, 3))
}

/// A row whose work is to move `values` f32 or integers.
fn row(
    settings: &Settings,
    op: &'static str,
    shape: String,
    values: usize,
    [run, reference]: [&dyn Fn(); 2],
) -> Row {
    let secs = settings.best(run);
    let reference = settings.best(reference);
    Row::new(op, shape, secs, Work::values(values)).reference(reference, secs, "")
}

pub(crate) fn adam(settings: &Settings) -> Vec<Row> {
    let len = settings.pick(1 << 24, 1_000);
    let options = adam_op::AdamOptions {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        step: 3,
        weight_decay: 0.1,
    };
    // Squares are not negative.
    let new = || tensor([len]).powi_scalar(2);
    let grad = new();
    let mut state = Some([new(), new(), new()]);
    let secs = settings.best(|| {
        let [w, m, v] = state.take().expect("the last result");
        let (w, m, v) = adam_op::adam_step(w, grad.clone(), m, v, &options);
        state = Some([w, m, v]);
    });
    let mut state = Some([new(), new(), new()]);
    let reference = settings.best(|| {
        let [w, m, v] = state.take().expect("the last result");
        let (w, m, v) = adam_op::reference(w, grad.clone(), m, v, &options);
        state = Some([w, m, v]);
    });
    let adam = Row::new("adam", format!("{len} weights"), secs, Work::values(7 * len));
    let options = adam_op::AdamOptions { weight_decay: 0.0, ..options };
    let mut state = Some([new(), new(), new()]);
    let hyperball_secs = settings.best(|| {
        let [w, m, v] = state.take().expect("the last result");
        let (w, m, v) = adam_op::adamh_step(w, grad.clone(), m, v, &options);
        state = Some([w, m, v]);
    });
    let mut state = Some([new(), new(), new()]);
    let hyperball_reference = settings.best(|| {
        let [w, m, v] = state.take().expect("the last result");
        let (w, m, v) = adam_op::adamh_reference(w, grad.clone(), m, v, &options);
        state = Some([w, m, v]);
    });
    let shape = format!("{len} weights on the hyperball");
    let hyperball = Row::new("adam", shape, hyperball_secs, Work::values(7 * len));
    vec![
        adam.reference(reference, secs, ""),
        hyperball.reference(hyperball_reference, hyperball_secs, ""),
    ]
}

/// Forward reads x and writes y; backward reads x and dy and writes dx.
pub(crate) fn rms_norm(settings: &Settings) -> Vec<Row> {
    let (t, d) = tokens(settings);
    let (x, gain) = (leaf([t, d]), leaf([d]));
    let run = || drop(forward_backward(rms_norm_op::rms_norm(x.clone(), gain.clone(), 1e-6)));
    let reference =
        || drop(forward_backward(rms_norm_op::reference(x.clone(), gain.clone(), 1e-6)));
    vec![row(settings, "rms_norm", format!("T {t} d {d}"), 5 * t * d, [&run, &reference])]
}

/// Forward reads value and gate and writes one; backward reads three and writes two.
pub(crate) fn gated(settings: &Settings) -> Vec<Row> {
    let (t, d) = tokens(settings);
    let (value, gate) = (leaf([t, d]), leaf([t, d]));
    let of = |activation| {
        let run = || drop(forward_backward(gated_op(value.clone(), gate.clone(), activation)));
        let reference =
            || drop(forward_backward(gated_reference(value.clone(), gate.clone(), activation)));
        let shape = format!("{activation:?} T {t} d {d}");
        row(settings, "gated", shape, 8 * t * d, [&run, &reference])
    };
    vec![of(Activation::Silu), of(Activation::Sigmoid)]
}

pub(crate) fn silu(settings: &Settings) -> Vec<Row> {
    let (t, d) = tokens(settings);
    let x = leaf([t, d]);
    let run = || drop(forward_backward(silu_op::silu(x.clone())));
    let reference = || drop(forward_backward(silu_op::reference(x.clone())));
    vec![row(settings, "silu", format!("T {t} d {d}"), 5 * t * d, [&run, &reference])]
}

pub(crate) fn short_conv(settings: &Settings) -> Vec<Row> {
    let ((t, d), taps) = (tokens(settings), 4);
    let (x, weight) = (leaf([1, t, d]), leaf([taps, d]));
    let segments = ints(vec![0; t], [1, t]);
    let run = || {
        let (x, weight) = (x.clone(), weight.clone());
        drop(forward_backward(short_conv_op::short_conv(x, weight, segments.clone())));
    };
    let reference = || {
        let (x, weight) = (x.clone(), weight.clone());
        drop(forward_backward(short_conv_op::reference(x, weight, segments.clone())));
    };
    let shape = format!("T {t} d {d} taps {taps}");
    vec![row(settings, "short_conv", shape, 5 * t * d, [&run, &reference])]
}

pub(crate) fn top_k(settings: &Settings) -> Vec<Row> {
    let (t, e, k) = routing(settings);
    let scores = tensor([t, e]);
    let run = || drop(top_k_op::top_k(scores.clone(), k));
    let reference = || drop(top_k_op::reference(scores.clone(), k));
    let shape = format!("T {t} E {e} k {k}");
    vec![row(settings, "top_k", shape, t * e + t * k + t, [&run, &reference])]
}

/// Few of the logits are read; the gradient of all is written.
pub(crate) fn combine_weights(settings: &Settings) -> Vec<Row> {
    let (t, e, k) = routing(settings);
    let logits = leaf([t, e]);
    let selected = top_k_op::top_k(logits.clone().inner(), k).selected;
    let run = || {
        let out = weights_op::combine_weights(logits.clone(), selected.clone(), 2.5);
        drop(forward_backward(out));
    };
    let reference = || {
        let out = weights_op::reference(logits.clone(), selected.clone(), 2.5);
        drop(forward_backward(out));
    };
    let shape = format!("T {t} E {e} k {k}");
    vec![row(settings, "combine_weights", shape, 6 * t * k + t * e, [&run, &reference])]
}

/// Every assignment has a row, by expert.
fn row_map(t: usize, k: usize) -> RowMap {
    let rows = t * k;
    // An odd factor is a permutation of a power of two; else the rows are in order.
    let spread = |i: usize| if rows.is_power_of_two() { i * 2_654_435_761 % rows } else { i };
    let row_of = (0..rows).map(|i| spread(i) as i32).collect();
    RowMap::from_rows(row_of, k, rows, &burn::tensor::Device::flex())
}

/// A token's row is read once at best and written k times, forward; backward the other way round.
pub(crate) fn permute(settings: &Settings) -> Vec<Row> {
    let ((t, _, k), c) = (routing(settings), settings.pick(384, 24));
    let (map, x, y) = (row_map(t, k), leaf([t, c]), leaf([t * k, c]));
    let weights: Tensor<2> = leaf([t, k]);
    let shape = format!("T {t} k {k} c {c}");
    let run = || drop(forward_backward(dispatch_rows(x.clone(), &map)));
    let reference = || drop(forward_backward(dispatch_reference(x.clone(), &map)));
    let out = format!("dispatch {shape}");
    let dispatch = row(settings, "permute", out, 2 * (t + t * k) * c, [&run, &reference]);
    let run = || drop(forward_backward(combine_rows(y.clone(), weights.clone(), &map)));
    let reference =
        || drop(forward_backward(combine_reference(vec![y.clone()], weights.clone(), &map)));
    let back = format!("combine {shape}");
    // Backward reads both the rows and the gradient of the sums.
    let values = (t + t * k) * c + (t + 2 * t * k) * c;
    vec![dispatch, row(settings, "permute", back, values, [&run, &reference])]
}

pub(crate) fn pack(settings: &Settings) -> Vec<Row> {
    let ((t, _, k), c) = (routing(settings), settings.pick(384, 24));
    let x = leaf([t, c]);
    // Two parts whose first row is the header: as many rows more, which hold no assignment.
    let (parts, rows) = (2, t * k);
    let part = rows / parts + 1;
    let row_of = (0..rows).map(|i| (i % parts * part + 1 + i / parts) as i32).collect();
    let map = RowMap::from_rows(row_of, k, parts * part, &burn::tensor::Device::flex());
    let header = Header { parts, rows: 1, values: values(parts * c).into() };
    let run = || drop(forward_backward(pack_rows(x.clone(), &map, &header)));
    let reference = || drop(forward_backward(pack_reference(x.clone(), &map, &header)));
    let shape = format!("T {t} k {k} c {c}");
    vec![row(settings, "pack", shape, 2 * (t + t * k) * c, [&run, &reference])]
}
