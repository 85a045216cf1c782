use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

use super::{HostIds, PermuteKernel, RowIds};
use crate::flex::{contiguous, dims, float_tensor, floats};
use crate::rows::{self, Scaled};

impl PermuteKernel for Flex {
    fn dispatch(x: FlexTensor, ids: RowIds<Flex>) -> FlexTensor {
        let (x, ids) = (contiguous(x), ids.contiguous());
        let ids = HostIds::checked("dispatch_rows", &ids);
        let ([_, dim], x) = (dims(&x), floats(&x));
        let out = rows::copies(ids.rows(), dim, |row| Some(row_of(x, dim, ids.token_of(row)?)));
        float_tensor(out, [ids.rows(), dim])
    }

    fn dispatch_backward(ids: RowIds<Flex>, grad: FlexTensor) -> FlexTensor {
        let (grad, ids) = (contiguous(grad), ids.contiguous());
        let ids = HostIds::checked("dispatch_rows", &ids);
        let ([_, dim], dy) = (dims(&grad), floats(&grad));
        let dx = if ids.slots == 1 {
            let source = |token| Some(row_of(dy, dim, ids.rows_of(token).next()??));
            rows::copies(ids.tokens, dim, source)
        } else {
            rows::sums(ids.tokens, dim, ids.slots, |token, terms| {
                terms.extend(ids.rows_of(token).flatten().map(|row| (1.0, row_of(dy, dim, row))));
            })
        };
        float_tensor(dx, [ids.tokens, dim])
    }

    fn combine(parts: Vec<FlexTensor>, weights: FlexTensor, ids: RowIds<Flex>) -> FlexTensor {
        let (parts, weights) = (Parts::new(parts), contiguous(weights));
        let ids = ids.contiguous();
        let ids = HostIds::checked("combine_rows", &ids);
        let (slices, weights) = (parts.slices(), floats(&weights));
        let out = rows::sums(ids.tokens, parts.dim, ids.slots, |token, terms| {
            let weights = &weights[token * ids.slots..][..ids.slots];
            let kept = ids.rows_of(token).zip(weights);
            terms.extend(kept.filter_map(|(row, weight)| Some((*weight, slices.row(row?)))));
        });
        float_tensor(out, [ids.tokens, parts.dim])
    }

    fn combine_backward(
        parts: Vec<FlexTensor>,
        weights: FlexTensor,
        ids: RowIds<Flex>,
        grad: FlexTensor,
    ) -> (Vec<FlexTensor>, FlexTensor) {
        let (parts, weights, grad) = (Parts::new(parts), contiguous(weights), contiguous(grad));
        let ids = ids.contiguous();
        let ids = HostIds::checked("combine_rows", &ids);
        let (dim, slices) = (parts.dim, parts.slices());
        let (weights, dout) = (floats(&weights), floats(&grad));
        let mut dparts = Vec::new();
        // In the order of rows, which are read and written once and one after the other.
        let mut products = Vec::with_capacity(ids.rows());
        for (part, first) in slices.parts.iter().zip(&slices.starts) {
            let rows = part.len().checked_div(dim).unwrap_or(0);
            let (dy, of_part) = rows::scaled(rows, dim, |row| {
                let token = ids.token_of(first + row)?;
                let factor = weights[ids.assignment_of[first + row] as usize];
                let other = row_of(part, dim, row);
                Some(Scaled { factor, row: row_of(dout, dim, token), other })
            });
            products.extend(of_part);
            dparts.push(float_tensor(dy, [rows, dim]));
        }
        let dweights =
            ids.row_of.iter().map(|&row| usize::try_from(row).map_or(0.0, |row| products[row]));
        (dparts, float_tensor(dweights.collect(), [ids.tokens, ids.slots]))
    }
}

fn row_of(values: &[f32], dim: usize, row: usize) -> &[f32] {
    &values[row * dim..][..dim]
}

/// Tensors whose rows follow each other.
struct Parts {
    parts: Vec<FlexTensor>,
    dim: usize,
}

impl Parts {
    fn new(parts: Vec<FlexTensor>) -> Self {
        let [_, dim] = dims(&parts[0]);
        Self { parts: parts.into_iter().map(contiguous).collect(), dim }
    }

    fn slices(&self) -> Slices<'_> {
        let parts: Vec<&[f32]> = self.parts.iter().map(floats).collect();
        let mut starts = vec![0];
        for part in &self.parts {
            let [rows, _] = dims(part);
            starts.push(starts[starts.len() - 1] + rows);
        }
        Slices { parts, starts, dim: self.dim }
    }
}

/// The values of [`Parts`].
struct Slices<'a> {
    parts: Vec<&'a [f32]>,
    /// The first row of each part, and the end of the last.
    starts: Vec<usize>,
    dim: usize,
}

impl<'a> Slices<'a> {
    fn row(&self, row: usize) -> &'a [f32] {
        // Counted, not searched for: a branch on it would be guessed wrong half of the time.
        let inner = &self.starts[1..self.parts.len()];
        let part = inner.iter().map(|start| usize::from(row >= *start)).sum::<usize>();
        row_of(self.parts[part], self.dim, row - self.starts[part])
    }
}
