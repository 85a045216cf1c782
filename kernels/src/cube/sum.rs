use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::args::{dims, empty, reshaped, storage, zeros};
use super::launch::per_element;

/// Rows that one unit adds up; sums of more rows are formed in several passes.
pub(crate) const ROW_BLOCK: usize = 64;

/// The sums over `n` of contiguous f32 values [groups, n, dim] as values of `dtype` [groups, dim].
///
/// Blocks of rows are added up, then blocks of their sums, in order.
pub(crate) fn sum_rows(mut values: CubeTensor, dtype: DType) -> CubeTensor {
    loop {
        let [groups, rows, dim] = dims(&values);
        if groups * rows * dim == 0 {
            return zeros(&values, [groups, dim], dtype);
        }
        let blocks = rows.div_ceil(ROW_BLOCK);
        let is_last = blocks == 1;
        let sums = empty(&values, [groups, blocks, dim], if is_last { dtype } else { DType::F32 });
        let (cubes, units) = per_element(&values.client, groups * blocks * dim);
        let to = storage(&sums);
        sum_blocks::launch(
            &values.client.clone(),
            cubes,
            units,
            values.into_buffer_arg(),
            sums.clone().into_buffer_arg(),
            rows,
            blocks,
            dim,
            ROW_BLOCK,
            to,
        );
        if is_last {
            return reshaped(sums, [groups, dim]);
        }
        values = sums;
    }
}

/// A unit for each column of a block.
#[cube(launch)]
#[allow(clippy::too_many_arguments, reason = "the arguments of a kernel")]
fn sum_blocks<F: Float>(
    values: &[f32],
    sums: &mut [F],
    rows: usize,
    blocks: usize,
    dim: usize,
    #[comptime] row_block: usize,
    #[define(F)] _to: ElemType,
) {
    if ABSOLUTE_POS >= sums.len() {
        terminate!();
    }
    let column = ABSOLUTE_POS % dim;
    let block = ABSOLUTE_POS / dim;
    let (group, block) = (block / blocks, block % blocks);
    let first = block * row_block;
    let end = min(first + row_block, rows);
    let mut sum = 0.0f32;
    for row in first..end {
        sum += values[(group * rows + row) * dim + column];
    }
    sums[ABSOLUTE_POS] = F::cast_from(sum);
}
