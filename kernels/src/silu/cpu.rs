use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::SiluKernel;
use crate::flex::{contiguous, dims, float_tensor, floats, floats_mut, unshared};
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
        let (x, mut dx) = (contiguous(x), unshared(grad));
        floats_mut(&mut dx)
            .par_chunks_mut(ELEMENT_BLOCK)
            .zip(floats(&x).par_chunks(ELEMENT_BLOCK))
            .for_each(|(dx, x)| vectorised(Backward { x, dx }));
        dx
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

/// From dy to dx in place: with s = sigmoid(x), dx = dy s (1 + x (1 - s)).
struct Backward<'a> {
    x: &'a [f32],
    dx: &'a mut [f32],
}

impl Loop for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        for (dx, &x) in self.dx.iter_mut().zip(self.x) {
            let s = sigmoid::<M>(x);
            *dx *= s * (1.0 + x * (1.0 - s));
        }
    }
}
