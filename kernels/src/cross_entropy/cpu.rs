//! Chunks of tokens, of which the logits are held, by blocks of the vocabulary.

mod chunk;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use self::chunk::{Chunk, GROUP, Gradients};
use super::{CrossEntropyKernel, HiddenAndHead, Sums};
use crate::flex::{contiguous, dims, float_tensor, floats, floats_mut, integers, unshared};
use crate::parallel::ELEMENT_BLOCK;

/// Logits held at once, unless those of one [`GROUP`] are more.
const BUFFER: usize = 1 << 22;

impl CrossEntropyKernel for Flex {
    fn forward(
        hidden: FlexTensor,
        head: FlexTensor,
        targets: FlexTensor,
        weight: FlexTensor,
        z_coefficient: f64,
    ) -> Sums<Self> {
        let (hidden, head) = (contiguous(hidden), contiguous(head));
        let tokens = tokens("cross_entropy", targets, weight, &head);
        let problem = Problem::new(tokens, &hidden, &head, z_coefficient);
        let losses = problem.run(None);
        problem.sums(&losses)
    }

    fn forward_and_gradients(
        hidden: FlexTensor,
        head: FlexTensor,
        targets: FlexTensor,
        weight: FlexTensor,
        z_coefficient: f64,
    ) -> (Sums<Self>, HiddenAndHead<Self>) {
        let (hidden, head) = (contiguous(hidden), contiguous(head));
        let [t, d] = dims(&hidden);
        let tokens = tokens("cross_entropy", targets, weight, &head);
        let problem = Problem::new(tokens, &hidden, &head, z_coefficient);
        let (mut dhidden, mut dhead) = (vec![0.0; t * d], vec![0.0; d * problem.v]);
        let losses = problem.run(Some(Gradients { hidden: &mut dhidden, head: &mut dhead }));
        let gradients = (float_tensor(dhidden, [t, d]), float_tensor(dhead, [d, problem.v]));
        (problem.sums(&losses), gradients)
    }

    fn scale(gradient: FlexTensor, factor: FlexTensor) -> FlexTensor {
        let factor = floats(&contiguous(factor))[0];
        let mut gradient = unshared(gradient);
        // A loss that is differentiated itself gets 1, and its gradients may be large.
        if factor != 1.0 {
            let blocks = floats_mut(&mut gradient).par_chunks_mut(ELEMENT_BLOCK);
            blocks.for_each(|block| block.iter_mut().for_each(|value| *value *= factor));
        }
        gradient
    }

    fn forward_tokens(
        hidden: FlexTensor,
        head: FlexTensor,
        targets: FlexTensor,
    ) -> (FlexTensor, FlexTensor) {
        let (hidden, head) = (contiguous(hidden), contiguous(head));
        let [t, _] = dims(&hidden);
        let weight = float_tensor(vec![1.0; t], [t]);
        let tokens = tokens("token_losses", targets, weight, &head);
        let losses = Problem::new(tokens, &hidden, &head, 0.0).run(None);
        let (nll, log_sum_exp) = losses.into_iter().map(|loss| (loss.nll, loss.lse)).unzip();
        (float_tensor(nll, [t]), float_tensor(log_sum_exp, [t]))
    }
}

/// A token that counts.
struct Token {
    row: usize,
    target: usize,
    weight: f32,
}

/// The tokens with weight, each target checked to be in the vocabulary of `head`.
fn tokens(op: &str, targets: FlexTensor, weight: FlexTensor, head: &FlexTensor) -> Vec<Token> {
    let [_, v] = dims(head);
    let (targets, weight) = (integers(targets), contiguous(weight));
    let rows = targets.into_iter().zip(floats(&weight)).enumerate();
    rows.filter(|(_, (_, weight))| **weight != 0.0)
        .map(|(row, (id, &weight))| {
            let target = usize::try_from(id).unwrap_or(usize::MAX);
            assert!(
                target < v,
                "{op}: `targets` has id {id} in row {row} with weight, needed an id below {v}"
            );
            Token { row, target, weight }
        })
        .collect()
}

/// Of one token.
#[derive(Clone, Copy, Default)]
struct Loss {
    nll: f32,
    lse: f32,
}

/// The tokens that count.
struct Problem<'a> {
    tokens: Vec<Token>,
    hidden: &'a [f32],
    head: &'a [f32],
    d: usize,
    v: usize,
    z_coefficient: f64,
}

impl<'a> Problem<'a> {
    fn new(tokens: Vec<Token>, hidden: &'a FlexTensor, head: &'a FlexTensor, z: f64) -> Self {
        let [d, v] = dims(head);
        Self { tokens, hidden: floats(hidden), head: floats(head), d, v, z_coefficient: z }
    }

    /// The loss of every token; the gradients of their weighted sum, if wanted, are added up.
    fn run(&self, mut gradients: Option<Gradients<'_>>) -> Vec<Loss> {
        let mut losses = Vec::with_capacity(self.tokens.len());
        let num_tokens = (BUFFER / self.v.max(1) / GROUP).max(1) * GROUP;
        let mut logits = vec![0.0; num_tokens.min(self.tokens.len()) * self.v];
        for tokens in self.tokens.chunks(num_tokens) {
            let mut chunk = Chunk::new(self, tokens, &mut logits[..tokens.len() * self.v]);
            let sums = chunk.fill();
            if let Some(gradients) = &mut gradients {
                chunk.into_gradients(&sums, gradients);
            }
            losses.extend(sums.iter().map(|sums| sums.loss));
        }
        losses
    }

    /// `total`, `cross_entropy_sum` and `z_sum`, added up in f64 from first token to last.
    fn sums(&self, losses: &[Loss]) -> Sums<Flex> {
        let (mut cross_entropy, mut z) = (0.0f64, 0.0f64);
        for (token, loss) in self.tokens.iter().zip(losses) {
            cross_entropy += f64::from(token.weight) * f64::from(loss.nll);
            z += f64::from(token.weight) * f64::from(loss.lse).powi(2);
        }
        let total = cross_entropy + self.z_coefficient * z;
        let [total, cross_entropy, z]: [FloatTensor<Flex>; 3] =
            [total, cross_entropy, z].map(|sum| float_tensor(vec![sum as f32], [1]));
        (total, cross_entropy, z)
    }
}
