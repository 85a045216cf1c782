//! The best of some repetitions: whatever else runs on the machine only adds to a time.

use super::inputs::leaf;
use super::seconds;

pub(crate) fn best(repeats: usize, mut run: impl FnMut()) -> f64 {
    least((0..repeats).map(|_| seconds(&mut run)))
}

pub(crate) fn least(secs: impl Iterator<Item = f64>) -> f64 {
    secs.fold(f64::INFINITY, f64::min)
}

/// GFLOP/s of a 1024 x 1024 x 1024 product.
pub(crate) fn gemm_gflops(repeats: usize) -> f64 {
    let (a, b) = (leaf("a", [1024, 1024]).inner(), leaf("b", [1024, 1024]).inner());
    let secs = best(20 * repeats, || drop(a.clone().matmul(b.clone())));
    2.0 * 1024f64.powi(3) / secs / 1e9
}
