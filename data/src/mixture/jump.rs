//! Counts before a far block without the walk to it.
//!
//! A block's counts depend on the blocks before it by little: a cell that gets a row or more in every
//! block has, behind a block, its whole rows due and perhaps one more for the part of a row that is
//! over, whatever came before. Only a cell of less than a row a block remembers whether its part was
//! rounded up already, and forgets it when the whole row comes due. So a walk may begin a while
//! before the block that is asked for, with nothing known of those few cells, and follow what is
//! certain: once nothing is unknown any more, the counts are those of a walk from the first block.
//! Where that does not come about, a longer walk is taken, and at last the whole one.

use super::block::{Given, PERIOD_BLOCKS, Quotas};

/// Length of the first walk that is tried; each further one is four times as long.
const FIRST_WALK: u64 = 256;

/// Cells of less than a row a block beyond which a jump costs as much as the walk.
const MAX_SMALL_CELLS: usize = 24;

/// What is known of a cell of less than a row a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rounded {
    Down,
    Up,
    Unknown,
}

impl Quotas {
    /// The counts before block `num_blocks` of a period, as the walk there gives them; none where
    /// they are not found by a shorter walk.
    pub(super) fn jump(&self, num_blocks: u64) -> Option<Given> {
        let is_small = |cell: &usize| (1..PERIOD_BLOCKS).contains(&self.units[*cell]);
        let small: Vec<usize> = (0..self.units.len()).filter(is_small).collect();
        // The last block is dealt in full.
        let until = num_blocks.checked_sub(1)?;
        if small.len() > MAX_SMALL_CELLS {
            return None;
        }
        let mut length = FIRST_WALK;
        while length < until {
            let mut skim = Skim::new(self, &small, until - length);
            match skim.advance(length) {
                None => return None,
                Some(true) => return self.last_block(until, skim),
                Some(false) => length *= 4,
            }
        }
        None
    }

    fn last_block(&self, until: u64, skim: Skim<'_>) -> Option<Given> {
        let mut extra = vec![0; self.units.len()];
        for (cell, rounded) in skim.small.iter().zip(&skim.rounded) {
            extra[*cell] = i32::from(*rounded == Rounded::Up);
        }
        let mut given = Given { num_blocks: until, parts: skim.parts, extra };
        self.advance_unless_held_back(&mut given).then_some(given)
    }
}

/// A walk that follows the small cells alone.
struct Skim<'a> {
    /// What each cell's part grows by in a block.
    growth: Vec<u32>,
    parts: Vec<u32>,
    small: &'a [usize],
    rounded: Vec<Rounded>,
}

impl<'a> Skim<'a> {
    /// A walk from behind `num_blocks` blocks, of which nothing is known.
    fn new(quotas: &Quotas, small: &'a [usize], num_blocks: u64) -> Self {
        let part = |units: &u64, blocks: u64| (units * blocks % PERIOD_BLOCKS) as u32;
        Self {
            growth: quotas.units.iter().map(|units| part(units, 1)).collect(),
            parts: quotas.units.iter().map(|units| part(units, num_blocks)).collect(),
            small,
            rounded: vec![Rounded::Unknown; small.len()],
        }
    }

    /// Walks some blocks; whether everything is known behind them, and none where rows may have
    /// been held back.
    fn advance(&mut self, num_blocks: u64) -> Option<bool> {
        let mut next = self.rounded.clone();
        for _ in 0..num_blocks {
            let mut sum = 0;
            for (part, growth) in self.parts.iter_mut().zip(&self.growth) {
                *part = (*part + growth) % PERIOD_BLOCKS as u32;
                sum += *part;
            }
            for (cell, rounded) in self.small.iter().zip(&mut self.rounded) {
                if self.parts[*cell] < self.growth[*cell] {
                    *rounded = Rounded::Down;
                }
            }
            // Rows left to deal, at most and at least.
            let count =
                |what| self.rounded.iter().filter(|rounded| **rounded == what).count() as u64;
            let most = (u64::from(sum) / PERIOD_BLOCKS).checked_sub(count(Rounded::Up))?;
            let least = most.checked_sub(count(Rounded::Unknown))?;
            for (index, next) in next.iter_mut().enumerate() {
                *next = self.dealt(index, least, most);
            }
            self.rounded.copy_from_slice(&next);
        }
        Some(!self.rounded.contains(&Rounded::Unknown))
    }

    /// What is known of a small cell behind a block of which `least` to `most` rows are left.
    fn dealt(&self, index: usize, least: u64, most: u64) -> Rounded {
        let (cell, rounded) = (self.small[index], self.rounded[index]);
        let part = self.parts[cell];
        if part == 0 || rounded == Rounded::Up {
            return rounded;
        }
        // Cells that are owed more come first, and earlier ones among equals.
        let more: u32 = self.parts.iter().map(|other| u32::from(*other > part)).sum();
        let equal: u32 = self.parts[..cell].iter().map(|other| u32::from(*other == part)).sum();
        let (mut last, mut first) = (u64::from(more + equal), u64::from(more + equal));
        for (other, what) in self.small.iter().zip(&self.rounded) {
            let key = (self.parts[*other], std::cmp::Reverse(*other));
            if key > (part, std::cmp::Reverse(cell)) {
                last -= u64::from(*what == Rounded::Up);
                first -= u64::from(*what != Rounded::Down);
            }
        }
        match rounded {
            _ if last < least => Rounded::Up,
            Rounded::Down if first >= most => Rounded::Down,
            _ => Rounded::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights over six orders of magnitude, of which some are less than a row a block.
    fn quotas(cells: u64, block_rows: u64, seed: u64) -> Quotas {
        let draw = |i: u64| {
            let mixed = crate::shuffle::derive_seed(seed, &[i]);
            (mixed as f64 / u64::MAX as f64).powi(4) + 1e-7
        };
        Quotas::new(&(0..cells).map(draw).collect::<Vec<_>>(), block_rows)
    }

    #[test]
    fn a_jump_comes_to_the_counts_of_the_whole_walk() {
        let (mut jumps, mut asked) = (0, 0);
        for (cells, block_rows) in
            [(3, 7), (12, 40), (40, 2_000), (200, 49_152), (200, 768), (9, 1)]
        {
            for seed in 0..4 {
                let quotas = quotas(cells, block_rows, seed);
                let mut given = quotas.start();
                for _ in 0..40 {
                    quotas.advance(&mut given, 271);
                    asked += 1;
                    if let Some(found) = quotas.jump(given.num_blocks) {
                        assert_eq!(found, given, "{cells} {block_rows} {seed}");
                        jumps += 1;
                    }
                }
            }
        }
        assert!(jumps * 3 > asked, "{jumps} of {asked} jumps were short");
    }

    #[test]
    fn without_small_cells_every_far_block_is_one_short_walk_away() {
        let quotas = Quotas::new(&[0.29, 0.57, 0.1399, 0.0001], 49_152);
        let mut given = quotas.start();
        quotas.advance(&mut given, 60_001);
        assert_eq!(quotas.jump(60_001), Some(given));
    }
}
