//! Global row index → row.

use std::{ops::Range, sync::Arc};

use crate::{
    Batch, DataError, LengthPlan, MixtureConfig, MixturePlan, Result, RowLengths, Store,
    pack::{Pages, segment_ids},
    reading::{CellReading, readings},
};

/// One sequence of the training data, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Global row index.
    pub index: u64,
    /// Index of the cell in the store.
    pub cell: u32,
    /// How often the cell was read through before.
    pub epoch: u64,
    /// Page of the cell's stream.
    pub page: u64,
    /// Tokens of the page before the row; 0 where rows are as long as pages.
    pub offset: u64,
    /// Document, within the cell, of the first token.
    pub first_document: u64,
    /// Token ids, as many as a row has here.
    pub tokens: Vec<u32>,
    /// Per token the document's place within the row: 0, then one more at each document's start.
    /// The document of a token is `first_document` plus this.
    pub segment_ids: Vec<u32>,
}

/// The rows of a run: row i is a pure function of store, mixture, row lengths, seed and i.
///
/// There is no position to save. A resumed run asks for the rows of its step; another batch size or
/// another number of ranks asks for the same rows in other groups.
#[derive(Debug)]
pub struct RowSource {
    store: Arc<Store>,
    plan: MixturePlan,
    seed: u64,
    cells: Vec<CellReading>,
}

/// What a change of row length leaves unread.
///
/// No token is read twice for it: rows of the new length begin with a page that no row has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthReport {
    /// First block of the new length.
    pub from_block: u64,
    /// Global index of the first row of the new length.
    pub first_row: u64,
    /// Tokens of a row before.
    pub seq_len_before: usize,
    /// Tokens of a row from there on.
    pub seq_len: usize,
    /// Tokens by cell that are never read in the epoch of the change, each fewer than a page's.
    pub skipped_tokens: Vec<u64>,
}

impl RowSource {
    /// Rows of given lengths from a store, mixed as the config says.
    ///
    /// # Errors
    /// Those of [`MixturePlan::new`]; [`DataError::CellTooSmall`] for a cell with weight and
    /// without one whole page, which is a row of the longest planned length.
    pub fn new(
        store: Arc<Store>,
        mixture: &MixtureConfig,
        lengths: &RowLengths,
        seed: u64,
    ) -> Result<Self> {
        let all: Vec<u64> = store.cells().iter().map(crate::Cell::num_tokens).collect();
        Self::of_seen(store, mixture, lengths, &all, seed)
    }

    /// Rows from the part of a store that a run sees: `seen` tokens of each cell, whose pages are
    /// spread over the cell and read again in every epoch ([`Visible`](crate::mixture::Visible)).
    ///
    /// # Errors
    /// As [`RowSource::new`], of what is seen.
    ///
    /// # Panics
    /// If `seen` has not as many numbers as the store has cells.
    pub fn of_seen(
        store: Arc<Store>,
        mixture: &MixtureConfig,
        lengths: &RowLengths,
        seen: &[u64],
        seed: u64,
    ) -> Result<Self> {
        let names = store.cell_names();
        let (found, needed) = (seen.len(), names.len());
        assert_eq!(found, needed, "RowSource::of_seen: `seen` has {found} numbers, need {needed}");
        let plan = MixturePlan::new(mixture, lengths, &names, seed)?;
        let weighted = |name: &str| {
            mixture.stages.iter().any(|stage| stage.weights.get(name).is_some_and(|w| *w > 0.0))
        };
        let page_len = lengths.longest as u64;
        let seen = seen.iter().zip(store.cells()).map(|(seen, cell)| cell.num_tokens().min(*seen));
        for (cell, found) in store.cells().iter().zip(seen.clone()) {
            if found < page_len && weighted(cell.name()) {
                return Err(DataError::CellTooSmall {
                    cell: cell.name().to_owned(),
                    found,
                    needed: page_len,
                    field: lengths.field_of_longest(),
                });
            }
        }
        let pages = store.cells().iter().map(|cell| Pages::of(cell.num_tokens(), page_len));
        let cells = readings(&plan, &names, pages.zip(seen));
        Ok(Self { store, plan, seed, cells })
    }

