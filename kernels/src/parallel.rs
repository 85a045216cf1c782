//! How CPU kernels share rows among threads so that results do not depend on their number.

/// Rows a task takes at a time. Sums over rows are formed per block and the blocks added in
/// order, so a result is a function of this constant and not of the number of threads.
pub(crate) const ROW_BLOCK: usize = 64;

/// Elements a task takes at a time where every element stands alone: some microseconds of work.
pub(crate) const ELEMENT_BLOCK: usize = 1 << 14;

/// Adds `parts` elementwise, first to last.
pub(crate) fn sum_in_order(len: usize, parts: impl IntoIterator<Item = Vec<f32>>) -> Vec<f32> {
    let mut total = vec![0.0; len];
    for part in parts {
        for (sum, value) in total.iter_mut().zip(part) {
            *sum += value;
        }
    }
    total
}
