use burn::tensor::Tensor;
use fulmar_kernels::rms_norm::{reference, rms_norm};

use crate::compare::{assert_close, leaf, tensor};

type Gradients = (Tensor<2>, Tensor<2>, Tensor<1>);

fn run(op: fn(Tensor<2>, Tensor<1>, f64) -> Tensor<2>, rows: usize, dim: usize) -> Gradients {
    let (x, gain) = (leaf([rows, dim], 1), leaf([dim], 2));
    let out = op(x.clone(), gain.clone(), 1e-5);
    let upstream = Tensor::from_inner(tensor([rows, dim], 3));
    let grads = (out.clone() * upstream).sum().backward();
    (out.inner(), x.grad(&grads).expect("dx"), gain.grad(&grads).expect("dgain"))
}

#[test]
fn rms_norm_matches_its_reference_in_values_and_gradients() {
    for (rows, dim) in [(1, 5), (3, 7), (65, 96), (200, 33)] {
        let (out, dx, dgain) = run(rms_norm, rows, dim);
        let (out_ref, dx_ref, dgain_ref) = run(reference, rows, dim);
        assert_close("out", out, out_ref, 1e-6);
        assert_close("dx", dx, dx_ref, 1e-5);
        assert_close("dgain", dgain, dgain_ref, 1e-5);
    }
}
