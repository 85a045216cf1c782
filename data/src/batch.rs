//! Rows as a model takes them.

use std::ops::Range;

/// A batch of rows, every field `[num_rows, seq_len]` in row-major order unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of rows.
    pub num_rows: usize,
    /// Tokens of a row.
    pub seq_len: usize,
    /// Global index of the first row; the others follow it.
    pub first_row: u64,
    /// Token ids; 0 at padding.
    pub tokens: Vec<i32>,
    /// The next token; 0 where there is none in the row.
    pub targets: Vec<i32>,
    /// 1 where the target counts; 0 at the end of a row, before another document, and at padding.
    pub loss_weight: Vec<f32>,
    /// Which tokens may see each other: equal ids within a row.
    pub segment_ids: Vec<i32>,
    /// False at padding. True also where the loss weight is 0 at the end of a document.
    pub token_valid: Vec<bool>,
    /// Index of each row's cell in the store, `[num_rows]`.
    pub cells: Vec<u32>,
    /// Index, within its cell, of the document of each row's first token, `[num_rows]`. The document
    /// of a position is this plus the segment id: rows of a store are stretches of one cell's
    /// stream.
    pub first_documents: Vec<u64>,
}

impl Batch {
    /// An empty batch with room for some rows.
    pub(crate) fn with_capacity(first_row: u64, num_rows: usize, seq_len: usize) -> Self {
        let tokens = num_rows * seq_len;
        Self {
            num_rows: 0,
            seq_len,
            first_row,
            tokens: Vec::with_capacity(tokens),
            targets: Vec::with_capacity(tokens),
            loss_weight: Vec::with_capacity(tokens),
            segment_ids: Vec::with_capacity(tokens),
            token_valid: Vec::with_capacity(tokens),
            cells: Vec::with_capacity(num_rows),
            first_documents: Vec::with_capacity(num_rows),
        }
    }

    /// Bytes of a batch of some rows.
    pub fn bytes_of(num_rows: usize, seq_len: usize) -> u64 {
        // Four numbers of 4 bytes and a bool a position; cell and document of a row.
        (num_rows * (seq_len * 17 + 12)) as u64
    }

    /// Bytes of this batch.
    pub fn num_bytes(&self) -> u64 {
        Self::bytes_of(self.num_rows, self.seq_len)
    }

    /// One row that is one document without padding, to read logits of; nothing in it counts.
    pub fn of_document(tokens: &[u32]) -> Self {
        let len = tokens.len();
        Self {
            num_rows: 1,
            seq_len: len,
            first_row: 0,
            tokens: tokens.iter().map(|&token| token as i32).collect(),
            targets: vec![0; len],
            loss_weight: vec![0.0; len],
            segment_ids: vec![0; len],
            token_valid: vec![true; len],
            cells: vec![0],
            first_documents: vec![0],
        }
    }

    /// Adds a row; what is missing to `seq_len` is padding, in a segment of its own. `first_document`
    /// is that of the first token within the cell.
    pub(crate) fn push_row(
        &mut self,
        cell: u32,
        first_document: u64,
        tokens: &[u32],
        segment_ids: &[u32],
    ) {
        debug_assert!(tokens.len() <= self.seq_len && tokens.len() == segment_ids.len());
        for (place, (token, segment)) in tokens.iter().zip(segment_ids).enumerate() {
            self.tokens.push(*token as i32);
            self.segment_ids.push(*segment as i32);
            let next = tokens.get(place + 1);
            self.targets.push(next.map_or(0, |next| *next as i32));
            let same_document = segment_ids.get(place + 1) == Some(segment);
            self.loss_weight.push(if same_document { 1.0 } else { 0.0 });
            self.token_valid.push(true);
        }
        self.num_rows += 1;
        self.cells.push(cell);
        self.first_documents.push(first_document);
        let end = self.num_rows * self.seq_len;
        self.tokens.resize(end, 0);
        self.targets.resize(end, 0);
        self.loss_weight.resize(end, 0.0);
        self.segment_ids.resize(end, segment_ids.last().map_or(0, |last| *last as i32 + 1));
        self.token_valid.resize(end, false);
    }

    /// The batch of some of the rows, as for a micro-batch or a rank.
    ///
    /// # Panics
    /// If the range reaches beyond [`Batch::num_rows`].
    pub fn rows(&self, rows: Range<usize>) -> Batch {
        let at = rows.start * self.seq_len..rows.end * self.seq_len;
        Batch {
            num_rows: rows.len(),
            seq_len: self.seq_len,
            first_row: self.first_row + rows.start as u64,
            tokens: self.tokens[at.clone()].to_vec(),
            targets: self.targets[at.clone()].to_vec(),
            loss_weight: self.loss_weight[at.clone()].to_vec(),
            segment_ids: self.segment_ids[at.clone()].to_vec(),
            token_valid: self.token_valid[at].to_vec(),
            cells: self.cells[rows.clone()].to_vec(),
            first_documents: self.first_documents[rows].to_vec(),
        }
    }

    /// The document, within the cell of its row, that a position's token belongs to.
    ///
    /// # Panics
    /// If `row` or `position` reaches beyond the batch.
    pub fn document(&self, row: usize, position: usize) -> u64 {
        let segment = self.segment_ids[row * self.seq_len..][..self.seq_len][position];
        self.first_documents[row] + segment as u64
    }

    /// Positions whose target counts.
    pub fn num_scored(&self) -> u64 {
        self.loss_weight.iter().filter(|weight| **weight > 0.0).count() as u64
    }

    /// Tokens that are not padding.
    pub fn num_valid(&self) -> u64 {
        self.token_valid.iter().filter(|valid| **valid).count() as u64
    }

    /// A digest of row indices and tokens: equal digests mean that the same data were read.
    ///
    /// The first 8 bytes, little-endian, of BLAKE3 over the row length and, row by row, the global
    /// index as u64 and the tokens as i32.
    pub fn digest(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.seq_len as u64).to_le_bytes());
        self.hash_rows(0..self.num_rows, &mut hasher);
        first_8_bytes(&hasher)
    }

    /// A digest that parts of a batch add up to: the sum, modulo 2^64, of the digests of its rows
    /// as batches of their own. Ranks that read their own rows only come to that of the whole batch
    /// by one sum, in whatever shares they have it.
    pub fn row_sum(&self) -> u64 {
        let row = |row: usize| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&(self.seq_len as u64).to_le_bytes());
            self.hash_rows(row..row + 1, &mut hasher);
            first_8_bytes(&hasher)
        };
        (0..self.num_rows).map(row).fold(0, u64::wrapping_add)
    }

    fn hash_rows(&self, rows: Range<usize>, hasher: &mut blake3::Hasher) {
        let mut bytes = Vec::with_capacity(self.seq_len * 4);
        let tokens = &self.tokens[rows.start * self.seq_len..rows.end * self.seq_len];
        for (row, tokens) in rows.zip(tokens.chunks(self.seq_len)) {
            hasher.update(&(self.first_row + row as u64).to_le_bytes());
            bytes.clear();
            bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
            hasher.update(&bytes);
        }
    }
}

fn first_8_bytes(hasher: &blake3::Hasher) -> u64 {
    let hash = hasher.finalize();
    hash.as_bytes()[..8].iter().rev().fold(0, |digest, byte| digest << 8 | u64::from(*byte))
}
