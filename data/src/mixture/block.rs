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
    /// Rows per period by cell; the sum is that of whole blocks.
    pub(super) units: Vec<u64>,
}

/// Rows given to each cell in the first `num_blocks` blocks of a period, as the difference from the
/// whole rows due, so that a step of the walk touches small numbers only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) num_blocks: u64,
    /// Part of a row that a cell is due beside its whole ones, in rows per `PERIOD_BLOCKS`.
    pub(super) parts: Vec<u32>,
    /// Rows given beyond the whole rows due: 1 where a part was rounded up, and below 0 where
    /// [`Quotas::hold_back`] took rows back.
    pub(super) extra: Vec<i32>,
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
        Self { units }
    }

    pub(super) fn start(&self) -> Given {
        let cells = self.units.len();
        Given { num_blocks: 0, parts: vec![0; cells], extra: vec![0; cells] }
    }

    /// Rows of each cell that `given` stands for.
    pub(super) fn rows(&self, given: &Given) -> Vec<u64> {
        let whole = self.units.iter().map(|units| units * given.num_blocks / PERIOD_BLOCKS);
        whole
            .zip(&given.extra)
            .map(|(rows, extra)| rows.strict_add_signed((*extra).into()))
            .collect()
    }

    /// Deals some blocks more.
    pub(super) fn advance(&self, given: &mut Given, num_blocks: u64) {
        let mut scratch = Scratch::default();
        for _ in 0..num_blocks {
            scratch.before.clone_from(&given.extra);
            let left = self.take_whole_rows(given);
            match usize::try_from(left) {
                Ok(left) => round_up(given, left, &mut scratch),
                Err(_) => self.hold_back(given, &scratch.before, left.unsigned_abs()),
            }
        }
    }

    /// Deals one more block if no row is held back in it; whether it did. What it gives depends on
    /// cells of less than a row a block alone.
    pub(super) fn advance_unless_held_back(&self, given: &mut Given) -> bool {
        let left = self.take_whole_rows(given);
        usize::try_from(left).map(|left| round_up(given, left, &mut Scratch::default())).is_ok()
    }

    /// Gives each cell the whole rows that come due in one more block; how many are left, below 0 if
    /// these are too many.
    fn take_whole_rows(&self, given: &mut Given) -> i64 {
        given.num_blocks += 1;
        // Parts sum to whole rows, since units sum to whole blocks: those that are still to deal.
        let (mut parts, mut extra) = (0, 0);
        let cells = self.units.iter().zip(&mut given.parts).zip(&mut given.extra);
        for ((units, part), above) in cells {
            let due = u64::from(*part) + units;
            *part = (due % PERIOD_BLOCKS) as u32;
            // A row that was rounded up is one of the whole rows of now; below 2^30 of them.
            *above = (*above - (due / PERIOD_BLOCKS) as i32).max(0);
            parts += u64::from(*part);
            extra += i64::from(*above);
        }
        (parts / PERIOD_BLOCKS) as i64 - extra
    }

    /// Takes `excess` rows back where whole rows due exceed the block.
    ///
    /// It needs more cells rounded up earlier than this block's remainders make good, as with
    /// blocks of fewer rows than cells. The least owed wait; the next blocks serve them first.
    fn hold_back(&self, given: &mut Given, before: &[i32], mut excess: u64) {
        let k = given.num_blocks;
        // What this block gives each cell so far.
        let whole = |units: &u64, k: u64| (units * k / PERIOD_BLOCKS) as i64;
        let steps = self.units.iter().map(|units| whole(units, k) - whole(units, k - 1));
        let extras = given.extra.iter().zip(before).map(|(now, then)| i64::from(now - then));
        let mut here: Vec<i64> = steps.zip(extras).map(|(step, extra)| step + extra).collect();
        let mut order: Vec<usize> = (0..here.len()).collect();
        order.sort_by_key(|&cell| (given.parts[cell], cell));
        while excess > 0 {
            for &cell in &order {
                if excess > 0 && here[cell] > 0 {
                    here[cell] -= 1;
                    given.extra[cell] -= 1;
                    excess -= 1;
                }
            }
        }
    }
}

/// Room that the blocks of a walk share.
#[derive(Default)]
struct Scratch {
    /// [`Given::extra`] before the block.
    before: Vec<i32>,
    /// How much each cell is owed, 0 for those that are owed nothing.
    owed: Vec<u64>,
    selected: Vec<u64>,
}

