use std::marker::PhantomData;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{Activation, GatedKernel};
use crate::flex::{contiguous, dims, float_tensor, floats};
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
    if gate_dim == dim {
        out.par_chunks_mut(ELEMENT_BLOCK)
            .zip(value.par_chunks(ELEMENT_BLOCK))
            .zip(gate.par_chunks(ELEMENT_BLOCK))
            .for_each(|((out, value), gate)| {
                vectorised(Forward::<G> { value, gate, out, activation: PhantomData });
            });
    } else {
        let block = (ROW_BLOCK * dim).max(1);
        out.par_chunks_mut(block)
            .zip(value.par_chunks(block))
            .zip(gate.par_chunks(ROW_BLOCK))
            .for_each(|((out, value), gate)| {
                let rows = out.chunks_mut(dim).zip(value.chunks(dim)).zip(gate);
                for ((out, value), &gate) in rows {
                    let (factor, _) = vectorised(One::<G>(gate, PhantomData));
                    for (out, value) in out.iter_mut().zip(value) {
                        *out = value * factor;
                    }
                }
            });
    }
    float_tensor(out, [rows, dim])
}

fn backward<G: Gate>(
    value: FlexTensor,
    gate: FlexTensor,
    grad: FlexTensor,
) -> (FlexTensor, FlexTensor) {
    let (value, gate, grad) = (contiguous(value), contiguous(gate), contiguous(grad));
    let ([rows, dim], [_, gate_dim]) = (dims(&value), dims(&gate));
    let (mut dvalue, mut dgate) = (vec![0.0; rows * dim], vec![0.0; rows * gate_dim]);
    let (value, gate, grad) = (floats(&value), floats(&gate), floats(&grad));
    if gate_dim == dim {
        (dvalue.par_chunks_mut(ELEMENT_BLOCK), dgate.par_chunks_mut(ELEMENT_BLOCK))
            .into_par_iter()
            .zip(value.par_chunks(ELEMENT_BLOCK))
            .zip(gate.par_chunks(ELEMENT_BLOCK))
            .zip(grad.par_chunks(ELEMENT_BLOCK))
            .for_each(|((((dvalue, dgate), value), gate), grad)| {
                let activation = PhantomData::<G>;
                vectorised(BackwardLoop { value, gate, grad, dvalue, dgate, activation });
            });
    } else {
        let block = (ROW_BLOCK * dim).max(1);
        (dvalue.par_chunks_mut(block), dgate.par_chunks_mut(ROW_BLOCK))
            .into_par_iter()
            .zip(value.par_chunks(block))
            .zip(gate.par_chunks(ROW_BLOCK))
            .zip(grad.par_chunks(block))
            .for_each(|((((dvalue, dgate), value), gate), grad)| {
                let rows = dvalue.chunks_mut(dim).zip(value.chunks(dim)).zip(grad.chunks(dim));
                for (((dvalue, value), grad), (dgate, &gate)) in
                    rows.zip(dgate.iter_mut().zip(gate))
                {
                    let (factor, slope) = vectorised(One::<G>(gate, PhantomData));
                    *dgate = slope * dot(value, grad);
                    for (dvalue, grad) in dvalue.iter_mut().zip(grad) {
                        *dvalue = grad * factor;
                    }
                }
            });
    }
    (float_tensor(dvalue, [rows, dim]), float_tensor(dgate, [rows, gate_dim]))
}

/// The activation of a single gate, rounded as in the loops.
struct One<G>(f32, PhantomData<G>);

impl<G: Gate> Loop for One<G> {
    type Output = (f32, f32);

    #[inline(always)]
    fn run<M: MulAdd>(self) -> (f32, f32) {
        G::of::<M>(self.0)
    }
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

/// With the activation f: dvalue = dy f(gate), dgate = dy value f'(gate).
struct BackwardLoop<'a, G> {
    value: &'a [f32],
    gate: &'a [f32],
    grad: &'a [f32],
    dvalue: &'a mut [f32],
    dgate: &'a mut [f32],
    activation: PhantomData<G>,
}

impl<G: Gate> Loop for BackwardLoop<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let outputs = self.dvalue.iter_mut().zip(self.dgate);
        let inputs = self.value.iter().zip(self.gate).zip(self.grad);
        for ((dvalue, dgate), ((value, gate), grad)) in outputs.zip(inputs) {
            let (factor, slope) = G::of::<M>(*gate);
            *dvalue = grad * factor;
            *dgate = grad * value * slope;
        }
    }
}
