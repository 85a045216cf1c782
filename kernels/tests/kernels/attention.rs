use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::attention::{AttentionOptions, attention, reference};

use crate::compare::{assert_close, assert_repeats, bits, device, floats, leaf, tensor, values};

type Op = fn(Tensor<4>, Tensor<4>, Tensor<4>, Tensor<2, Int>, &AttentionOptions) -> Tensor<4>;

/// Sizes of a call; its rows hold documents of the given lengths, the same in each row.
#[derive(Clone, Copy)]
struct Case {
    b: usize,
    h: usize,
    j: usize,
    a: usize,
    lengths: &'static [usize],
}

impl Case {
    fn s(&self) -> usize {
        self.lengths.iter().sum()
    }

    fn segments(&self) -> Tensor<2, Int> {
        let ids = self.lengths.iter().enumerate();
        let row: Vec<i32> = ids.flat_map(|(i, &len)| vec![i as i32 + 3; len]).collect();
        let data = TensorData::new(row.repeat(self.b), [self.b, self.s()]);
        Tensor::from_data(data, &device())
    }
}

fn options(own_kv_heads: usize, window: Option<usize>, rope_base: Option<f64>) -> AttentionOptions {
    let (norm_eps, exclusive_eps) = (1e-6, 1e-6);
    AttentionOptions { own_kv_heads, window, rope_base, qk_mult: 1.3, norm_eps, exclusive_eps }
}

/// The result and the gradients of q, k and v.
fn run_on(
    op: Op,
    case: Case,
    segments: Tensor<2, Int>,
    options: &AttentionOptions,
) -> [Tensor<4>; 4] {
    let Case { b, h, j, a, .. } = case;
    let s = case.s();
    let [q, k, v] = [leaf([b, s, h, a], 1), leaf([b, s, j, a], 2), leaf([b, s, j, a], 3)];
    let out = op(q.clone(), k.clone(), v.clone(), segments, options);
    let upstream = Tensor::from_inner(tensor([b, s, h, a], 4));
    let grads = (out.clone() * upstream).sum().backward();
    let [dq, dk, dv] = [q, k, v].map(|leaf| leaf.grad(&grads).expect("a gradient"));
    [out.inner(), dq, dk, dv]
}

fn run(op: Op, case: Case, options: &AttentionOptions) -> [Tensor<4>; 4] {
    run_on(op, case, case.segments(), options)
}

fn assert_same(found: [Tensor<4>; 4], expected: [Tensor<4>; 4], case: &str) {
    let parts = [("out", 2e-5), ("dq", 1e-4), ("dk", 1e-4), ("dv", 1e-4)];
    for ((found, expected), (name, tolerance)) in found.into_iter().zip(expected).zip(parts) {
        assert_close(&format!("{case}: {name}"), found, expected, tolerance);
    }
}

fn assert_matches(case: Case, options: &AttentionOptions) {
    let name = format!("{:?} h {} j {} a {} {options:?}", case.lengths, case.h, case.j, case.a);
    assert_same(run(attention, case, options), run(reference, case, options), &name);
}

#[test]
fn attention_matches_its_reference_for_every_packing_and_window() {
    let packings: [&[usize]; 4] = [&[7], &[1, 30, 2, 40], &[150], &[129, 1, 140]];
    for lengths in packings {
        let case = Case { b: 2, h: 3, j: 1, a: 8, lengths };
        for window in [None, Some(2), Some(20), Some(128), Some(1000)] {
            for rope_base in [None, Some(1e4)] {
                assert_matches(case, &options(1, window, rope_base));
            }
        }
    }
}

#[test]
fn attention_matches_its_reference_where_queries_read_only_themselves() {
    let packings: [(&[usize], _); 3] = [(&[1], None), (&[1, 1, 1], None), (&[70], Some(1))];
    for (lengths, window) in packings {
        let case = Case { b: 2, h: 3, j: 1, a: 8, lengths };
        // With a small eps nothing but rounding would be left of y = v, and with one key the
        // gradients of q and k are 0 but for rounding.
        let options = AttentionOptions { exclusive_eps: 0.5, ..options(1, window, Some(1e4)) };
        let [out, dq, dk, dv] = run(attention, case, &options);
        let [out_ref, _, _, dv_ref] = run(reference, case, &options);
        assert_close("out", out, out_ref, 2e-5);
        assert_close("dv", dv, dv_ref, 1e-4);
        for grad in [dq, dk] {
            let largest: f32 = grad.abs().max().into_scalar();
            assert!(largest < 1e-5, "found a gradient of {largest}, expected 0");
        }
    }
}

#[test]
fn attention_matches_its_reference_for_grouped_heads() {
    for (h, j, own) in [(4, 2, 1), (4, 2, 2), (8, 4, 2), (6, 3, 2), (12, 1, 1), (2, 2, 2)] {
        let case = Case { b: 2, h, j, a: 12, lengths: &[20, 3, 14] };
        assert_matches(case, &options(own, Some(16), Some(1e4)));
    }
    let odd_head = Case { b: 1, h: 2, j: 1, a: 5, lengths: &[20, 13] };
    assert_matches(odd_head, &options(1, None, None));
    let wide = Case { b: 1, h: 3, j: 1, a: 64, lengths: &[100, 101] };
    assert_matches(wide, &options(1, Some(64), Some(1e4)));
}

