use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{MuonHKernel, MuonHNorm, MuonHOptions};
use crate::flex::{contiguous, dims, floats, floats_mut, unshared};
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
        let [_, p, q] = dims(&w);
        let [mut w, mut momentum] = [w, momentum].map(unshared);
        let weights = floats_mut(&mut w);
        match options.norm {
            MuonHNorm::PerMatrix => {
                let grad = contiguous(grad);
                per_matrix(weights, floats(&grad), floats_mut(&mut momentum), [p, q], options);
            }
            MuonHNorm::Joint => {
                let mut update = unshared(grad);
                let update = floats_mut(&mut update);
                joint(weights, update, floats_mut(&mut momentum), [p, q], options);
            }
        }
        (w, momentum)
    }
}

fn per_matrix(
    w: &mut [f32],
    grad: &[f32],
    momentum: &mut [f32],
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
fn joint(
    w: &mut [f32],
    update: &mut [f32],
    momentum: &mut [f32],
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

/// `m = decay m + g`, then `g = decay m + g`.
fn momentum_step(grad: &mut [f32], momentum: &mut [f32], decay: f32) {
    let blocks = grad.par_chunks_mut(ELEMENT_BLOCK).zip(momentum.par_chunks_mut(ELEMENT_BLOCK));
    blocks.for_each(|(grad, momentum)| {
        for (grad, momentum) in grad.iter_mut().zip(momentum) {
            *momentum = *momentum * decay + *grad;
            *grad += *momentum * decay;
        }
    });
}
