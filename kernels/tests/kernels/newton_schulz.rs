use burn::tensor::Tensor;
use fulmar_kernels::newton_schulz::{Precision, newton_schulz, reference};

use crate::compare::{assert_close, assert_repeats, bits, in_pool, tensor};

#[test]
fn newton_schulz_matches_its_reference() {
    let shapes = [
        [1, 1, 1],
        [3, 1, 9],
        [2, 7, 5],
        [5, 48, 48],
        [3, 16, 24],
        [2, 97, 65],
        [1, 130, 150],
        [2, 270, 140],
        [1, 140, 300],
        [1, 260, 258],
        [65, 132, 130],
        [1, 530, 520],
    ];
    for shape in shapes {
        let u = tensor(shape, 1);
        let found = newton_schulz(u.clone(), Precision::F32);
        assert_close(&format!("{shape:?}"), found, reference(u, Precision::F32), 2e-5);
    }
}

/// A product's sum runs in another order, so that here and there a result rounds to the other
/// neighbour, one part in 256 away; five steps carry that on.
#[test]
fn newton_schulz_in_bf16_matches_its_reference() {
    for shape in [[3, 16, 24], [2, 40, 24], [4, 48, 48], [1, 150, 140]] {
        let u = tensor(shape, 1);
        let found = newton_schulz(u.clone(), Precision::Bf16);
        assert_close(&format!("{shape:?}"), found, reference(u, Precision::Bf16), 3e-2);
    }
}

#[test]
fn newton_schulz_makes_rows_orthonormal_and_leaves_zeros() {
    let x = newton_schulz(tensor([1, 6, 40], 1), Precision::F32);
    let gram = x.clone().matmul(x.swap_dims(1, 2)).reshape([6, 6]);
    assert_close("gram", gram, Tensor::eye(6, &crate::compare::device()), 0.3);
    let zeros = newton_schulz(tensor([2, 6, 40], 1) * 0.0, Precision::F32);
    assert!(bits(zeros).iter().all(|bits| *bits << 1 == 0));
}

#[test]
fn newton_schulz_reads_strided_inputs() {
    let strided = || tensor([4, 9, 20], 1).swap_dims(1, 2);
    let found = newton_schulz(strided(), Precision::F32);
    assert_close("strided", found, reference(strided(), Precision::F32), 2e-5);
}

#[test]
fn newton_schulz_does_not_depend_on_the_number_of_threads() {
    for shape in [[40, 48, 48], [2, 192, 192], [65, 130, 140], [1, 300, 280]] {
        for precision in [Precision::F32, Precision::Bf16] {
            assert_repeats(|| bits(newton_schulz(tensor(shape, 1), precision)));
        }
    }
}

/// One thread takes the matrices in order and uses its buffers again.
#[test]
fn newton_schulz_keeps_a_matrix_that_is_not_finite_to_itself() {
    for [p, q] in [[7, 5], [5, 7], [140, 130]] {
        let whole = tensor([2, p, q], 1);
        let broken = Tensor::cat(vec![tensor([1, p, q], 2) * f32::NAN, whole.clone()], 0);
        let found = in_pool(1, || bits(newton_schulz(broken, Precision::F32)));
        let expected = in_pool(1, || bits(newton_schulz(whole, Precision::F32)));
        assert!(f32::from_bits(found[0]).is_nan());
        assert_eq!(found[p * q..], expected, "{p} by {q}");
    }
}
