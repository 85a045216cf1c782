use burn::tensor::{DType, Tensor, TensorData};
use fulmar_kernels::muonh::{MuonHNorm, MuonHOptions, muonh_step, reference};
use fulmar_kernels::newton_schulz::Precision;

use crate::compare::{assert_close, assert_repeats, bits, device, floats, tensor};
use crate::golden::optimizer_cases;

const OPTIONS: MuonHOptions = MuonHOptions {
    lr: 0.02,
    momentum: 0.95,
    precision: Precision::F32,
    norm: MuonHNorm::PerMatrix,
};

const JOINT: MuonHOptions = MuonHOptions { norm: MuonHNorm::Joint, ..OPTIONS };

fn inputs(shape: [usize; 3]) -> [Tensor<3>; 3] {
    [tensor(shape, 1), tensor(shape, 2), tensor(shape, 3) * 0.3]
}

#[test]
fn muonh_matches_its_reference() {
    let shapes = [
        [1, 1, 1],
        [4, 3, 5],
        [3, 50, 33],
        [2, 48, 48],
        [1, 150, 140],
        [2, 130, 300],
        [1, 280, 260],
    ];
    for shape in shapes {
        for options in [OPTIONS, JOINT] {
            let [w, grad, momentum] = inputs(shape);
            let found = muonh_step(w.clone(), grad.clone(), momentum.clone(), &options);
            let expected = reference(w, grad, momentum, &options);
            assert_close(&format!("w {shape:?}"), found.0, expected.0, 5e-6);
            assert_close("momentum", found.1, expected.1, 1e-6);
        }
    }
}

#[test]
fn muonh_matches_its_golden_values() {
    for case in optimizer_cases() {
        for (suffix, precision, tolerance) in
            [("f32", Precision::F32, 1e-4), ("bf16", Precision::Bf16, 3e-3)]
        {
            let options = MuonHOptions {
                lr: case.setting("lr"),
                momentum: case.setting("momentum"),
                precision,
                norm: MuonHNorm::PerMatrix,
            };
            for name in ["wide", "tall", "experts"] {
                for step in [muonh_step, reference] {
                    let mut w = case.tensor::<3>(&format!("muonh_{name}_p0"));
                    let mut momentum = w.zeros_like();
                    for i in 0..case.setting("steps") as usize {
                        let grad = case.tensor::<3>(&format!("muonh_{name}_g{i}"));
                        (w, momentum) = step(w, grad, momentum, &options);
                    }
                    let expected = format!("muonh_{name}_{suffix}");
                    assert_close(&expected, w, case.tensor::<3>(&expected), tolerance);
                }
            }
        }
    }
}

#[test]
fn muonh_keeps_norms_per_matrix_or_jointly() {
    let norms = |x: Tensor<3>| (x.clone() * x).sum_dim(2).sum_dim(1).sqrt();
    let total = |x: Tensor<3>| (x.clone() * x).sum();
    let [w, grad, momentum] = inputs([5, 12, 7]);
    let (moved, _) = muonh_step(w.clone(), grad.clone(), momentum.clone(), &OPTIONS);
    assert_close("norms", norms(moved), norms(w.clone()), 1e-6);
    let (moved, _) = muonh_step(w.clone(), grad, momentum, &JOINT);
    assert_close("total", total(moved), total(w), 1e-6);
}

#[test]
fn muonh_leaves_a_zero_matrix_and_one_without_an_update_as_they_are() {
    let [w, grad, momentum] = inputs([3, 6, 4]);
    let mask = |zero: usize| {
        let ones = (0..3).map(|i| if i == zero { 0.0f32 } else { 1.0 }).collect::<Vec<_>>();
        Tensor::<3>::from_data(TensorData::new(ones, [3, 1, 1]), &device())
    };
    let (w, grad, momentum) = (w * mask(0), grad * mask(1), momentum * mask(1));
    for step in [muonh_step, reference] {
        let (found, _) = step(w.clone(), grad.clone(), momentum.clone(), &OPTIONS);
        let (found, before) = (bits(found), bits(w.clone()));
        assert!(found[..24].iter().all(|bits| *bits << 1 == 0), "the zero matrix");
        assert_eq!(found[24..48], before[24..48], "no update");
        assert_ne!(found[48..], before[48..]);
        let zeros = w.zeros_like();
        let (found, _) = step(w.clone(), zeros.clone(), zeros, &JOINT);
        assert_eq!(bits(found), before, "no update of the stack");
    }
}

