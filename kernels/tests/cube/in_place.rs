//! Optimizers write where weights and state lie, unless something else holds them.

use burn::backend::DispatchTensorKind;
use burn::tensor::Tensor;
use fulmar_kernels::adam::{AdamOptions, adam_step, adamh_step};
use fulmar_kernels::muonh::{MuonHNorm, MuonHOptions, muonh_step};
use fulmar_kernels::newton_schulz::Precision;

use super::{device, tensor};

/// Which memory a tensor lies in.
fn memory<const D: usize>(tensor: &Tensor<D>) -> String {
    match tensor.clone().into_dispatch().kind {
        DispatchTensorKind::Cube(tensor) => format!("{:?}", tensor.float().handle.memory),
        _ => panic!("a tensor of the device"),
    }
}

/// A tensor that nothing else holds, not even the device's queue.
fn settled<const D: usize>(shape: [usize; D], salt: f32) -> Tensor<D> {
    let tensor = tensor(shape, salt, &device());
    tensor.clone().into_data();
    tensor
}

#[test]
fn unshared_weights_and_state_stay_where_they_are_and_shared_ones_are_left_alone() {
    let (beta1, beta2, eps) = (0.9, 0.95, 1e-8);
    let adam = AdamOptions { lr: 0.02, beta1, beta2, eps, step: 3, weight_decay: 0.0 };
    for op in [adam_step, adamh_step] {
        for is_shared in [false, true] {
            let [w, grad, m, v] = [0.1, 0.2, 0.3, 0.4].map(|salt| settled([9], salt));
            let before = [&w, &m, &v].map(memory);
            let kept = is_shared.then(|| [w.clone(), m.clone(), v.clone()]);
            let (w, m, v) = op(w, grad, m, v, &adam);
            let after = [&w, &m, &v].map(memory);
            assert!(before.iter().zip(&after).all(|(b, a)| (b != a) == kept.is_some()));
        }
    }
    let norm = MuonHNorm::PerMatrix;
    let muonh = MuonHOptions { lr: 0.02, momentum: 0.95, precision: Precision::F32, norm };
    let [w, grad, momentum] = [0.1, 0.2, 0.3].map(|salt| settled([2, 3, 4], salt));
    let before = [&w, &momentum].map(memory);
    let (w, momentum) = muonh_step(w, grad, momentum, &muonh);
    assert_eq!([&w, &momentum].map(memory), before);
}
