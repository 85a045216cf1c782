//! Every document of a store once, for evaluation.
//!
//! A document is cut into windows of `seq_len` tokens that overlap by one, so that each of its
//! tokens but the first is a target exactly once. Windows are packed into rows, each a segment of
//! its own. Only text is scored: a document mark is never a target with weight.

use std::{ops::Range, sync::Arc};

use crate::{Batch, DataError, Result, Store};

/// Rows that still take windows. Keeps packing linear in the number of documents; the oldest row
/// closes first.
const MAX_OPEN_ROWS: usize = 64;

/// [`EvalBatch::document_index`] where no target counts.
pub const NO_DOCUMENT: u32 = u32::MAX;

/// One document to be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalDocument {
    /// Id in the corpus.
    pub id: String,
    /// Index of the cell in the store.
    pub cell: u32,
    /// Domain.
    pub domain: String,
    /// Quality level.
    pub quality: u32,
    /// UTF-8 bytes of the source text, the denominator of bits per byte.
    pub source_bytes: u64,
    /// Positions with weight that belong to it, over all rows. One less than its text tokens when
    /// the store has no begin-of-text mark, else all of them.
    pub scored_tokens: u64,
}

/// Some rows of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalBatch {
    /// The rows; `first_row` counts within the evaluation.
    pub batch: Batch,
    /// Per position the index into [`EvalRows::documents`] of the document whose token is the
    /// target; [`NO_DOCUMENT`] where the weight is 0. `[num_rows, seq_len]`.
    pub document_index: Vec<u32>,
}

/// All documents of a store, packed into rows once; batches are cut from them.
///
/// A row is the same whatever the batch it is asked for in.
#[derive(Debug)]
pub struct EvalRows {
    store: Arc<Store>,
    seq_len: usize,
    documents: Vec<EvalDocument>,
    rows: Vec<Vec<Window>>,
}

/// A piece of a document: places in its cell's stream.
#[derive(Clone, Debug)]
struct Window {
    document: u32,
    cell: u32,
    tokens: Range<u64>,
}

impl EvalRows {
    /// Plans rows of `seq_len` tokens.
    ///
    /// # Errors
    /// [`DataError::SeqLen`] below 2, where no token has a target.
    pub fn new(store: Arc<Store>, seq_len: usize) -> Result<Self> {
        if seq_len < 2 {
            return Err(DataError::SeqLen { found: seq_len, needed: "2 or more" });
        }
        let mut documents = Vec::new();
        let mut packer = Packer { seq_len: seq_len as u64, rows: Vec::new(), open: Vec::new() };
        let marks = store.manifest().tokenizer.clone();
        let mut tokens = Vec::new();
        for (cell_index, cell) in store.cells().iter().enumerate() {
            for document in 0..cell.num_documents() {
                let range = cell.document_range(document);
                tokens.clear();
                cell.read_tokens(range.clone(), &mut tokens);
                let is_text = |token: &u32| *token != marks.bos_id && *token != marks.eos_id;
                let index = documents.len() as u32;
                for start in (0..tokens.len()).step_by(seq_len - 1) {
                    let end = tokens.len().min(start + seq_len);
                    if tokens[start + 1..end].iter().any(is_text) {
                        let (start, end) = (range.start + start as u64, range.start + end as u64);
                        let cell = cell_index as u32;
                        packer.place(Window { document: index, cell, tokens: start..end });
                    }
                }
                documents.push(EvalDocument {
                    id: cell.document_id(document).into_owned(),
                    cell: cell_index as u32,
                    domain: cell.entry().domain.clone(),
                    quality: cell.entry().quality,
                    source_bytes: cell.source_bytes(document),
                    scored_tokens: tokens.iter().skip(1).filter(|t| is_text(t)).count() as u64,
                });
            }
        }
        Ok(Self { store, seq_len, documents, rows: packer.rows })
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows.len()
    }

