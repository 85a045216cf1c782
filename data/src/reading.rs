//! Row of a cell → place in the cell's stream, over all lengths of rows.
//!
//! The pages of a cell are read in a permuted order, one per epoch ([`PageOrder`]), each from its
//! start to its end by rows that divide it. Rows of a new length begin with the first page that is
//! not begun: what is left of the page before is not read in that epoch.
//!
//! A run that sees a part of a cell reads pages that are spread over all of it, the same ones in
//! every epoch.

use std::{fmt, ops::Range};

use serde::Serialize;

use crate::{MixturePlan, pack::Pages, page_order::PageOrder, shuffle::derive_seed};

/// Separates the orders of pages from other uses of the run's seed.
const PAGE_ORDER: u64 = 0x7061_6765_0000_0000;

/// How one cell is read.
#[derive(Debug)]
pub(crate) struct CellReading {
    /// Those that are read.
    pub(crate) pages: Pages,
    /// Pages of the whole cell.
    all_pages: u64,
    order: PageOrder,
    /// From the cell's name, so that a new cell in the store changes no other cell's order.
    name_hash: u64,
    stages: Vec<ReadingStage>,
}

/// Rows of one length.
#[derive(Debug)]
struct ReadingStage {
    /// Rows of the cell dealt in earlier stages.
    rows_before: u64,
    /// Pages of the cell begun in earlier stages, over all epochs.
    pages_before: u64,
    /// Tokens of the last of these pages that no row took.
    skipped_tokens: u64,
    seq_len: u64,
    rows_per_page: u64,
}

impl ReadingStage {
    /// Pages of the cell begun before that of row `row`, over all epochs, and the tokens of that page
    /// before the row.
    fn turn(&self, row: u64) -> (u64, u64) {
        let row = row - self.rows_before;
        let turn = self.pages_before + row / self.rows_per_page;
        (turn, row % self.rows_per_page * self.seq_len)
    }
}

/// Where a row lies.
pub(crate) struct Place {
    pub(crate) epoch: u64,
    pub(crate) page: u64,
    /// Tokens of the page before the row.
    pub(crate) offset: u64,
    /// The row in the cell's stream.
    pub(crate) tokens: Range<u64>,
}

/// Where the reading of a cell stands: in front of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadPosition {
    /// How often the cell was read through.
    pub epoch: u64,
    /// Pages of this epoch that are done or begun, the one at hand not counted.
    pub page: u64,
    /// Pages of an epoch.
    pub num_pages: u64,
    /// Tokens of the page at hand that are read.
    pub offset: u64,
}

impl fmt::Display for ReadPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.epoch, self.page, self.num_pages)?;
        if self.offset > 0 { write!(f, "+{}", self.offset) } else { Ok(()) }
    }
}

/// How each cell of a plan is read, by its pages and the tokens of it that are seen.
pub(crate) fn readings(
    plan: &MixturePlan,
    names: &[String],
    cells: impl Iterator<Item = (Pages, u64)>,
) -> Vec<CellReading> {
    let cells = names.iter().zip(cells);
    let mut readings: Vec<CellReading> =
        cells.map(|(name, (pages, seen))| CellReading::new(name, pages, seen)).collect();
    for stage in plan.lengths().stages() {
        let rows_before = plan.consumed(stage.first_row);
        for (cell, rows_before) in readings.iter_mut().zip(rows_before) {
            cell.go_on(stage.seq_len, rows_before);
        }
    }
    readings
}

impl CellReading {
    fn new(name: &str, all: Pages, seen_tokens: u64) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let name_hash = hash.as_bytes()[..8].iter().fold(0, |h, b| h << 8 | u64::from(*b));
        let num_pages = all.num_pages.min(seen_tokens / all.page_len);
        let unseen = (all.num_pages - num_pages) * all.page_len;
        let left_out_tokens = all.left_out_tokens + unseen;
        let pages = Pages { num_pages, left_out_tokens, ..all };
        let order = PageOrder::new(num_pages, all.page_len);
        Self { pages, all_pages: all.num_pages, order, name_hash, stages: Vec::new() }
    }

    /// Pages that are read, and pages of the whole cell: what its order follows from.
    pub(crate) fn pages_of(&self) -> (u64, u64) {
        (self.pages.num_pages, self.all_pages)
    }

    /// Where reading stands after `rows` rows of the cell, of which `stage` is the one that goes on.
    pub(crate) fn position(&self, stage: usize, rows: u64) -> ReadPosition {
        let (turn, offset) = self.stages[stage].turn(rows);
        let num_pages = self.pages.num_pages;
        let (epoch, page) = match num_pages {
            0 => (0, 0),
            pages => (turn / pages, turn % pages),
        };
        ReadPosition { epoch, page, num_pages, offset }
    }

    /// Goes on with rows of `seq_len` tokens after `rows_before` rows of the cell.
    fn go_on(&mut self, seq_len: usize, rows_before: u64) {
        let (pages_before, skipped_tokens) = match self.stages.last() {
            None => (0, 0),
            Some(last) => {
                let rows = rows_before - last.rows_before;
                let pages = rows.div_ceil(last.rows_per_page);
                let skipped = pages * last.rows_per_page - rows;
                (last.pages_before + pages, skipped * last.seq_len)
            }
        };
        let seq_len = seq_len as u64;
        let rows_per_page = self.pages.page_len / seq_len;
        self.stages.push(ReadingStage {
            rows_before,
            pages_before,
            skipped_tokens,
            seq_len,
            rows_per_page,
        });
    }

    /// Where row `index` of the cell lies, counted over all stages, of which `stage` holds it.
    pub(crate) fn place(&self, stage: usize, index: u64, seed: u64) -> Place {
        let stage = &self.stages[stage];
        let (turn, offset) = stage.turn(index);
        let num_pages = self.pages.num_pages;
        let (epoch, position) = (turn / num_pages, turn % num_pages);
        let order_seed = derive_seed(seed, &[PAGE_ORDER, self.name_hash, epoch]);
        let seen = self.order.page(position, order_seed);
        // The identity where all pages are seen.
        let page = (u128::from(seen) * u128::from(self.all_pages) / u128::from(num_pages)) as u64;
        let start = self.pages.range(page).start + offset;
        Place { epoch, page, offset, tokens: start..start + stage.seq_len }
    }

    /// Tokens left in the last page that was begun before a stage.
    pub(crate) fn skipped_tokens(&self, stage: usize) -> u64 {
        self.stages[stage].skipped_tokens
    }

    /// Tokens of the first `rows` rows of the cell, of which `stage` is the one that goes on.
    pub(crate) fn tokens_of(&self, stage: usize, rows: u64) -> u64 {
        let ends = self.stages[1..=stage].iter().map(|next| next.rows_before).chain([rows]);
        let stages = self.stages.iter().zip(ends);
        stages.map(|(stage, end)| (end - stage.rows_before) * stage.seq_len).sum()
    }
}
