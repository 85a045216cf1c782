//! What the bytes of four exchanges cost if nothing else is done.

use fulmar_ep::capacity::PooledWaveCapacity;

use super::{FACTOR, K, NUM_EXPERTS, RANKS, TOKENS, WAVES};

/// Dispatch and combine, forward and backward.
const EXCHANGES: usize = 4;

/// The sizes of the exchange whose bytes are copied.
pub(crate) fn pooled_wave() -> PooledWaveCapacity {
    let (n, factors) = ((TOKENS * K) as u64, (FACTOR, FACTOR));
    PooledWaveCapacity::new(n, RANKS as u64, NUM_EXPERTS as u64, WAVES as u64, factors)
}

/// Floats of one part of one wave's frame, header and empty rows included.
fn part_len(width: usize) -> usize {
    let pool_rows = pooled_wave().pool_rows as usize;
    (pool_rows + pool_rows.div_ceil(width)) * width
}

/// What a rank copies, its own part of each frame included.
pub(crate) fn copied_bytes(width: usize) -> usize {
    EXCHANGES * WAVES * RANKS * part_len(width) * size_of::<f32>()
}

/// Buffers of one rank, written before anything is timed.
pub(crate) struct Copies {
    part_len: usize,
    from: Vec<f32>,
    to: Vec<f32>,
}

impl Copies {
    pub(crate) fn new(width: usize) -> Self {
        let len = copied_bytes(width) / size_of::<f32>();
        Self { part_len: part_len(width), from: vec![1.0; len], to: vec![2.0; len] }
    }

    /// Copies every byte once, part by part as a receiver does.
    pub(crate) fn run(&mut self) {
        for (to, from) in self.to.chunks_mut(self.part_len).zip(self.from.chunks(self.part_len)) {
            to.copy_from_slice(from);
        }
        std::hint::black_box(&mut self.to);
    }
}
