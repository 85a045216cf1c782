//! The logits of some tokens, in tiles of [`GROUP`] tokens by [`BLOCK`] entries of the vocabulary.

use rayon::prelude::*;

use super::{Loss, Problem, Token};
use crate::matrix::{Factors, Matrix, MatrixMut, multiply, multiply_into};
use crate::parallel::sum_in_order;
use crate::simd::{Loop, MulAdd, exp_shifted_sum, max, vectorised};

/// Rows of a tile: enough that reading the head for them pays.
pub(super) const GROUP: usize = 96;

/// Columns of a tile.
const BLOCK: usize = 512;

/// Tasks that share the gradients of the hidden states of a chunk, about: where a chunk has fewer
/// groups, each takes a part of the vocabulary, and the parts are added in order.
const TASKS: usize = 16;

/// The results of a backward pass; both hold zeros at first.
pub(super) struct Gradients<'a> {
    /// [tokens, hidden], those of tokens that do not count too.
    pub(super) hidden: &'a mut [f32],
    /// [hidden, vocabulary].
    pub(super) head: &'a mut [f32],
}

/// What a token has of a tile.
#[derive(Clone, Copy)]
struct Part {
    /// The largest logit.
    max: f32,
    /// The sum of `e^(logit - max)`.
    sum: f32,
}

/// What a token has of all tiles.
pub(super) struct TokenSums {
    pub(super) loss: Loss,
    /// What turns `e^(logit - max)` of each block into the gradient of the logit.
    factors: Vec<f32>,
}

/// Tokens that count, with room for their logits.
pub(super) struct Chunk<'a> {
    problem: &'a Problem<'a>,
    tokens: &'a [Token],
    /// The hidden states side by side.
    hidden: Vec<f32>,
    /// By group, then by block.
    tiles: Vec<Vec<&'a mut [f32]>>,
}

impl<'a> Chunk<'a> {
    /// `logits` has room for all tokens.
    pub(super) fn new(
        problem: &'a Problem<'a>,
        tokens: &'a [Token],
        logits: &'a mut [f32],
    ) -> Self {
        let (d, v) = (problem.d, problem.v);
        let mut hidden = Vec::with_capacity(tokens.len() * d);
        for token in tokens {
            hidden.extend_from_slice(&problem.hidden[token.row * d..][..d]);
        }
        let groups = logits.chunks_mut(GROUP * v);
        let tiles = groups.map(|group| {
            let rows = group.len() / v;
            group.chunks_mut(rows * BLOCK).collect()
        });
        Self { problem, tokens, hidden, tiles: tiles.collect() }
    }

    /// Leaves `e^(logit - max)` in the tiles, with the largest logit of the token's row in a tile.
    pub(super) fn fill(&mut self) -> Vec<TokenSums> {
        let (problem, groups) = (self.problem, (self.tokens, &self.hidden[..]));
        let tiles = self.tiles.iter_mut().enumerate().flat_map(|(i, group)| {
            let (tokens, hidden) = group_of(groups, problem.d, i);
            group.iter_mut().enumerate().map(move |(block, tile)| (tokens, hidden, block, tile))
        });
        let tiles: Vec<_> = tiles.collect();
        let parts: Vec<(Vec<Part>, Vec<Option<f32>>)> = tiles
            .into_par_iter()
            .with_max_len(1)
            .map(|(tokens, hidden, block, tile)| problem.fill_tile(tokens, hidden, block, tile))
            .collect();
        let blocks = problem.v.div_ceil(BLOCK);
        let tokens = self.tokens.chunks(GROUP).zip(parts.chunks(blocks));
        tokens.flat_map(|(tokens, parts)| problem.sum_parts(tokens, parts)).collect()
    }

    /// Turns the tiles into the gradients of the logits, and adds what follows from them.
    pub(super) fn into_gradients(self, sums: &[TokenSums], gradients: &mut Gradients<'_>) {
        let (d, v) = (self.problem.d, self.problem.v);
        let groups = (self.tokens, &self.hidden[..]);
        let tiles: Vec<Vec<&[f32]>> = {
            let head = MatrixMut::new(gradients.head, d, v).column_blocks(BLOCK);
            let blocks = by_block(self.tiles).into_iter().zip(head).enumerate();
            let blocks: Vec<_> = blocks.collect();
            let slopes =
                blocks.into_par_iter().with_max_len(1).map(|(block, (tiles, mut head))| {
                    let tiles = tiles.into_iter().zip(sums.chunks(GROUP)).enumerate();
                    let slopes = tiles.map(|(group, (tile, sums))| {
                        let (tokens, hidden) = group_of(groups, d, group);
                        let slopes = slopes(tokens, sums, block, tile);
                        let columns = slopes.len() / tokens.len();
                        let hidden = Matrix::new(hidden, tokens.len(), d).transposed();
                        let slopes_matrix = Matrix::new(slopes, tokens.len(), columns);
                        multiply_into(&mut head, Factors::ADD, hidden, slopes_matrix);
                        slopes
                    });
                    slopes.collect()
                });
            slopes.collect()
        };
        let num_groups = self.tokens.len().div_ceil(GROUP);
        let blocks = tiles.len().div_ceil(TASKS.div_ceil(num_groups));
        let parts: Vec<Vec<f32>> = (0..num_groups * tiles.len().div_ceil(blocks))
            .into_par_iter()
            .with_max_len(1)
            .map(|task| {
                let (group, part) = (task % num_groups, task / num_groups);
                let first = part * blocks;
                let tiles = tiles[first..tiles.len().min(first + blocks)].iter();
                let slopes = (first..).zip(tiles.map(|groups| groups[group]));
                let num_tokens = group_of(groups, d, group).0.len();
                self.problem.hidden_gradients(num_tokens, slopes)
            })
            .collect();
        for (group, tokens) in self.tokens.chunks(GROUP).enumerate() {
            let parts = parts.iter().skip(group).step_by(num_groups);
            let dhidden = sum_in_order(tokens.len() * d, parts);
            for (token, dhidden) in tokens.iter().zip(dhidden.chunks(d)) {
                gradients.hidden[token.row * d..][..d].copy_from_slice(dhidden);
            }
        }
    }
}

