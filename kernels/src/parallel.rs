//! How CPU kernels share rows among threads so that results do not depend on their number.

use rayon::prelude::*;

/// Rows a task takes at a time. Sums over rows are formed per block and the blocks added in
/// order, so a result is a function of this constant and not of the number of threads.
pub(crate) const ROW_BLOCK: usize = 64;

/// Elements a task takes at a time where rows do not matter: some microseconds of work. Sums over
/// elements are formed per block and added in order too.
pub(crate) const ELEMENT_BLOCK: usize = 1 << 14;

/// Runs `fill` on every row of `out`, blocks of rows in parallel.
pub(crate) fn for_each_row(out: &mut [f32], dim: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
    if dim == 0 {
        return;
    }
    out.par_chunks_mut(dim * ROW_BLOCK).enumerate().for_each(|(block, out)| {
        for (i, out) in out.chunks_mut(dim).enumerate() {
            fill(block * ROW_BLOCK + i, out);
        }
    });
}

/// Runs `change` on every row of `rows` and the entry of `aside` that belongs to it, blocks of rows
/// in parallel.
///
/// # Panics
/// If there is not an entry for each row.
pub(crate) fn for_each_row_with<T: Send>(
    rows: &mut [f32],
    dim: usize,
    aside: &mut [T],
    change: impl Fn(usize, &mut [f32], &mut T) + Sync,
) {
    assert_eq!(rows.len(), aside.len() * dim, "an entry for each row");
    if dim == 0 {
        return;
    }
    let blocks = rows.par_chunks_mut(dim * ROW_BLOCK).zip(aside.par_chunks_mut(ROW_BLOCK));
    blocks.enumerate().for_each(|(block, (rows, aside))| {
        for (i, (row, aside)) in rows.chunks_mut(dim).zip(aside).enumerate() {
            change(block * ROW_BLOCK + i, row, aside);
        }
    });
}

/// Adds `parts` elementwise, first to last.
pub(crate) fn sum_in_order<P: AsRef<[f32]>>(
    len: usize,
    parts: impl IntoIterator<Item = P>,
) -> Vec<f32> {
    let mut total = vec![0.0; len];
    for part in parts {
        for (sum, value) in total.iter_mut().zip(part.as_ref()) {
            *sum += value;
        }
    }
    total
}
