//! Products by tiles of [`SIDE`] rows and columns, each the work of one cube of [`UNITS`] units.
//!
//! Tiles of both factors lie in shared memory, [`DEPTH`] steps of the inner dimension at a time. A
//! unit forms [`SUMS`] sums, those of its [`PER_UNIT`] rows with its [`PER_UNIT`] columns, which lie
//! [`SPAN`] apart; see [`line`].

use cubecl::prelude::*;

/// Rows and columns of a tile.
pub(crate) const SIDE: usize = 64;

/// Steps of the inner dimension that shared memory holds.
pub(crate) const DEPTH: usize = 16;

/// Units along a side of a tile.
pub(crate) const SPAN: usize = 16;

/// Units of a cube.
pub(crate) const UNITS: usize = SPAN * SPAN;

/// Rows of a tile that a unit works on, and columns.
pub(crate) const PER_UNIT: usize = SIDE / SPAN;

/// Sums of a unit.
pub(crate) const SUMS: usize = PER_UNIT * PER_UNIT;

/// Values from one depth of a tile to the next; odd, so that neighbours in both directions lie in
/// different banks.
pub(crate) const PITCH: usize = SIDE + 1;

/// Where the lines of a factor lie: its rows if it stands left, its columns if it stands right.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Lines {
    /// The place of the first value of the first line.
    pub(crate) start: usize,
    /// How many lines there are; those of a tile beyond are zero.
    pub(crate) count: usize,
    /// The values of a line.
    pub(crate) depth: usize,
    /// From a line to the next, or, where lines are strided, from a value of a line to the next.
    pub(crate) stride: usize,
    /// Whether the values of a line are neighbours; else the first values of all lines are, then
    /// the second ones.
    #[cube(comptime)]
    pub(crate) contiguous: bool,
}

/// Shared memory for a tile, value by value of its lines.
#[cube]
pub(crate) fn tile() -> Shared<[f32]> {
    Shared::<[f32]>::new_slice(DEPTH * PITCH)
}

/// Sums of a unit, all 0.
#[cube]
pub(crate) fn zeros(#[comptime] len: usize) -> Array<f32> {
    let mut sums = Array::<f32>::new(len);
    #[unroll]
    for i in 0..len {
        sums[i] = 0.0;
    }
    sums
}

/// The row of a unit's sums `index * PER_UNIT` and on.
#[cube]
pub(crate) fn row(#[comptime] index: usize) -> usize {
    UNIT_POS as usize / SPAN + index * SPAN
}

/// The column of the sums at `index` of each row.
#[cube]
pub(crate) fn column(#[comptime] index: usize) -> usize {
    UNIT_POS as usize % SPAN + index * SPAN
}

/// Copies [`SIDE`] lines from `first_line` on, from `first` on of each; zeros where there are none.
#[cube]
pub(crate) fn load<F: Float>(
    values: &[F],
    lines: &Lines,
    first_line: usize,
    first: usize,
    tile: &mut Shared<[f32]>,
) {
    for step in 0..SIDE * DEPTH / UNITS {
        let index = step * UNITS + UNIT_POS as usize;
        // Neighbouring units read neighbouring values.
        let (line, depth) = if comptime!(lines.contiguous) {
            (index / DEPTH, index % DEPTH)
        } else {
            (index % SIDE, index / SIDE)
        };
        let mut value = 0.0f32;
        if first_line + line < lines.count && first + depth < lines.depth {
            let (line, depth) = (first_line + line, first + depth);
            let at = if comptime!(lines.contiguous) {
                lines.start + line * lines.stride + depth
            } else {
                lines.start + depth * lines.stride + line
            };
            value = f32::cast_from(values[at]);
        }
        tile[depth * PITCH + line] = value;
    }
}

/// Adds the product of [`DEPTH`] steps to the sums from `base` on; those of the left factor begin
/// at depth `first` of what it holds.
#[cube]
pub(crate) fn multiply(
    left: &Shared<[f32]>,
    first: usize,
    right: &Shared<[f32]>,
    sums: &mut Array<f32>,
    #[comptime] base: usize,
) {
    for depth in 0..DEPTH {
        let mut rows = Array::<f32>::new(PER_UNIT);
        let mut columns = Array::<f32>::new(PER_UNIT);
        #[unroll]
        for i in 0..PER_UNIT {
            rows[i] = left[(first + depth) * PITCH + row(i)];
            columns[i] = right[depth * PITCH + column(i)];
        }
        #[unroll]
        for i in 0..PER_UNIT {
            #[unroll]
            for j in 0..PER_UNIT {
                sums[base + i * PER_UNIT + j] += rows[i] * columns[j];
            }
        }
    }
}

/// Adds the product of the first [`SIDE`] lines of both to the sums; `tiles` is shared memory for a
/// tile of each.
#[cube]
pub(crate) fn add_product<L: Float, R: Float>(
    left: &[L],
    left_lines: &Lines,
    right: &[R],
    right_lines: &Lines,
    tiles: &mut (Shared<[f32]>, Shared<[f32]>),
    sums: &mut Array<f32>,
) {
    for first in range_stepped(0, left_lines.depth, DEPTH) {
        load::<L>(left, left_lines, 0, first, &mut tiles.0);
        load::<R>(right, right_lines, 0, first, &mut tiles.1);
        sync_cube();
        multiply(&tiles.0, 0, &tiles.1, sums, 0usize);
        // Until all have multiplied, nobody may load again.
        sync_cube();
    }
}

/// Adds the product of [`SIDE`] by [`SIDE`] weights in shared memory and rows of `dim` columns to
/// the sums, [`SUMS`] for each [`SIDE`] columns. All units have written weights and rows.
#[cube]
pub(crate) fn add_weighted<R: Float>(
    weights: &Shared<[f32]>,
    right: &[R],
    right_lines: &Lines,
    tile: &mut Shared<[f32]>,
    sums: &mut Array<f32>,
    #[comptime] dim: usize,
) {
    for first in range_stepped(0, right_lines.depth, DEPTH) {
        #[unroll]
        for part in 0..dim.div_ceil(SIDE) {
            load::<R>(right, right_lines, part * SIDE, first, tile);
            sync_cube();
            multiply(weights, first, &*tile, sums, part * SUMS);
            sync_cube();
        }
    }
}
