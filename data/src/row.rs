//! Global row index → row.

use std::{ops::Range, sync::Arc};

use crate::{
    Batch, DataError, MixtureConfig, MixturePlan, Result, Store,
    pack::{Pages, segment_ids},
    shuffle::{Permutation, derive_seed},
};

/// Separates the orders of pages from other uses of the run's seed.
const PAGE_ORDER: u64 = 0x7061_6765_0000_0000;

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
    /// Document, within the cell, of the first token.
    pub first_document: u64,
    /// Token ids, `seq_len` of them.
    pub tokens: Vec<u32>,
    /// Per token the document's place within the row: 0, then one more at each document's start.
    /// The document of a token is `first_document` plus this.
    pub segment_ids: Vec<u32>,
}

/// The rows of a run: row i is a pure function of store, mixture, row length, seed and i.
///
/// There is no position to save. A resumed run asks for the rows of its step; another batch size or
/// another number of ranks asks for the same rows in other groups.
#[derive(Debug)]
pub struct RowSource {
    store: Arc<Store>,
    plan: MixturePlan,
    seq_len: usize,
    seed: u64,
    cells: Vec<CellPages>,
}

#[derive(Debug)]
struct CellPages {
    pages: Pages,
    /// From the cell's name, so that a new cell in the store changes no other cell's order.
    name_hash: u64,
}

impl RowSource {
    /// Rows of `seq_len` tokens from a store, mixed as the config says.
    ///
    /// # Errors
    /// Those of [`MixturePlan::new`]; [`DataError::SeqLen`] below 2; [`DataError::CellTooSmall`]
    /// for a cell with weight and without one whole row.
    pub fn new(
        store: Arc<Store>,
        mixture: &MixtureConfig,
        seq_len: usize,
        seed: u64,
    ) -> Result<Self> {
        if seq_len < 2 {
            return Err(DataError::SeqLen { found: seq_len, needed: "2 or more" });
        }
        let plan = MixturePlan::new(mixture, &store.cell_names(), seed)?;
        let weighted = |name: &str| {
            mixture.stages.iter().any(|stage| stage.weights.get(name).is_some_and(|w| *w > 0.0))
        };
        let mut cells = Vec::new();
        for cell in store.cells() {
            let pages = Pages::of(cell.num_tokens(), seq_len as u64);
            if pages.num_pages == 0 && weighted(cell.name()) {
                return Err(DataError::CellTooSmall {
                    cell: cell.name().to_owned(),
                    found: cell.num_tokens(),
                    needed: seq_len as u64,
                });
            }
            let hash = blake3::hash(cell.name().as_bytes());
            let name_hash = hash.as_bytes()[..8].iter().fold(0, |h, b| h << 8 | u64::from(*b));
            cells.push(CellPages { pages, name_hash });
        }
        Ok(Self { store, plan, seq_len, seed, cells })
    }

    /// The row at a global index.
    pub fn row(&self, index: u64) -> Row {
        let slot = self.plan.locate(index);
        let CellPages { pages, name_hash } = &self.cells[slot.cell as usize];
        let (epoch, position) = (slot.index / pages.num_pages, slot.index % pages.num_pages);
        let order_seed = derive_seed(self.seed, &[PAGE_ORDER, *name_hash, epoch]);
        let page = Permutation::new(pages.num_pages, order_seed).apply(position);
        let cell = &self.store.cells()[slot.cell as usize];
        let mut tokens = Vec::with_capacity(self.seq_len);
        cell.read_tokens(pages.range(page), &mut tokens);
        let (segment_ids, first_document) = segment_ids(cell, pages.range(page));
        Row { index, cell: slot.cell, epoch, page, first_document, tokens, segment_ids }
    }

    /// The batch of some consecutive rows.
    pub fn batch(&self, rows: Range<u64>) -> Batch {
        let first_row = rows.start;
        let rows: Vec<Row> = rows.map(|index| self.row(index)).collect();
        Batch::from_rows(first_row, self.seq_len, &rows)
    }

    /// Rows taken from each cell among the first `num_rows`, by arithmetic.
    pub fn consumed(&self, num_rows: u64) -> Vec<u64> {
        self.plan.consumed(num_rows)
    }

    /// The pages of each cell, with the tokens left out at its end.
    pub fn pages(&self) -> Vec<Pages> {
        self.cells.iter().map(|cell| cell.pages).collect()
    }

    /// Which cell each row comes from.
    pub fn plan(&self) -> &MixturePlan {
        &self.plan
    }

    /// The store that the rows are read from.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Tokens of a row.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }
}