#[test]
fn attention_gives_unread_kv_heads_no_gradient() {
    let case = Case { b: 1, h: 8, j: 4, a: 8, lengths: &[9] };
    let [_, _, dk, dv] = run(attention, case, &options(2, None, Some(1e4)));
    for unread in [dk, dv].map(|grad| grad.slice([0..1, 0..9, 2..4])) {
        assert!(bits(unread).iter().all(|&value| value == 0));
    }
}

#[test]
fn attention_reads_across_a_document_that_comes_between() {
    let case = Case { b: 1, h: 2, j: 1, a: 8, lengths: &[200] };
    let ids: Vec<i32> = (0..200).map(|t| [5, 2, 5, 9, 2][t / 40]).collect();
    let segments = Tensor::from_data(TensorData::new(ids, [1, 200]), &device());
    for window in [None, Some(90)] {
        let options = options(1, window, Some(1e4));
        let found = run_on(attention, case, segments.clone(), &options);
        assert_same(found, run_on(reference, case, segments.clone(), &options), "between");
    }
}

#[test]
fn attention_accepts_views() {
    let q = tensor::<4>([2, 4, 37, 8], 1).swap_dims(1, 2);
    let k = tensor::<4>([8, 37, 2, 2], 2).swap_dims(0, 3);
    let v = tensor::<4>([37, 2, 2, 8], 3).swap_dims(0, 1);
    let segments = Case { b: 37, h: 1, j: 1, a: 1, lengths: &[1, 1] }.segments().swap_dims(0, 1);
    let options = options(2, None, Some(1e4));
    let found = attention(q.clone(), k.clone(), v.clone(), segments.clone(), &options);
    assert_close("out", found, reference(q, k, v, segments, &options), 2e-5);
}

#[test]
fn attention_has_the_gradient_of_its_finite_difference() {
    let case = Case { b: 1, h: 2, j: 1, a: 4, lengths: &[2, 3] };
    let options = options(1, Some(2), Some(1e4));
    let (q, k, v) = (values(40, 1), values(20, 2), values(20, 3));
    let loss = |[q, k, v]: [Vec<f32>; 3]| -> f32 {
        let load = |x: Vec<f32>, heads: usize| {
            Tensor::<4>::from_data(TensorData::new(x, [1, 5, heads, 4]), &device())
        };
        let out = attention(load(q, 2), load(k, 1), load(v, 1), case.segments(), &options);
        (out * tensor([1, 5, 2, 4], 4)).sum().into_scalar()
    };
    let [_, grads @ ..] = run(attention, case, &options);
    for (which, grad) in grads.into_iter().enumerate() {
        let grad = floats(grad);
        for (i, found) in grad.into_iter().enumerate() {
            let moved = |by: f32| {
                let mut inputs = [q.clone(), k.clone(), v.clone()];
                inputs[which][i] += by;
                loss(inputs)
            };
            let slope = (moved(4e-3) - moved(-4e-3)) / 8e-3;
            // f32 sums of about 1 leave 1e-4 of noise in a difference over 8e-3.
            assert!((slope - found).abs() < 3e-3, "{which}[{i}]: found {found}, expected {slope}");
        }
    }
}

#[test]
fn attention_has_equal_bits_in_every_run_and_thread_count() {
    let case = Case { b: 2, h: 6, j: 3, a: 16, lengths: &[100, 3, 80] };
    let options = options(2, Some(70), Some(1e4));
    assert_repeats(|| run(attention, case, &options).map(bits));
}

#[test]
fn attention_of_one_long_head_has_equal_bits_on_any_number_of_threads() {
    let case = Case { b: 1, h: 1, j: 1, a: 16, lengths: &[700, 90, 410] };
    for window in [None, Some(2), Some(129), Some(5_000)] {
        let options = options(1, window, Some(1e4));
        assert_matches(case, &options);
        assert_repeats(|| run(attention, case, &options).map(bits));
    }
}

#[test]
fn attention_keeps_documents_apart() {
    let case = Case { b: 1, h: 2, j: 1, a: 8, lengths: &[50, 45] };
    let second = |x: Tensor<4>| x.slice([0..1, 50..95]);
    let changed = |x: Tensor<4>, salt| {
        Tensor::cat(vec![tensor(x.dims(), salt).slice([0..1, 0..50]), second(x)], 1)
    };
    let (q, k, v) = (tensor([1, 95, 2, 8], 1), tensor([1, 95, 1, 8], 2), tensor([1, 95, 1, 8], 3));
    let options = options(1, None, Some(1e4));
    let out = attention(q.clone(), k.clone(), v.clone(), case.segments(), &options);
    let (q, k, v) = (changed(q, 11), changed(k, 12), changed(v, 13));
    let out_changed = attention(q, k, v, case.segments(), &options);
    assert_eq!(bits(second(out_changed)), bits(second(out)));
}

#[test]
#[should_panic(expected = "attention: `v` has shape [1, 3, 1, 4], needed [1, 3, 2, 4]")]
fn attention_refuses_values_of_another_shape() {
    let (q, k, v) = (tensor([1, 3, 2, 4], 1), tensor([1, 3, 2, 4], 2), tensor([1, 3, 1, 4], 3));
    let segments = Case { b: 1, h: 2, j: 2, a: 4, lengths: &[3] }.segments();
    attention(q, k, v, segments, &options(1, None, None));
}

#[test]
#[should_panic(expected = "attention: the head dim is 6, needed a multiple of 4 to rotate")]
fn attention_refuses_to_rotate_a_head_that_does_not_divide() {
    run(attention, Case { b: 1, h: 1, j: 1, a: 6, lengths: &[3] }, &options(1, None, Some(1e4)));
}
