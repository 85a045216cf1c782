use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{CrossEntropyKernel, HiddenAndHead, Sums};
use crate::flex::{contiguous, dims, float_tensor, floats, integers};
use crate::matrix::{Factors, Matrix, multiply};
use crate::simd::{exp_shifted_sum, max};

/// Tokens a task takes at a time: enough that reading the head pays.
const GROUP: usize = 128;

/// Logits held at once, unless [`MIN_GROUPS`] have more.
const BUFFER: usize = 1 << 22;

/// Groups held at once at least, so that they can be shared among threads.
const MIN_GROUPS: usize = 4;

/// Columns of the gradient of the head a task takes at a time.
const COLUMN_BLOCK: usize = 256;

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
        let mut slopes = Slopes::new(&problem);
        let losses = problem.run(Some(&mut slopes));
        let mut dhidden = vec![0.0; t * d];
        for (token, slope) in problem.tokens.iter().zip(slopes.hidden.chunks(d)) {
            dhidden[token.row * d..][..d].copy_from_slice(slope);
        }
        let dhead = slopes.assemble_head(d, problem.v);
        let gradients = (float_tensor(dhidden, [t, d]), float_tensor(dhead, [d, problem.v]));
        (problem.sums(&losses), gradients)
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

#[derive(Clone, Copy, Default)]
struct Loss {
    nll: f32,
    lse: f32,
    /// The sum of the exponentials, each divided by the largest.
    sum: f32,
}

/// The tokens that count, with their hidden states side by side.
struct Problem<'a> {
    tokens: Vec<Token>,
    hidden: Vec<f32>,
    head: &'a [f32],
    d: usize,
    v: usize,
    z_coefficient: f64,
}

impl<'a> Problem<'a> {
    fn new(tokens: Vec<Token>, hidden: &FlexTensor, head: &'a FlexTensor, z: f64) -> Self {
        let ([d, v], all) = (dims(head), floats(hidden));
        let mut hidden = Vec::with_capacity(tokens.len() * d);
        for token in &tokens {
            hidden.extend_from_slice(&all[token.row * d..][..d]);
        }
        Self { tokens, hidden, head: floats(head), d, v, z_coefficient: z }
    }

    /// The loss of every token; with `slopes`, the gradients of their weighted sum are left there.
    fn run(&self, mut slopes: Option<&mut Slopes>) -> Vec<Loss> {
        let (d, v) = (self.d, self.v);
        let mut losses = vec![Loss::default(); self.tokens.len()];
        let chunk = (BUFFER / v.max(1) / GROUP).max(MIN_GROUPS) * GROUP;
        let mut logits = vec![0.0; chunk.min(self.tokens.len()) * v];
        for (i, tokens) in self.tokens.chunks(chunk).enumerate() {
            let range = i * chunk..i * chunk + tokens.len();
            let hidden = &self.hidden[range.start * d..range.end * d];
            let losses = &mut losses[range.clone()];
            let logits = &mut logits[..tokens.len() * v];
            let groups = (tokens.par_chunks(GROUP), hidden.par_chunks(GROUP * d))
                .into_par_iter()
                .zip((losses.par_chunks_mut(GROUP), logits.par_chunks_mut(GROUP * v)));
            if let Some(slopes) = slopes.as_deref_mut() {
                let dhidden = &mut slopes.hidden[range.start * d..range.end * d];
                groups.zip(dhidden.par_chunks_mut(GROUP * d)).for_each(
                    |(((tokens, hidden), (losses, logits)), dhidden)| {
                        self.losses(tokens, hidden, losses, logits);
                        self.slopes(tokens, losses, logits);
                        let slopes = Matrix::new(logits, tokens.len(), v);
                        let head = Matrix::new(self.head, d, v).transposed();
                        multiply(dhidden, Factors::REPLACE, slopes, head);
                    },
                );
                let hidden = Matrix::new(hidden, tokens.len(), d);
                slopes.add_head(hidden, Matrix::new(logits, tokens.len(), v));
            } else {
                groups.for_each(|((tokens, hidden), (losses, logits))| {
                    self.losses(tokens, hidden, losses, logits);
                });
            }
        }
        losses
    }

    /// Losses of a group; leaves e^(logit - max) in `logits`.
    fn losses(&self, tokens: &[Token], hidden: &[f32], losses: &mut [Loss], logits: &mut [f32]) {
        let (d, v) = (self.d, self.v);
        let hidden = Matrix::new(hidden, tokens.len(), d);
        multiply(logits, Factors::REPLACE, hidden, Matrix::new(self.head, d, v));
        for ((token, loss), logits) in tokens.iter().zip(losses).zip(logits.chunks_mut(v)) {
            let largest = max(logits);
            let target = logits[token.target] - largest;
            let sum = exp_shifted_sum(logits, largest);
            *loss = Loss { nll: sum.ln() - target, lse: sum.ln() + largest, sum };
        }
    }

    /// From e^(logit - max) to the gradient of the logits:
    /// `w ((1 + 2 z_coefficient lse) softmax - onehot(target))`.
    fn slopes(&self, tokens: &[Token], losses: &[Loss], logits: &mut [f32]) {
        for ((token, loss), logits) in tokens.iter().zip(losses).zip(logits.chunks_mut(self.v)) {
            let pull = 1.0 + 2.0 * self.z_coefficient as f32 * loss.lse;
            let scale = token.weight * pull / loss.sum;
            logits.iter_mut().for_each(|logit| *logit *= scale);
            logits[token.target] -= token.weight;
        }
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

/// The gradients of the weighted sum, as the tasks write them.
struct Slopes {
    /// One row for each token that counts.
    hidden: Vec<f32>,
    /// Blocks of columns, each [hidden, columns].
    head: Vec<Vec<f32>>,
}

impl Slopes {
    fn new(problem: &Problem) -> Self {
        let columns = (0..problem.v).step_by(COLUMN_BLOCK);
        let width = |first| COLUMN_BLOCK.min(problem.v - first);
        Self {
            hidden: vec![0.0; problem.hidden.len()],
            head: columns.map(|first| vec![0.0; problem.d * width(first)]).collect(),
        }
    }

    /// Adds `hidden^T logits`, where `logits` holds the gradient of the logits.
    fn add_head(&mut self, hidden: Matrix, logits: Matrix) {
        self.head.par_iter_mut().enumerate().for_each(|(i, block)| {
            let columns = logits.columns(i * COLUMN_BLOCK, COLUMN_BLOCK);
            multiply(block, Factors::ADD, hidden.transposed(), columns);
        });
    }

    /// The blocks as one matrix [hidden, vocabulary].
    fn assemble_head(&self, d: usize, v: usize) -> Vec<f32> {
        let mut head = Vec::with_capacity(d * v);
        for row in 0..d {
            for block in &self.head {
                let width = block.len() / d;
                head.extend_from_slice(&block[row * width..][..width]);
            }
        }
        head
    }
}
