//! Arguments without values, at some of which the references panic: the device answers as the
//! kernels of the CPU do.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_kernels::adam::{AdamOptions, adam_step, adamh_step};
use fulmar_kernels::attention::{AttentionOptions, attention};
use fulmar_kernels::combine_weights::combine_weights;
use fulmar_kernels::cross_entropy::{cross_entropy, token_losses};
use fulmar_kernels::gated::{Activation, gated};
use fulmar_kernels::grouped_swiglu::{Groups, grouped_swiglu};
use fulmar_kernels::margins::{MarginBins, Margins};
use fulmar_kernels::muonh::{MuonHNorm, MuonHOptions, muonh_step};
use fulmar_kernels::newton_schulz::{Precision, newton_schulz};
use fulmar_kernels::pack::{Header, pack_rows};
use fulmar_kernels::permute::{RowMap, combine_parts, dispatch_rows};
use fulmar_kernels::rms_norm::rms_norm;
use fulmar_kernels::route::route;
use fulmar_kernels::routing_statistics::routing_statistics;
use fulmar_kernels::sequence_balance::sequence_balance;
use fulmar_kernels::short_conv::short_conv;
use fulmar_kernels::silu::silu;
use fulmar_kernels::top_k::top_k;

use super::{device, leaf, tensor, values};

/// Shapes and values of results.
type Found = Vec<(Vec<usize>, Vec<f32>)>;

fn assert_agree(run: impl Fn(&Device) -> Found) {
    assert_eq!(run(&device()), run(&Device::flex()));
}

fn found<const D: usize>(tensor: Tensor<D>) -> (Vec<usize>, Vec<f32>) {
    (tensor.dims().to_vec(), values(tensor))
}

/// A result and the gradients of the leaves it was made from.
fn with_gradients<const D: usize>(out: Tensor<D>, leaves: &[Tensor<2>]) -> Found {
    let grads = out.clone().sum().backward();
    let of = leaves.iter().map(|leaf| found(leaf.grad(&grads).expect("a gradient")));
    [found(out.inner())].into_iter().chain(of).collect()
}

fn ids<const D: usize>(id: i32, shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(vec![id; shape.iter().product()], shape), device)
}

#[test]
fn elementwise_operations_of_nothing_are_nothing() {
    for shape in [[0, 3], [3, 0], [0, 0]] {
        assert_agree(|device| {
            let x = leaf(shape, 0.1, device);
            with_gradients(silu(x.clone()), &[x])
        });
        for gates in [shape[1], 1] {
            assert_agree(|device| {
                let (value, gate) =
                    (leaf(shape, 0.1, device), leaf([shape[0], gates], 0.2, device));
                let out = gated(value.clone(), gate.clone(), Activation::Silu);
                with_gradients(out, &[value, gate])
            });
        }
    }
}

#[test]
fn maps_without_tokens_slots_rows_or_columns_move_nothing() {
    for [tokens, slots, rows, dim] in
        [[0, 2, 3, 4], [3, 0, 4, 4], [3, 2, 0, 4], [3, 2, 4, 0], [0, 2, 0, 4]]
    {
        let map = |device: &Device| {
            RowMap::new(ids(-1, [tokens, slots], device), ids(-1, [rows], device))
        };
        assert_agree(|device| {
            let x = leaf([tokens, dim], 0.1, device);
            with_gradients(dispatch_rows(x.clone(), &map(device)), &[x])
        });
        assert_agree(|device| {
            let [y, weights] = [leaf([rows, dim], 0.1, device), leaf([tokens, slots], 0.2, device)];
            let sum = combine_parts(vec![y.clone()], weights.clone(), &map(device));
            with_gradients(sum, &[y, weights])
        });
        assert_agree(|device| {
            let parts = 1 + usize::from(rows.is_multiple_of(2));
            let header_rows = usize::from(rows > 0);
            let values = vec![3.0; parts * header_rows * dim].into();
            let x = leaf([tokens, dim], 0.1, device);
            let header = Header { parts, rows: header_rows, values };
            with_gradients(pack_rows(x.clone(), &map(device), &header), &[x])
        });
    }
}

#[test]
fn routers_without_tokens_or_slots_choose_nothing() {
    for [t, e, k] in [[0, 5, 2], [3, 5, 0], [3, 0, 2]] {
        assert_agree(|device| {
            let logits = leaf([t, e], 0.1, device);
            with_gradients(combine_weights(logits.clone(), ids(-1, [t, k], device), 2.5), &[logits])
        });
    }
    assert_agree(|device| {
        let chosen = top_k(tensor([0, 5], 0.1, device), 2);
        vec![found(chosen.selected.float()), found(chosen.next)]
    });
    assert_agree(|device| {
        let (logits, none) = (leaf([0, 5], 0.1, device), ids(-1, [0, 2], device));
        let loss = sequence_balance(logits.clone(), none, ids(1, [0], device), 4);
        with_gradients(loss, &[logits])
    });
}

#[test]
fn a_convolution_of_nothing_has_a_gradient_of_zeros() {
    for shape in [[0, 3, 2], [2, 0, 2], [2, 3, 0]] {
        assert_agree(|device| {
            let [b, s, d] = shape;
            let weight = leaf([2, d], 0.1, device);
            let out =
                short_conv(tensor(shape, 0.2, device), weight.clone(), ids(0, [b, s], device));
            with_gradients(out, &[weight])
        });
    }
}

