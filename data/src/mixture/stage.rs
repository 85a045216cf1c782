//! Rows given before any block of one stage, with bounded memory and time.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::block::{Given, PERIOD_BLOCKS, Quotas};

/// Distance of remembered counts within a period: at most this many blocks are walked behind one. A
/// stage of 200 cells remembers at most 1.6 MB.
const CHECKPOINT_BLOCKS: u64 = 64;

/// Remembered counts that are walked to from the one before, rather than jumped to.
const NEAR_CHECKPOINTS: u64 = 4;

/// One stage of a mixture, from its first block on.
#[derive(Debug)]
pub(super) struct StagePlan {
    quotas: Quotas,
    /// By i, rows given in the first `i * CHECKPOINT_BLOCKS` blocks of a period: those that somebody
    /// asked for, and the first.
    checkpoints: Mutex<BTreeMap<u64, Given>>,
}

impl StagePlan {
    pub(super) fn new(quotas: Quotas) -> Self {
        let checkpoints = Mutex::new(BTreeMap::from([(0, quotas.start())]));
        Self { quotas, checkpoints }
    }

    /// Rows of each cell in the first `num_blocks` blocks of the stage, and those of one more.
    pub(super) fn given_around(&self, num_blocks: u64) -> (Vec<u64>, Vec<u64>) {
        let (periods, rest) = (num_blocks / PERIOD_BLOCKS, num_blocks % PERIOD_BLOCKS);
        let mut given = self.checkpoint_before(rest);
        let more = rest - given.num_blocks;
        self.quotas.advance(&mut given, more);
        let whole = |given: &Given| -> Vec<u64> {
            let rows = self.quotas.rows(given).into_iter();
            rows.zip(&self.quotas.units).map(|(row, units)| row + units * periods).collect()
        };
        let before = whole(&given);
        self.quotas.advance(&mut given, 1);
        (before, whole(&given))
    }

    fn checkpoint_before(&self, num_blocks: u64) -> Given {
        let index = num_blocks / CHECKPOINT_BLOCKS;
        // The map is whole whenever the lock is free: a panic elsewhere cannot spoil it.
        let mut checkpoints = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut near, mut given) = checkpoints
            .range(..=index)
            .next_back()
            .map(|(near, given)| (*near, given.clone()))
            .expect("the first one is always there");
        if index - near > NEAR_CHECKPOINTS
            && let Some(found) = self.quotas.jump(index * CHECKPOINT_BLOCKS)
        {
            (near, given) = (index, found);
            checkpoints.insert(index, given.clone());
        }
        while near < index {
            self.quotas.advance(&mut given, CHECKPOINT_BLOCKS);
            near += 1;
            checkpoints.insert(near, given.clone());
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_block_is_found_as_by_walking() {
        let quotas = Quotas::new(&[0.5, 0.3, 0.19, 0.01], 7);
        let plan = StagePlan::new(quotas.clone());
        let mut given = quotas.start();
        let mut expected = vec![quotas.rows(&given)];
        for _ in 0..300 {
            quotas.advance(&mut given, 1);
            expected.push(quotas.rows(&given));
        }
        for k in [299, 0, 63, 64, 65, 128, 1] {
            let (before, after) = plan.given_around(k);
            assert_eq!(before, expected[k as usize]);
            assert_eq!(after, expected[k as usize + 1]);
        }
        let (far, _) = plan.given_around(5 * PERIOD_BLOCKS + 65);
        let units = quotas.units.iter();
        let by_period: Vec<u64> = expected[65].iter().zip(units).map(|(r, u)| r + 5 * u).collect();
        assert_eq!(far, by_period);
    }
}
