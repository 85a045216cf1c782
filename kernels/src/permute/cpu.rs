use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

use super::map::check;
use super::{PermuteKernel, RowIds};
use crate::flex::{contiguous, dims, float_tensor, floats, integers};
use crate::parallel::{for_each_row, rows_from};
use crate::simd::dot;

impl PermuteKernel for Flex {
    fn dispatch(x: FlexTensor, ids: RowIds<Flex>) -> FlexTensor {
        let (x, ids) = (contiguous(x), HostIds::checked("dispatch_rows", ids));
        let ([_, dim], x) = (dims(&x), floats(&x));
        let out = rows_from(ids.rows(), dim, |row| {
            let token = ids.token_of(row)?;
            Some(&x[token * dim..][..dim])
        });
        float_tensor(out, [ids.rows(), dim])
    }

    fn dispatch_backward(ids: RowIds<Flex>, grad: FlexTensor) -> FlexTensor {
        let (grad, ids) = (contiguous(grad), HostIds::checked("dispatch_rows", ids));
        let ([_, dim], dy) = (dims(&grad), floats(&grad));
        if ids.slots == 1 {
            let dx = rows_from(ids.tokens, dim, |token| {
                let row = ids.rows_of(token).next().flatten()?;
                Some(&dy[row * dim..][..dim])
            });
            return float_tensor(dx, [ids.tokens, dim]);
        }
        let mut dx = vec![0.0; ids.tokens * dim];
        for_each_row(&mut dx, dim, |token, dx| {
            for row in ids.rows_of(token).flatten() {
                for (dx, dy) in dx.iter_mut().zip(&dy[row * dim..][..dim]) {
                    *dx += dy;
                }
            }
        });
        float_tensor(dx, [ids.tokens, dim])
    }

    fn combine(y: FlexTensor, weights: FlexTensor, ids: RowIds<Flex>) -> FlexTensor {
        let (y, weights) = (contiguous(y), contiguous(weights));
        let ids = HostIds::checked("combine_rows", ids);
        let ([_, dim], y, weights) = (dims(&y), floats(&y), floats(&weights));
        let mut out = vec![0.0; ids.tokens * dim];
        for_each_row(&mut out, dim, |token, out| {
            let weights = &weights[token * ids.slots..][..ids.slots];
            for (row, weight) in ids.rows_of(token).zip(weights) {
                let Some(row) = row else { continue };
                for (out, y) in out.iter_mut().zip(&y[row * dim..][..dim]) {
                    *out += weight * y;
                }
            }
        });
        float_tensor(out, [ids.tokens, dim])
    }

    fn combine_backward(
        y: FlexTensor,
        weights: FlexTensor,
        ids: RowIds<Flex>,
        grad: FlexTensor,
    ) -> (FlexTensor, FlexTensor) {
        let (y, weights, grad) = (contiguous(y), contiguous(weights), contiguous(grad));
        let ids = HostIds::checked("combine_rows", ids);
        let ([rows, dim], y) = (dims(&y), floats(&y));
        let (weights, dout) = (floats(&weights), floats(&grad));
        let mut dy = vec![0.0; rows * dim];
        for_each_row(&mut dy, dim, |row, dy| {
            let Some(token) = ids.token_of(row) else { return };
            let weight = weights[ids.assignment_of[row] as usize];
            for (dy, dout) in dy.iter_mut().zip(&dout[token * dim..][..dim]) {
                *dy = weight * dout;
            }
        });
        let mut dweights = vec![0.0; ids.row_of.len()];
        for_each_row(&mut dweights, ids.slots, |token, dweights| {
            let dout = &dout[token * dim..][..dim];
            for (row, dweight) in ids.rows_of(token).zip(dweights) {
                if let Some(row) = row {
                    *dweight = dot(dout, &y[row * dim..][..dim]);
                }
            }
        });
        (float_tensor(dy, [rows, dim]), float_tensor(dweights, [ids.tokens, ids.slots]))
    }
}

/// A map on the host whose ids are within bounds and agree in both directions.
pub(crate) struct HostIds {
    tokens: usize,
    slots: usize,
    row_of: Vec<i32>,
    assignment_of: Vec<i32>,
}

impl HostIds {
    pub(crate) fn checked(op: &'static str, ids: RowIds<Flex>) -> Self {
        let [tokens, slots] = dims(&ids.row_of);
        let (row_of, assignment_of) = (integers(ids.row_of), integers(ids.assignment_of));
        if let Err(error) = check(op, &row_of, &assignment_of) {
            panic!("{error}");
        }
        Self { tokens, slots, row_of, assignment_of }
    }

    pub(crate) fn rows(&self) -> usize {
        self.assignment_of.len()
    }

    pub(crate) fn token_of(&self, row: usize) -> Option<usize> {
        let assignment = usize::try_from(self.assignment_of[row]).ok()?;
        Some(assignment / self.slots)
    }

    fn rows_of(&self, token: usize) -> impl Iterator<Item = Option<usize>> {
        let rows = &self.row_of[token * self.slots..][..self.slots];
        rows.iter().map(|&row| usize::try_from(row).ok())
    }
}