#[test]
fn optimizers_of_nothing_change_nothing() {
    let (beta1, beta2, eps) = (0.9, 0.95, 1e-8);
    let adam = AdamOptions { lr: 0.02, beta1, beta2, eps, step: 3, weight_decay: 0.0 };
    for op in [adam_step, adamh_step] {
        assert_agree(|device| {
            let [w, grad, m, v] = [0.1, 0.2, 0.3, 0.4].map(|salt| tensor([0], salt, device));
            let (w, m, v) = op(w, grad, m, v, &adam);
            [w, m, v].map(found).into()
        });
    }
    let norm = MuonHNorm::PerMatrix;
    let muonh = MuonHOptions { lr: 0.02, momentum: 0.95, precision: Precision::F32, norm };
    for shape in [[0, 2, 3], [2, 0, 3]] {
        assert_agree(|device| {
            let [w, grad, momentum] = [0.1, 0.2, 0.3].map(|salt| tensor(shape, salt, device));
            let (w, momentum) = muonh_step(w, grad, momentum, &muonh);
            vec![found(w), found(momentum)]
        });
    }
}

#[test]
fn a_norm_of_no_rows_has_a_gain_with_a_gradient_of_zeros() {
    assert_agree(|device| {
        let (x, gain) = (leaf([0, 3], 0.1, device), leaf([3], 0.2, device));
        let y = rms_norm(x.clone(), gain.clone(), 1e-5);
        let grads = y.clone().sum().backward();
        let (dx, dgain) = (x.grad(&grads).expect("dx"), gain.grad(&grads).expect("dgain"));
        vec![found(y.inner()), found(dx), found(dgain)]
    });
}

#[test]
fn attention_over_nothing_is_nothing() {
    let options = AttentionOptions {
        own_kv_heads: 1,
        window: Some(3),
        rope_base: Some(1e4),
        qk_mult: 1.0,
        norm_eps: 1e-6,
        exclusive_eps: 1e-6,
    };
    for [b, s] in [[0, 5], [2, 0]] {
        assert_agree(|device| {
            let q = leaf([b, s, 2, 4], 0.1, device);
            let [k, v] = [0.2, 0.3].map(|salt| leaf([b, s, 2, 4], salt, device));
            let out = attention(q.clone(), k.clone(), v.clone(), ids(0, [b, s], device), &options);
            let grads = out.clone().sum().backward();
            let of = [q, k, v].map(|leaf| found(leaf.grad(&grads).expect("a gradient")));
            [found(out.inner())].into_iter().chain(of).collect()
        });
    }
}

#[test]
fn no_tokens_have_no_loss_and_leave_the_head_alone() {
    assert_agree(|device| {
        let (hidden, head) = (leaf([0, 3], 0.1, device), leaf([3, 5], 0.2, device));
        let weight = Tensor::ones([0], device);
        let loss = cross_entropy(hidden.clone(), head.clone(), ids(0, [0], device), weight, 1e-2);
        with_gradients(loss.total, &[hidden, head])
    });
    assert_agree(|device| {
        let (hidden, head) = (tensor([0, 3], 0.1, device), tensor([3, 5], 0.2, device));
        let losses = token_losses(hidden, head, ids(0, [0], device));
        vec![found(losses.nll), found(losses.log_sum_exp)]
    });
}

#[test]
fn experts_without_rows_or_dims_give_zeros() {
    for (counts, c, f) in
        [(vec![0, 0], 3, 4), (vec![], 3, 4), (vec![2, 1], 0, 4), (vec![2, 1], 3, 0)]
    {
        let (groups, g) = (Groups::from_counts(&counts), counts.len());
        assert_agree(|device| {
            let x = leaf([groups.rows(), c], 0.1, device);
            let [w_gate, w_up] = [0.2, 0.3].map(|salt| leaf([g, c, f], salt, device));
            let w_down = leaf([g, f, c], 0.4, device);
            let y =
                grouped_swiglu(x.clone(), w_gate.clone(), w_up.clone(), w_down.clone(), &groups);
            let grads = y.clone().sum().backward();
            let dx = found(x.grad(&grads).expect("dx"));
            let of = [w_gate, w_up, w_down].map(|leaf| found(leaf.grad(&grads).expect("dw")));
            [found(y.inner()), dx].into_iter().chain(of).collect()
        });
    }
}

#[test]
fn newton_schulz_of_nothing_is_nothing() {
    for shape in [[0, 2, 3], [2, 0, 3], [2, 3, 0]] {
        assert_agree(|device| {
            vec![found(newton_schulz(tensor(shape, 0.1, device), Precision::F32))]
        });
    }
}

#[test]
fn routing_of_no_tokens_counts_nothing() {
    assert_agree(|device| {
        let (logits, bias) = (leaf([0, 5], 0.1, device), tensor([5], 0.2, device));
        let route = route(logits.clone(), bias, 2, 2.5);
        let valid = ids(1, [0], device);
        let read = routing_statistics(
            logits.clone(),
            route.selected.clone(),
            route.alpha.clone(),
            valid.clone(),
        );
        assert_eq!((read.tokens, read.expert_counts), (0, vec![0; 5]));
        assert_eq!((read.probability_sums, read.z_sum), (vec![0.0; 5], 0.0));
        assert_eq!(read.margin_bounds, [f32::INFINITY, f32::NEG_INFINITY]);
        let margins = Margins::new(logits.clone(), route.alpha.clone(), valid);
        let bins = MarginBins::Range { low: 0.0, width: 1.0, len: 3 };
        let counts = margins.clone().histogram(bins).float();
        let crossings = margins.crossings(bins, 1).float();
        let weights = with_gradients(route.combine_weights, &[logits]);
        let rest = [found(route.selected.float()), found(counts), found(crossings)];
        weights.into_iter().chain(rest).chain([found(route.alpha)]).collect()
    });
}
