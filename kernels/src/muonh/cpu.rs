use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::DType;
use half::bf16;
use rayon::prelude::*;

use super::{MuonHKernel, MuonHNorm, MuonHOptions};
use crate::bf16::Stored;
use crate::flex::{contiguous, dims, elements_mut, floats, floats_mut, unshared, unshared_of};
use crate::hyperball;
use crate::newton_schulz::cpu::for_each_matrix;
use crate::parallel::ELEMENT_BLOCK;

impl MuonHKernel for Flex {
    fn step(
        w: FlexTensor,
        grad: FlexTensor,
        momentum: FlexTensor,
        options: &MuonHOptions,
    ) -> (FlexTensor, FlexTensor) {
        match momentum.dtype() {
            DType::BF16 => step::<bf16>(w, grad, momentum, options),
            _ => step::<f32>(w, grad, momentum, options),
        }
    }
}

fn step<M: Stored>(
    w: FlexTensor,
    grad: FlexTensor,
    momentum: FlexTensor,
    options: &MuonHOptions,
) -> (FlexTensor, FlexTensor) {
    let [_, p, q] = dims(&w);
    let (mut w, mut momentum) = (unshared(w), unshared_of::<M>(momentum));
    let (weights, stored) = (floats_mut(&mut w), elements_mut::<M>(&mut momentum));
    match options.norm {
        MuonHNorm::PerMatrix => {
            let grad = contiguous(grad);
            per_matrix(weights, floats(&grad), stored, [p, q], options);
        }
        MuonHNorm::Joint => {
            let mut update = unshared(grad);
            joint(weights, floats_mut(&mut update), stored, [p, q], options);
        }
    }
    (w, momentum)
}

fn per_matrix<M: Stored>(
    w: &mut [f32],
    grad: &[f32],
    momentum: &mut [M],
    [p, q]: [usize; 2],
    options: &MuonHOptions,
) {
    let len = (p * q).max(1);
    let matrices =
        w.par_chunks_mut(len).zip(grad.par_chunks(len).zip(momentum.par_chunks_mut(len)));
    for_each_matrix(matrices, [p, q], options.precision, |work, (w, (grad, momentum))| {
        let mut update = std::mem::take(&mut work.update);
        update.copy_from_slice(grad);
        momentum_step(&mut update, momentum, options.momentum as f32);
        work.orthogonalise(&mut update);
        hyperball::step(w, &update, options.lr);
        work.update = update;
    });
}

/// The gradient, `update` on entry, is overwritten by the update.
fn joint<M: Stored>(
    w: &mut [f32],
    update: &mut [f32],
    momentum: &mut [M],
    [p, q]: [usize; 2],
    options: &MuonHOptions,
) {
    let len = (p * q).max(1);
    let matrices = update.par_chunks_mut(len).zip(momentum.par_chunks_mut(len));
    for_each_matrix(matrices, [p, q], options.precision, |work, (update, momentum)| {
        momentum_step(update, momentum, options.momentum as f32);
        work.orthogonalise(update);
    });
    hyperball::step(w, update, options.lr);
}

/// `m = decay m + g`, then `g = decay m + g`; what is stored of m is rounded after both.
fn momentum_step<M: Stored>(grad: &mut [f32], momentum: &mut [M], decay: f32) {
    let blocks = grad.par_chunks_mut(ELEMENT_BLOCK).zip(momentum.par_chunks_mut(ELEMENT_BLOCK));
    blocks.for_each(|(grad, momentum)| {
        for (grad, stored) in grad.iter_mut().zip(momentum) {
            let momentum = stored.load() * decay + *grad;
            *grad += momentum * decay;
            *stored = M::store(momentum);
        }
    });
}