#[test]
fn muonh_updates_a_buffer_it_owns_in_place_and_spares_a_shared_one() {
    for options in [OPTIONS, JOINT] {
        let [_, grad, momentum] = inputs([2, 6, 4]);
        let data = TensorData::new(vec![0.5f32; 48], [2, 6, 4]);
        let address = data.as_bytes().as_ptr();
        let w = Tensor::<3>::from_data(data, &device());
        let kept = (grad.clone(), momentum.clone());
        let before = (bits(grad.clone()), bits(momentum.clone()));
        let (w, _) = muonh_step(w, grad, momentum, &options);
        assert_eq!(w.into_data().as_bytes().as_ptr(), address, "in place");
        assert_eq!((bits(kept.0), bits(kept.1)), before, "shared tensors are unchanged");
    }
}

#[test]
fn muonh_reads_strided_inputs() {
    let strided = |salt| tensor([3, 9, 20], salt).swap_dims(1, 2);
    let found = muonh_step(strided(1), strided(2), strided(3), &OPTIONS).0;
    let expected = reference(strided(1), strided(2), strided(3), &OPTIONS).0;
    assert_close("w", found, expected, 5e-6);
}

#[test]
fn muonh_does_not_depend_on_the_number_of_threads() {
    for shape in [[40, 48, 48], [2, 192, 192], [1, 300, 280]] {
        for options in [OPTIONS, JOINT] {
            assert_repeats(|| {
                let [w, grad, momentum] = inputs(shape);
                let (w, momentum) = muonh_step(w, grad, momentum, &options);
                [bits(w), bits(momentum)]
            });
        }
    }
}

#[test]
#[should_panic(expected = "muonh_step: `grad` has shape [1, 3, 2], needed [1, 2, 3] as `w`")]
fn muonh_names_the_argument_that_does_not_fit() {
    let w = tensor([1, 2, 3], 1);
    muonh_step(w.clone(), w.clone().swap_dims(1, 2), w, &OPTIONS);
}

#[test]
fn muonh_of_bf16_momentum_matches_its_reference_and_stores_the_nearest() {
    for shape in [[4, 3, 5], [2, 48, 48], [1, 150, 140], [3, 30, 20]] {
        for options in [OPTIONS, JOINT] {
            let [w, grad, momentum] = inputs(shape);
            let momentum = momentum.cast(DType::BF16);
            let found = muonh_step(w.clone(), grad.clone(), momentum.clone(), &options);
            let expected = reference(w.clone(), grad.clone(), momentum.clone(), &options);
            assert_close(&format!("w {shape:?}"), found.0.clone(), expected.0, 5e-6);
            // The step of an f32 momentum of the same values: the same weights, and a momentum
            // that is rounded after it has served.
            let wide = muonh_step(w, grad, momentum.cast(DType::F32), &options);
            assert_eq!(bits(found.0), bits(wide.0), "computed in f32");
            assert_eq!(found.1.dtype(), DType::BF16);
            let rounded: Vec<u16> = floats(wide.1).into_iter().map(nearest).collect();
            let stored: Vec<u16> =
                floats(found.1.cast(DType::F32)).into_iter().map(nearest).collect();
            assert_eq!(stored, rounded);
        }
    }
}

/// The upper half of the bits of the nearest bf16, ties to even.
fn nearest(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[test]
fn muonh_updates_bf16_momentum_in_place_and_does_not_depend_on_threads() {
    let momentum = |shape| tensor::<3>(shape, 3).cast(DType::BF16);
    for options in [OPTIONS, JOINT] {
        let [w, grad, _] = inputs([2, 6, 4]);
        let data = momentum([2, 6, 4]).into_data();
        let address = data.as_bytes().as_ptr();
        let options_of_data = (&device(), DType::BF16);
        let held = Tensor::<3>::from_data(data, options_of_data);
        let (_, held) = muonh_step(w, grad, held, &options);
        assert_eq!(held.into_data().as_bytes().as_ptr(), address, "in place");
        assert_repeats(|| {
            let [w, grad, _] = inputs([40, 48, 48]);
            let (w, momentum) = muonh_step(w, grad, momentum([40, 48, 48]), &options);
            [bits(w), bits(momentum.cast(DType::F32))]
        });
    }
}

#[test]
#[should_panic(expected = "muonh_step: `momentum` is F16, needed F32 or BF16")]
fn muonh_names_a_type_it_lacks() {
    let [w, grad, momentum] = inputs([1, 2, 3]);
    muonh_step(w, grad, momentum.cast(DType::F16), &OPTIONS);
}
