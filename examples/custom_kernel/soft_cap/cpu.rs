//! On the CPU: slices of the tensors, shared among threads.

use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType};
use rayon::prelude::*;

use super::SoftCapKernel;

/// Elements a task takes at a time; a fixed size, so that no result depends on the threads.
const BLOCK: usize = 1 << 14;

impl SoftCapKernel for Flex {
    fn forward(x: FlexTensor, cap: f32) -> FlexTensor {
        let x = x.to_contiguous();
        map(&x, &x, |x, _| cap * (x / cap).tanh())
    }

    fn backward(y: FlexTensor, dy: FlexTensor, cap: f32) -> FlexTensor {
        let (y, dy) = (y.to_contiguous(), dy.to_contiguous());
        map(&y, &dy, |y, dy| dy * (1.0 - (y / cap).powi(2)))
    }
}

/// `of(a, b)` element by element, in the shape of both.
fn map(a: &FlexTensor, b: &FlexTensor, of: impl Fn(f32, f32) -> f32 + Sync) -> FlexTensor {
    let [a_values, b_values] = [a, b].map(|tensor| {
        assert_eq!(tensor.dtype(), DType::F32, "soft_cap: the CPU kernel computes in f32");
        tensor.as_slice::<f32>().expect("a contiguous tensor")
    });
    let mut out = vec![0.0; a_values.len()];
    let blocks = out.par_chunks_mut(BLOCK).zip(a_values.par_chunks(BLOCK));
    blocks.zip(b_values.par_chunks(BLOCK)).for_each(|((out, a), b)| {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = of(*a, *b);
        }
    });
    let layout = Layout::contiguous(a.layout().shape().clone());
    FlexTensor::new(Bytes::from_elems(out), layout, DType::F32)
}
