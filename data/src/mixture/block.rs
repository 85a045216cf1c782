//! How many rows of each cell a block holds: largest remainder, the error carried on.
//!
//! Weights become whole numbers of rows per period of [`PERIOD_BLOCKS`] blocks. After k blocks of a
//! period cell c is due `due = units[c] * k / PERIOD_BLOCKS` rows, an exact fraction, and has been
//! given `floor(due)` or `ceil(due)`. At the end of a period nothing is left to carry, so that the
//! counts before any block, however far, follow from at most one period: that is what makes a row
//! index of 10^12 as cheap as one of 10^6.

/// Blocks after which counts are whole and repeat.
///
/// A weight is rounded to one row in `PERIOD_BLOCKS * block_rows`, 3.2e9 by default and fewer where
/// rows are longer.
pub const PERIOD_BLOCKS: u64 = 1 << 16;

/// The rows that each cell gets in a period.
#[derive(Clone, Debug)]
pub(super) struct Quotas {
    pub(super) block_rows: u64,
    /// Rows per period by cell; the sum is `block_rows * PERIOD_BLOCKS`.
    pub(super) units: Vec<u64>,
}

/// Rows given to each cell in the first `num_blocks` blocks of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) num_blocks: u64,
    pub(super) rows: Vec<u64>,
}

impl Quotas {
    /// Rounds weights to rows per period, by largest remainder. Ties go to the earlier cell.
    pub(super) fn new(weights: &[f64], block_rows: u64) -> Self {
        let total = block_rows * PERIOD_BLOCKS;
        let sum: f64 = weights.iter().sum();
        let exact: Vec<f64> = weights.iter().map(|w| w / sum * total as f64).collect();
        let mut units: Vec<u64> = exact.iter().map(|rows| rows.floor() as u64).collect();
        let missing = total.saturating_sub(units.iter().sum());
        let mut order: Vec<usize> = (0..weights.len()).filter(|&c| weights[c] > 0.0).collect();
        order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
        for &cell in order.iter().cycle().take(missing as usize) {
            units[cell] += 1;
        }
        Self { block_rows, units }
    }

    pub(super) fn start(&self) -> Given {
        Given { num_blocks: 0, rows: vec![0; self.units.len()] }
    }

    /// Deals one more block.
    pub(super) fn advance(&self, given: &mut Given) {
        given.num_blocks += 1;
        let k = given.num_blocks;
        let due = |cell: usize| self.units[cell] * k / PERIOD_BLOCKS;
        let remainder = |cell: usize| self.units[cell] * k % PERIOD_BLOCKS;
        let before = given.rows.clone();
        for (cell, rows) in given.rows.iter_mut().enumerate() {
            *rows = due(cell).max(*rows);
        }
        let (dealt, wanted) = (given.rows.iter().sum::<u64>(), self.block_rows * k);
        if dealt <= wanted {
            // Cells that are owed part of a row, most owed first. There are enough of them: the
            // sum of `ceil(due)` is at least the number of rows.
            let owed = |&cell: &usize| given.rows[cell] == due(cell) && remainder(cell) > 0;
            let mut order: Vec<usize> = (0..before.len()).filter(owed).collect();
            order.sort_by_key(|&cell| (std::cmp::Reverse(remainder(cell)), cell));
            for &cell in order.iter().take((wanted - dealt) as usize) {
                given.rows[cell] += 1;
            }
        } else {
            self.hold_back(given, &before, dealt - wanted);
        }
        debug_assert_eq!(given.rows.iter().sum::<u64>(), wanted);
    }

    /// Takes `excess` rows back where whole rows due exceed the block.
    ///
    /// It needs more cells rounded up earlier than this block's remainders make good, as with
    /// blocks of fewer rows than cells. The least owed wait; the next blocks serve them first.
    fn hold_back(&self, given: &mut Given, before: &[u64], mut excess: u64) {
        let k = given.num_blocks;
        let mut order: Vec<usize> = (0..before.len()).collect();
        order.sort_by_key(|&cell| (self.units[cell] * k % PERIOD_BLOCKS, cell));
        while excess > 0 {
            for &cell in &order {
                if excess > 0 && given.rows[cell] > before[cell] {
                    given.rows[cell] -= 1;
                    excess -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_of(weights: &[f64], block_rows: u64, num_blocks: usize) -> Vec<Vec<u64>> {
        let quotas = Quotas::new(weights, block_rows);
        let mut given = quotas.start();
        let mut blocks = Vec::new();
        for _ in 0..num_blocks {
            let before = given.rows.clone();
            quotas.advance(&mut given);
            blocks.push(given.rows.iter().zip(before).map(|(now, then)| now - then).collect());
        }
        blocks
    }

    #[test]
    fn weights_of_29_57_and_14_percent_are_exact_in_blocks_of_100() {
        for block in counts_of(&[0.29, 0.57, 0.14], 100, 1_000) {
            assert_eq!(block, [29, 57, 14]);
        }
    }

    #[test]
    fn a_cell_of_weight_4e_4_gets_4_rows_in_100_blocks_of_100() {
        let blocks = counts_of(&[0.0004, 0.9996], 100, 100);
        assert_eq!(blocks.iter().map(|block| block[0]).sum::<u64>(), 4);
        assert!(blocks.iter().all(|block| block.iter().sum::<u64>() == 100));
        assert!(blocks.iter().all(|block| block[0] <= 1));
    }

    /// Walks a whole period and returns the largest distance between due and given rows.
    fn largest_error(weights: &[f64], block_rows: u64) -> f64 {
        let quotas = Quotas::new(weights, block_rows);
        let mut given = quotas.start();
        let mut worst = 0.0_f64;
        for k in 1..=PERIOD_BLOCKS {
            quotas.advance(&mut given);
            assert_eq!(given.rows.iter().sum::<u64>(), k * block_rows);
            for (rows, units) in given.rows.iter().zip(&quotas.units) {
                let due = *units as f64 * k as f64 / PERIOD_BLOCKS as f64;
                worst = worst.max((due - *rows as f64).abs());
            }
        }
        assert_eq!(given.rows, quotas.units, "a period ends without a carry");
        worst
    }

    #[test]
    fn given_rows_stay_within_one_of_due_rows() {
        assert!(largest_error(&[0.31, 0.27, 0.2, 0.12, 0.0999, 1e-4], 48) < 1.0);
        let many: Vec<f64> = (1..=40).map(|i| f64::from(i) / 820.0).collect();
        assert!(largest_error(&many, 97) < 1.0);
    }

    #[test]
    fn blocks_smaller_than_the_number_of_cells_lose_no_row() {
        let mut weights = vec![0.3, 0.2, 0.1];
        weights.extend([0.4 / 30.0; 30]);
        // The bound of one row needs blocks larger than this; a period still closes.
        assert!(largest_error(&weights, 1) < 2.0);
    }
}