    /// Tokens of a row.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// The store that the rows are read from.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The documents, in the order of the store.
    pub fn documents(&self) -> &[EvalDocument] {
        &self.documents
    }

    /// The documents with a token in a row, each once, in the order of the row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn documents_of_row(&self, row: usize) -> Vec<u32> {
        let mut documents = Vec::new();
        for window in &self.rows[row] {
            if !documents.contains(&window.document) {
                documents.push(window.document);
            }
        }
        documents
    }

    /// Positions with weight over all rows.
    pub fn scored_tokens(&self) -> u64 {
        self.documents.iter().map(|document| document.scored_tokens).sum()
    }

    /// The rows of a range.
    ///
    /// A row may hold documents of several cells; `cells` and `first_documents` of the batch are those
    /// of the row's first, and `document_index` says all.
    ///
    /// # Panics
    /// If the range reaches beyond [`EvalRows::num_rows`].
    pub fn batch(&self, rows: Range<usize>) -> EvalBatch {
        let mut batch = Batch::with_capacity(rows.start as u64, rows.len(), self.seq_len);
        let mut document_index = Vec::with_capacity(rows.len() * self.seq_len);
        for windows in &self.rows[rows] {
            let (mut tokens, mut segment_ids) = (Vec::new(), Vec::new());
            for (segment, window) in windows.iter().enumerate() {
                let cell = &self.store.cells()[window.cell as usize];
                cell.read_tokens(window.tokens.clone(), &mut tokens);
                segment_ids.resize(tokens.len(), segment as u32);
                document_index.resize(document_index.len() + window.len(), window.document);
            }
            let Window { cell, tokens: first, .. } = &windows[0];
            let first_document = self.store.cells()[*cell as usize].document_at(first.start);
            batch.push_row(*cell, first_document, &tokens, &segment_ids);
            document_index.resize(batch.num_rows * self.seq_len, NO_DOCUMENT);
        }
        self.score_text_only(&mut batch, &mut document_index);
        EvalBatch { batch, document_index }
    }

    /// All rows in order, in batches of `batch_rows`; the last may have fewer.
    ///
    /// # Panics
    /// If `batch_rows` is 0.
    pub fn batches(&self, batch_rows: usize) -> impl Iterator<Item = EvalBatch> + '_ {
        let starts = (0..self.num_rows()).step_by(batch_rows);
        starts.map(move |start| self.batch(start..self.num_rows().min(start + batch_rows)))
    }

    fn score_text_only(&self, batch: &mut Batch, document_index: &mut [u32]) {
        let tokenizer = &self.store.manifest().tokenizer;
        let marks = [tokenizer.bos_id as i32, tokenizer.eos_id as i32];
        let positions = batch.loss_weight.iter_mut().zip(&batch.targets).zip(document_index);
        for ((weight, target), document) in positions {
            if marks.contains(target) {
                *weight = 0.0;
            }
            if *weight == 0.0 {
                *document = NO_DOCUMENT;
            }
        }
    }
}

impl Window {
    fn len(&self) -> usize {
        (self.tokens.end - self.tokens.start) as usize
    }
}

/// First fit in order, over the rows that are still open.
struct Packer {
    seq_len: u64,
    rows: Vec<Vec<Window>>,
    /// Row and its free tokens, oldest first.
    open: Vec<(usize, u64)>,
}

impl Packer {
    fn place(&mut self, window: Window) {
        let len = window.len() as u64;
        if let Some(place) = self.open.iter().position(|(_, free)| *free >= len) {
            let (row, free) = &mut self.open[place];
            self.rows[*row].push(window);
            *free -= len;
            // The shortest window has two tokens, context and target.
            if *free < 2 {
                self.open.remove(place);
            }
            return;
        }
        let free = self.seq_len - len;
        if free >= 2 {
            if self.open.len() == MAX_OPEN_ROWS {
                self.open.remove(0);
            }
            self.open.push((self.rows.len(), free));
        }
        self.rows.push(vec![window]);
    }
}
