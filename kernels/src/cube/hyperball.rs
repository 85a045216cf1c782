//! The hyperball step on a device; see [`crate::hyperball`].

mod kernel;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

use super::{dims, empty, per_row, storage, sum_rows, unshared};

/// Values that a cube works on.
const BLOCK: usize = 1 << 12;

/// The step over each of the groups of `w` [groups, len] as one matrix; in place where nothing else
/// holds the buffer. Norms are sums of squares in f32 by blocks.
pub(crate) fn step(w: CubeTensor, update: CubeTensor, lr: f64) -> CubeTensor {
    let w = unshared(w);
    let [groups, len] = dims(&w);
    if groups * len == 0 {
        return w;
    }
    let client = w.client.clone();
    let blocks = len.div_ceil(BLOCK);
    let (cubes, units) = per_row(&client, groups * blocks, BLOCK);
    let num_units = units.num_elems() as usize;
    let squares = empty(&w, [groups, blocks, 2], DType::F32);
    kernel::squares::launch(
        &client,
        cubes.clone(),
        units,
        w.clone().into_buffer_arg(),
        update.clone().into_buffer_arg(),
        squares.clone().into_buffer_arg(),
        len,
        BLOCK,
        num_units,
        [storage(&w), storage(&update)],
    );
    let squares = sum_rows(squares, DType::F32);
    let moved = empty(&w, [groups, blocks, 1], DType::F32);
    kernel::advance::launch(
        &client,
        cubes.clone(),
        units,
        w.clone().into_buffer_arg(),
        update.clone().into_buffer_arg(),
        squares.clone().into_buffer_arg(),
        moved.clone().into_buffer_arg(),
        lr as f32,
        len,
        BLOCK,
        num_units,
        [storage(&w), storage(&update)],
    );
    let moved = sum_rows(moved, DType::F32);
    kernel::rescale::launch(
        &client,
        cubes,
        units,
        w.clone().into_buffer_arg(),
        squares.into_buffer_arg(),
        moved.into_buffer_arg(),
        len,
        groups * blocks,
        BLOCK,
        num_units,
        storage(&w),
    );
    w
}