impl Problem<'_> {
    /// The sums of a tile's rows, and the logits of targets in it.
    fn fill_tile(
        &self,
        tokens: &[Token],
        hidden: &[f32],
        block: usize,
        tile: &mut [f32],
    ) -> (Vec<Part>, Vec<Option<f32>>) {
        let (first, columns) = (block * BLOCK, tile.len() / tokens.len());
        let head = Matrix::new(self.head, self.d, self.v).columns(first, BLOCK);
        multiply(tile, Factors::REPLACE, Matrix::new(hidden, tokens.len(), self.d), head);
        let rows = tokens.iter().zip(tile.chunks_exact_mut(columns));
        rows.map(|(token, logits)| {
            let target = token.target.checked_sub(first).and_then(|i| logits.get(i).copied());
            let max = max(logits);
            (Part { max, sum: exp_shifted_sum(logits, max) }, target)
        })
        .unzip()
    }

    /// Adds up what each token has of the tiles of its group.
    fn sum_parts(
        &self,
        tokens: &[Token],
        parts: &[(Vec<Part>, Vec<Option<f32>>)],
    ) -> Vec<TokenSums> {
        let of_token = |(i, token): (usize, &Token)| {
            let parts_of = || parts.iter().map(|(parts, _)| parts[i]);
            let largest = parts_of().fold(f32::NEG_INFINITY, |max, part| max.max(part.max));
            let shrunk = |part: Part| (part.max - largest).exp();
            let sum: f32 = parts_of().map(|part| part.sum * shrunk(part)).sum();
            let target = parts[token.target / BLOCK].1[i].expect("the target's tile has it");
            let lse = sum.ln() + largest;
            let pull = 1.0 + 2.0 * self.z_coefficient as f32 * lse;
            let scale = token.weight * pull / sum;
            TokenSums {
                loss: Loss { nll: sum.ln() - (target - largest), lse },
                factors: parts_of().map(|part| scale * shrunk(part)).collect(),
            }
        };
        tokens.iter().enumerate().map(of_token).collect()
    }

    /// `slopes head^T` [tokens, hidden] of a group, over some blocks of the vocabulary.
    fn hidden_gradients<'s>(
        &self,
        num_tokens: usize,
        slopes: impl Iterator<Item = (usize, &'s [f32])>,
    ) -> Vec<f32> {
        let mut sum = vec![0.0; num_tokens * self.d];
        for (block, slopes) in slopes {
            let head = Matrix::new(self.head, self.d, self.v).columns(block * BLOCK, BLOCK);
            let slopes = Matrix::new(slopes, num_tokens, slopes.len() / num_tokens);
            multiply(&mut sum, Factors::ADD, slopes, head.transposed());
        }
        sum
    }
}

/// The tokens and hidden states of group `i`.
fn group_of<'a>(
    (tokens, hidden): (&'a [Token], &'a [f32]),
    d: usize,
    i: usize,
) -> (&'a [Token], &'a [f32]) {
    let range = i * GROUP..tokens.len().min((i + 1) * GROUP);
    (&tokens[range.clone()], &hidden[range.start * d..range.end * d])
}

/// From tiles by group to tiles by block.
fn by_block(groups: Vec<Vec<&mut [f32]>>) -> Vec<Vec<&mut [f32]>> {
    let num_blocks = groups.first().map_or(0, Vec::len);
    let mut blocks: Vec<Vec<&mut [f32]>> = (0..num_blocks).map(|_| Vec::new()).collect();
    for group in groups {
        for (block, tile) in blocks.iter_mut().zip(group) {
            block.push(tile);
        }
    }
    blocks
}

/// From `e^(logit - max)` to the gradient of the logits:
/// `w ((1 + 2 z_coefficient lse) softmax - onehot(target))`.
fn slopes<'a>(
    tokens: &[Token],
    sums: &[TokenSums],
    block: usize,
    tile: &'a mut [f32],
) -> &'a [f32] {
    let columns = tile.len() / tokens.len();
    let rows = tile.chunks_exact_mut(columns);
    for ((token, sums), values) in tokens.iter().zip(sums).zip(rows) {
        vectorised(Scale { values, factor: sums.factors[block] });
        let target = token.target.checked_sub(block * BLOCK);
        if let Some(slope) = target.and_then(|i| values.get_mut(i)) {
            *slope -= token.weight;
        }
    }
    tile
}

struct Scale<'a> {
    values: &'a mut [f32],
    factor: f32,
}

impl Loop for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        self.values.iter_mut().for_each(|value| *value *= self.factor);
    }
}
