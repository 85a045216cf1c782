use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::SiluKernel;
use crate::flex::{contiguous, dims, float_tensor, floats};
use crate::parallel::ELEMENT_BLOCK;
use crate::simd::{Loop, MulAdd, sigmoid, vectorised};

impl SiluKernel for Flex {
    fn forward(x: FlexTensor) -> FlexTensor {
        let x = contiguous(x);
        let [rows, dim] = dims(&x);
        let mut out = vec![0.0; rows * dim];
        out.par_chunks_mut(ELEMENT_BLOCK)
            .zip(floats(&x).par_chunks(ELEMENT_BLOCK))
            .for_each(|(out, x)| vectorised(Forward { x, out }));
        float_tensor(out, [rows, dim])
    }

    fn backward(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
        let (x, grad) = (contiguous(x), contiguous(grad));
        let [rows, dim] = dims(&x);
        let mut dx = vec![0.0; rows * dim];
        dx.par_chunks_mut(ELEMENT_BLOCK)
            .zip(floats(&x).par_chunks(ELEMENT_BLOCK))
            .zip(floats(&grad).par_chunks(ELEMENT_BLOCK))
            .for_each(|((dx, x), grad)| vectorised(Backward { x, grad, dx }));
        float_tensor(dx, [rows, dim])
    }
}

struct Forward<'a> {
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Loop for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        for (out, &x) in self.out.iter_mut().zip(self.x) {
            *out = x * sigmoid::<M>(x);
        }
    }
}

/// With s = sigmoid(x): dx = dy s (1 + x (1 - s)).
struct Backward<'a> {
    x: &'a [f32],
    grad: &'a [f32],
    dx: &'a mut [f32],
}

impl Loop for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        for ((dx, &x), &grad) in self.dx.iter_mut().zip(self.x).zip(self.grad) {
            let s = sigmoid::<M>(x);
            *dx = grad * s * (1.0 + x * (1.0 - s));
        }
    }
}