    /// The row at a global index.
    pub fn row(&self, index: u64) -> Row {
        let slot = self.plan.locate(index);
        let stage = self.lengths().stage_of_row(index);
        let place = self.cells[slot.cell as usize].place(stage, slot.index, self.seed);
        let cell = &self.store.cells()[slot.cell as usize];
        let mut tokens = Vec::with_capacity((place.tokens.end - place.tokens.start) as usize);
        cell.read_tokens(place.tokens.clone(), &mut tokens);
        let (segment_ids, first_document) = segment_ids(cell, place.tokens);
        Row {
            index,
            cell: slot.cell,
            epoch: place.epoch,
            page: place.page,
            offset: place.offset,
            first_document,
            tokens,
            segment_ids,
        }
    }

    /// The batch of some consecutive rows.
    ///
    /// # Panics
    /// If the range holds rows of two lengths.
    pub fn batch(&self, rows: Range<u64>) -> Batch {
        let first_row = rows.start;
        let lengths = self.lengths();
        let seq_len = lengths.seq_len_at(first_row);
        let stage = lengths.stages().get(lengths.stage_of_row(first_row) + 1);
        if let Some(next) = stage.filter(|next| next.first_row < rows.end) {
            panic!(
                "RowSource::batch: rows {rows:?} hold rows of {seq_len} and of {} tokens; need one \
                 length, which changes at row {}",
                next.seq_len, next.first_row
            );
        }
        let num_rows = (rows.end - first_row) as usize;
        let mut batch = Batch::with_capacity(first_row, num_rows, seq_len);
        for index in rows {
            let row = self.row(index);
            batch.push_row(row.cell, row.first_document, &row.tokens, &row.segment_ids);
        }
        batch
    }

    /// The rows of batch `batch` where batches have a fixed number of tokens.
    ///
    /// # Errors
    /// Those of [`LengthPlan::batches`].
    pub fn rows_of_batch(&self, batch: u64, tokens_per_batch: u64) -> Result<Range<u64>> {
        Ok(self.lengths().batches(tokens_per_batch)?.rows(batch))
    }

    /// Tokens of the row at a global index.
    pub fn seq_len_at(&self, row: u64) -> usize {
        self.lengths().seq_len_at(row)
    }

    /// Rows taken from each cell among the first `num_rows`, by arithmetic.
    pub fn consumed(&self, num_rows: u64) -> Vec<u64> {
        self.plan.consumed(num_rows)
    }

    /// Tokens taken from each cell by the first `num_rows` rows, over all epochs.
    pub fn consumed_tokens(&self, num_rows: u64) -> Vec<u64> {
        let stage = self.lengths().stage_of_row(num_rows);
        let rows = self.consumed(num_rows);
        self.cells.iter().zip(rows).map(|(cell, rows)| cell.tokens_of(stage, rows)).collect()
    }

    /// What each change of length leaves unread, in order.
    pub fn length_reports(&self) -> Vec<LengthReport> {
        let stages = self.lengths().stages();
        let report = |(index, pair): (usize, &[crate::LengthStage])| LengthReport {
            from_block: pair[1].from_block,
            first_row: pair[1].first_row,
            seq_len_before: pair[0].seq_len,
            seq_len: pair[1].seq_len,
            skipped_tokens: self.cells.iter().map(|cell| cell.skipped_tokens(index + 1)).collect(),
        };
        stages.windows(2).enumerate().map(report).collect()
    }

    /// The pages of each cell that are read, with the tokens that never are: those behind its last
    /// whole page, and what a run that sees a part of the cell does not see.
    pub fn pages(&self) -> Vec<Pages> {
        self.cells.iter().map(|cell| cell.pages).collect()
    }

    /// Which cell each row comes from.
    pub fn plan(&self) -> &MixturePlan {
        &self.plan
    }

    /// Where the rows of every length lie.
    pub fn lengths(&self) -> &LengthPlan {
        self.plan.lengths()
    }

    /// The store that the rows are read from.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}
