use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

use super::{HostIds, PermuteKernel, RowIds};
use crate::flex::{contiguous, dims, float_tensor, floats, floats_mut, unshared};
use crate::parallel::for_each_row_with;
use crate::rows;
use crate::simd::{Loop, MulAdd, dot, vectorised};

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
        let (weights, grad, ids) = (contiguous(weights), contiguous(grad), ids.contiguous());
        let ids = HostIds::checked("combine_rows", &ids);
        let ([_, dim], weights, dout) = (dims(&grad), floats(&weights), floats(&grad));
        // Of each row with the gradient of its token's sum.
        let mut products = vec![0.0; ids.rows()];
        let mut rest = products.as_mut_slice();
        let mut first = 0;
        let mut dparts = Vec::new();
        for part in parts {
            // A part is read here for the last time: its gradient takes its place.
            let mut part = unshared(part);
            let [rows, _] = dims(&part);
            let products = rest.split_off_mut(..rows).expect("a product for each row");
            for_each_row_with(floats_mut(&mut part), dim, products, |row, y, product| {
                match ids.token_of(first + row) {
                    Some(token) => {
                        let weight = weights[ids.assignment_of[first + row] as usize];
                        let dout = row_of(dout, dim, token);
                        *product = vectorised(Reweighted { y, dout, weight });
                    }
                    None => y.fill(0.0),
                }
            });
            dparts.push(part);
            first += rows;
        }
        let dweights =
            ids.row_of.iter().map(|&row| usize::try_from(row).map_or(0.0, |row| products[row]));
        (dparts, float_tensor(dweights.collect(), [ids.tokens, ids.slots]))
    }
}

/// Replaces `y` by `weight * dout` and returns the product of the two.
struct Reweighted<'a> {
    y: &'a mut [f32],
    dout: &'a [f32],
    weight: f32,
}

impl Loop for Reweighted<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<M: MulAdd>(self) -> f32 {
        let product = dot(self.dout, self.y);
        for (y, dout) in self.y.iter_mut().zip(self.dout) {
            *y = self.weight * dout;
        }
        product
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