/// Gives `left` rows more to cells that are owed part of a row, most owed first, earlier cells
/// first among equals. There are enough of them: the sum of the rows due, each rounded up, is at
/// least the number of rows.
fn round_up(given: &mut Given, left: usize, scratch: &mut Scratch) {
    if left == 0 {
        return;
    }
    let Scratch { owed, selected, .. } = scratch;
    owed.clear();
    // As one number, the larger the sooner.
    owed.extend(given.parts.iter().zip(&given.extra).zip(0_u32..).map(|((part, extra), cell)| {
        if *extra == 0 && *part > 0 { u64::from(*part) << 32 | u64::from(!cell) } else { 0 }
    }));
    selected.clone_from(owed);
    let last = selected.len() - left;
    let least = (*selected.select_nth_unstable(last).1).max(1);
    for (extra, owed) in given.extra.iter_mut().zip(owed) {
        *extra += i32::from(*owed >= least);
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
            let before = quotas.rows(&given);
            quotas.advance(&mut given, 1);
            let now = quotas.rows(&given);
            blocks.push(now.iter().zip(before).map(|(now, then)| now - then).collect());
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

    /// The rule in whole rows, as it was first written: the meaning that [`Quotas::advance`] must
    /// keep, since what a run has read follows from it. Returns how many rows it took back.
    fn advance_rows(quotas: &Quotas, k: u64, rows: &mut [u64]) -> u64 {
        let due = |cell: usize| quotas.units[cell] * k / PERIOD_BLOCKS;
        let remainder = |cell: usize| quotas.units[cell] * k % PERIOD_BLOCKS;
        let before = rows.to_vec();
        for (cell, rows) in rows.iter_mut().enumerate() {
            *rows = due(cell).max(*rows);
        }
        let block_rows = quotas.units.iter().sum::<u64>() / PERIOD_BLOCKS;
        let (dealt, wanted) = (rows.iter().sum::<u64>(), block_rows * k);
        if dealt <= wanted {
            let owed = |&cell: &usize| rows[cell] == due(cell) && remainder(cell) > 0;
            let mut order: Vec<usize> = (0..before.len()).filter(owed).collect();
            order.sort_by_key(|&cell| (std::cmp::Reverse(remainder(cell)), cell));
            for &cell in order.iter().take((wanted - dealt) as usize) {
                rows[cell] += 1;
            }
            return 0;
        }
        let mut excess = dealt - wanted;
        let mut order: Vec<usize> = (0..before.len()).collect();
        order.sort_by_key(|&cell| (remainder(cell), cell));
        while excess > 0 {
            for &cell in &order {
                if excess > 0 && rows[cell] > before[cell] {
                    rows[cell] -= 1;
                    excess -= 1;
                }
            }
        }
        dealt - wanted
    }

    #[test]
    fn small_numbers_deal_the_blocks_that_whole_rows_deal() {
        let draw = |seed: u64, i: u64| {
            let mixed = crate::shuffle::derive_seed(seed, &[i]);
            // From weights that differ little to those that span six orders of magnitude.
            (mixed as f64 / u64::MAX as f64).powi(1 + (seed % 9) as i32) + 1e-9
        };
        let mut held_back = 0;
        for (cells, block_rows) in [(3, 7), (40, 97), (33, 1), (200, 64), (200, 768), (17, 49_152)]
        {
            for seed in 0..10 {
                let mut weights: Vec<f64> = (0..cells).map(|i| draw(seed, i)).collect();
                if seed == 9 {
                    // Many equal weights come due in the same block.
                    let large = cells as usize / 10;
                    weights[large..].fill(0.4 / (cells as usize - large) as f64);
                }
                let quotas = Quotas::new(&weights, block_rows);
                let (mut given, mut rows) = (quotas.start(), vec![0; weights.len()]);
                for k in 1..=1_500 {
                    quotas.advance(&mut given, 1);
                    held_back += advance_rows(&quotas, k, &mut rows);
                    assert_eq!(quotas.rows(&given), rows, "{cells} {block_rows} {seed}: {k}");
                }
            }
        }
        assert!(held_back > 0, "no case took rows back");
    }

    /// Walks a whole period and returns the largest distance between due and given rows.
    fn largest_error(weights: &[f64], block_rows: u64) -> f64 {
        let quotas = Quotas::new(weights, block_rows);
        let mut given = quotas.start();
        let mut worst = 0.0_f64;
        for k in 1..=PERIOD_BLOCKS {
            quotas.advance(&mut given, 1);
            let rows = quotas.rows(&given);
            assert_eq!(rows.iter().sum::<u64>(), k * block_rows);
            for (rows, units) in rows.iter().zip(&quotas.units) {
                let due = *units as f64 * k as f64 / PERIOD_BLOCKS as f64;
                worst = worst.max((due - *rows as f64).abs());
            }
        }
        assert_eq!(quotas.rows(&given), quotas.units, "a period ends without a carry");
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
