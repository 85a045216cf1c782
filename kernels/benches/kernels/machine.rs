//! What the machine can do, measured in this run.

use gemm::Parallelism;
use rayon::prelude::*;

use super::secs::Secs;
use super::settings::Settings;
use super::table::Work;

/// The side of the matrices of which a product shows the peak.
const SIDE: usize = 1024;

/// Floats of the copy, far more than any cache holds.
const COPIED: usize = 1 << 26;

const PRODUCT_FLOP: f64 = 2.0 * (SIDE * SIDE * SIDE) as f64;

const COPY_BYTES: f64 = (2 * COPIED * size_of::<f32>()) as f64;

/// Floats a thread copies at a time.
const BLOCK: usize = 1 << 16;

/// The best of all measurements so far.
pub(crate) struct Machine {
    pub(crate) product: Secs,
    pub(crate) copy: Secs,
    matrices: [Vec<f32>; 3],
    from: Vec<f32>,
    to: Vec<f32>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self {
            product: Secs::NEVER,
            copy: Secs::NEVER,
            matrices: std::array::from_fn(|_| vec![1.0; SIDE * SIDE]),
            from: vec![1.0; COPIED],
            to: vec![2.0; COPIED],
        }
    }

    pub(crate) fn measure(&mut self, settings: &Settings) {
        let [out, a, b] = &mut self.matrices;
        self.product = self.product.min(settings.best(|| product(out, a, b)));
        let (to, from) = (&mut self.to, &self.from);
        let copy = || {
            let blocks = to.par_chunks_mut(BLOCK).zip(from.par_chunks(BLOCK));
            blocks.for_each(|(to, from)| to.copy_from_slice(from));
        };
        self.copy = self.copy.min(settings.best(copy));
    }

    /// What f32 products of 1024 x 1024 matrices reach.
    pub(crate) fn gflops(&self) -> f64 {
        PRODUCT_FLOP / self.product.wall / 1e9
    }

    /// What a copy reads and writes in a second.
    pub(crate) fn gigabytes(&self) -> f64 {
        COPY_BYTES / self.copy.wall / 1e9
    }

    /// The roofline: what the machine needs for work at its best, on each clock.
    pub(crate) fn least_secs(&self, work: Work) -> Secs {
        let (product, copy) = (work.flop / PRODUCT_FLOP, work.bytes / COPY_BYTES);
        Secs {
            wall: (product * self.product.wall).max(copy * self.copy.wall),
            threads: (product * self.product.threads).max(copy * self.copy.threads),
        }
    }
}

fn product(out: &mut [f32], a: &[f32], b: &[f32]) {
    let (n, row) = (SIDE, SIDE as isize);
    assert!([out.len(), a.len(), b.len()].iter().all(|len| *len == n * n));
    // SAFETY: all three are n by n, row after row, and `out` is borrowed mutably.
    unsafe {
        gemm::gemm(
            n,
            n,
            n,
            out.as_mut_ptr(),
            1,
            row,
            false,
            a.as_ptr(),
            1,
            row,
            b.as_ptr(),
            1,
            row,
            0.0,
            1.0,
            false,
            false,
            false,
            Parallelism::Rayon(0),
        );
    }
}
