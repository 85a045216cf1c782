use std::marker::PhantomData;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{Activation, GatedKernel};
use crate::flex::{contiguous, dims, float_tensor, floats, floats_mut, unshared};
use crate::parallel::{ELEMENT_BLOCK, ROW_BLOCK};
use crate::simd::{Loop, MulAdd, dot, sigmoid, vectorised};

impl GatedKernel for Flex {
    fn forward(value: FlexTensor, gate: FlexTensor, activation: Activation) -> FlexTensor {
        match activation {
            Activation::Silu => forward::<Silu>(value, gate),
            Activation::Sigmoid => forward::<Sigmoid>(value, gate),
            Activation::TwiceSigmoid => forward::<TwiceSigmoid>(value, gate),
        }
    }

    fn backward(
        value: FlexTensor,
        gate: FlexTensor,
        activation: Activation,
        grad: FlexTensor,
    ) -> (FlexTensor, FlexTensor) {
        match activation {
            Activation::Silu => backward::<Silu>(value, gate, grad),
            Activation::Sigmoid => backward::<Sigmoid>(value, gate, grad),
            Activation::TwiceSigmoid => backward::<TwiceSigmoid>(value, gate, grad),
        }
    }
}

/// An [`Activation`] as a type, so that each is compiled into its own loops.
trait Gate: Send + Sync {
    /// The activation of a gate and its derivative.
    fn of<M: MulAdd>(gate: f32) -> (f32, f32);
}

struct Silu;
struct Sigmoid;
struct TwiceSigmoid;

impl Gate for Silu {
    #[inline(always)]
    fn of<M: MulAdd>(gate: f32) -> (f32, f32) {
        let s = sigmoid::<M>(gate);
        (gate * s, s * (1.0 + gate * (1.0 - s)))
    }
}

impl Gate for Sigmoid {
    #[inline(always)]
    fn of<M: MulAdd>(gate: f32) -> (f32, f32) {
        let s = sigmoid::<M>(gate);
        (s, s * (1.0 - s))
    }
}

impl Gate for TwiceSigmoid {
    #[inline(always)]
    fn of<M: MulAdd>(gate: f32) -> (f32, f32) {
        let (s, slope) = Sigmoid::of::<M>(gate);
        (2.0 * s, 2.0 * slope)
    }
}

fn forward<G: Gate>(value: FlexTensor, gate: FlexTensor) -> FlexTensor {
    let (value, gate) = (contiguous(value), contiguous(gate));
    let ([rows, dim], [_, gate_dim]) = (dims(&value), dims(&gate));
    let mut out = vec![0.0; rows * dim];
    let (value, gate) = (floats(&value), floats(&gate));
    let activation = PhantomData::<G>;
    if gate_dim == dim {
        out.par_chunks_mut(ELEMENT_BLOCK)
            .zip(value.par_chunks(ELEMENT_BLOCK))
            .zip(gate.par_chunks(ELEMENT_BLOCK))
            .for_each(|((out, value), gate)| {
                vectorised(Forward { value, gate, out, activation });
            });
    } else {
        let block = (ROW_BLOCK * dim).max(1);
        out.par_chunks_mut(block)
            .zip(value.par_chunks(block))
            .zip(gate.par_chunks(ROW_BLOCK))
            .for_each(|((out, value), gate)| {
                vectorised(RowForward { value, gate, out, activation });
            });
    }
    float_tensor(out, [rows, dim])
}

fn backward<G: Gate>(
    value: FlexTensor,
    gate: FlexTensor,
    grad: FlexTensor,
) -> (FlexTensor, FlexTensor) {
    let (value, gate, mut dvalue) = (contiguous(value), contiguous(gate), unshared(grad));
    let ([rows, dim], [_, gate_dim]) = (dims(&value), dims(&gate));
    let mut dgate = vec![0.0; rows * gate_dim];
    let (value, gate, grad) = (floats(&value), floats(&gate), floats_mut(&mut dvalue));
    let activation = PhantomData::<G>;
    if gate_dim == dim {
        (grad.par_chunks_mut(ELEMENT_BLOCK), dgate.par_chunks_mut(ELEMENT_BLOCK))
            .into_par_iter()
            .zip(value.par_chunks(ELEMENT_BLOCK).zip(gate.par_chunks(ELEMENT_BLOCK)))
            .for_each(|((dvalue, dgate), (value, gate))| {
                vectorised(Backward { value, gate, dvalue, dgate, activation });
            });
    } else {
        let block = (ROW_BLOCK * dim).max(1);
        (grad.par_chunks_mut(block), dgate.par_chunks_mut(ROW_BLOCK))
            .into_par_iter()
            .zip(value.par_chunks(block).zip(gate.par_chunks(ROW_BLOCK)))
            .for_each(|((dvalue, dgate), (value, gate))| {
                vectorised(RowBackward { value, gate, dvalue, dgate, activation });
            });
    }
    (dvalue, float_tensor(dgate, [rows, gate_dim]))
}

struct Forward<'a, G> {
    value: &'a [f32],
    gate: &'a [f32],
    out: &'a mut [f32],
    activation: PhantomData<G>,
}

impl<G: Gate> Loop for Forward<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        for ((out, value), gate) in self.out.iter_mut().zip(self.value).zip(self.gate) {
            *out = value * G::of::<M>(*gate).0;
        }
    }
}

/// From dy to dvalue in place: with the activation f, dgate = dy value f'(gate) and
/// dvalue = dy f(gate).
struct Backward<'a, G> {
    value: &'a [f32],
    gate: &'a [f32],
    dvalue: &'a mut [f32],
    dgate: &'a mut [f32],
    activation: PhantomData<G>,
}

impl<G: Gate> Loop for Backward<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let outputs = self.dvalue.iter_mut().zip(self.dgate);
        for ((dvalue, dgate), (value, gate)) in outputs.zip(self.value.iter().zip(self.gate)) {
            let (factor, slope) = G::of::<M>(*gate);
            *dgate = *dvalue * value * slope;
            *dvalue *= factor;
        }
    }
}

/// [`Forward`] with a gate for each row.
struct RowForward<'a, G> {
    value: &'a [f32],
    gate: &'a [f32],
    out: &'a mut [f32],
    activation: PhantomData<G>,
}

impl<G: Gate> Loop for RowForward<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let dim = self.value.len() / self.gate.len();
        let rows = self.out.chunks_exact_mut(dim).zip(self.value.chunks_exact(dim));
        for ((out, value), gate) in rows.zip(self.gate) {
            let (factor, _) = G::of::<M>(*gate);
            for (out, value) in out.iter_mut().zip(value) {
                *out = value * factor;
            }
        }
    }
}

/// [`Backward`] with a gate for each row: dgate = f'(gate) dy.value.
struct RowBackward<'a, G> {
    value: &'a [f32],
    gate: &'a [f32],
    dvalue: &'a mut [f32],
    dgate: &'a mut [f32],
    activation: PhantomData<G>,
}

impl<G: Gate> Loop for RowBackward<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let dim = self.value.len() / self.gate.len();
        let rows = self.dvalue.chunks_exact_mut(dim).zip(self.value.chunks_exact(dim));
        for ((dvalue, value), (dgate, gate)) in rows.zip(self.dgate.iter_mut().zip(self.gate)) {
            let (factor, slope) = G::of::<M>(*gate);
            *dgate = slope * dot(value, dvalue);
            for dvalue in dvalue {
                *dvalue *= factor;
            }
        }
    }
}
