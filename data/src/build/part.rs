//! A part: the tokens of some documents that follow each other in the sources, by cell.
//!
//! In memory while it fills, then two files. `<number>.tokens` holds one token file of the store's
//! format for each cell, one behind the other, and then lines of the quarantine file.
//! `<number>.json` says where they lie, with checksums; it is written last and makes the part whole.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::account::{Account, Finished, Open};
use crate::{
    CellKey, DataError, NewDocument, Reject, Result, Span,
    store::{
        HEADER_BYTES, Header, Index, Layout, View, encode_tokens, header_of, sync_folder,
        write_index, write_synced,
    },
};

/// A part that fills.
#[derive(Default)]
pub(super) struct PartBuffer {
    cells: BTreeMap<CellKey, CellBuffer>,
    quarantine: Vec<u8>,
    quarantined: u64,
    /// Bytes of its text and of its lines.
    pub(super) held_bytes: u64,
    pub(super) num_documents: u64,
}

struct CellBuffer {
    tokens: Vec<u8>,
    index: Index,
}

/// A part on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// Counted from 0.
    number: u64,
    /// Of the file of tokens.
    bytes: u64,
    blake3: String,
    cells: Vec<PartCell>,
    /// Where the lines of the quarantine file begin; they reach to the end.
    quarantine_at: u64,
    pub(super) quarantined: u64,
    pub(super) num_documents: u64,
    /// Files that ended in this part.
    pub(super) finished: Vec<Finished>,
    /// The file in whose middle it ends, or of which it has nothing.
    pub(super) open: Open,
}

/// A cell of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartCell {
    domain: String,
    quality: u32,
    at: u64,
    bytes: u64,
    spans: Vec<Span>,
}

impl PartCell {
    pub(super) fn key(&self) -> CellKey {
        CellKey { domain: self.domain.clone(), quality: self.quality }
    }
}

impl PartBuffer {
    pub(super) fn append(&mut self, cell: CellKey, document: &NewDocument<'_>, token_bytes: u32) {
        let empty = || CellBuffer { tokens: Vec::new(), index: Index::new() };
        let buffer = self.cells.entry(cell).or_insert_with(empty);
        encode_tokens(document.tokens, token_bytes, &mut buffer.tokens);
        buffer.index.append(document);
        self.held_bytes += document.source_bytes;
        self.num_documents += 1;
    }

    pub(super) fn quarantine(&mut self, reject: &Reject) {
        let before = self.quarantine.len();
        // Strings and numbers always have a JSON form, and memory takes it.
        serde_json::to_writer(&mut self.quarantine, reject).expect("a line of JSON");
        self.quarantine.push(b'\n');
        self.held_bytes += (self.quarantine.len() - before) as u64;
        self.quarantined += 1;
    }

    /// Whether nothing was left out in it.
    pub(super) fn is_without_lines(&self) -> bool {
        self.quarantined == 0
    }

    /// Writes the part into a folder. `account` stands where the part ends, and had finished
    /// `finished_before` files where it begins.
    pub(super) fn write(
        self,
        folder: &Path,
        number: u64,
        token_bytes: u32,
        account: &Account,
        finished_before: usize,
    ) -> Result<Part> {
        let (mut body, mut cells) = (Vec::new(), Vec::new());
        for (key, CellBuffer { tokens, index }) in self.cells {
            let (at, header) = (body.len() as u64, header_of(&index, token_bytes));
            body.extend(header.encode());
            body.extend(tokens);
            let path = tokens_path(folder, number);
            write_index(&index, &header, &mut body).map_err(DataError::io("collect", path))?;
            let (bytes, spans) = (body.len() as u64 - at, index.into_spans());
            cells.push(PartCell { domain: key.domain, quality: key.quality, at, bytes, spans });
        }
        let quarantine_at = body.len() as u64;
        body.extend(self.quarantine);
        let part = Part {
            number,
            bytes: body.len() as u64,
            blake3: blake3::hash(&body).to_hex().to_string(),
            cells,
            quarantine_at,
            quarantined: self.quarantined,
            num_documents: self.num_documents,
            finished: account.finished[finished_before..].to_vec(),
            open: account.open,
        };
        write_synced(&tokens_path(folder, number), &body)?;
        // Under another name first: half of it must not be taken for the part.
        let (path, partial) = (part_path(folder, number), folder.join("next.json"));
        write_synced(&partial, &part.seal())?;
        std::fs::rename(&partial, &path).map_err(DataError::io("put in place", path))?;
        sync_folder(folder)?;
        Ok(part)
    }
}

impl Part {
    /// Reads a part of a folder; none if it is not whole.
    pub(super) fn open(folder: &Path, number: u64) -> Option<Self> {
        let sealed = std::fs::read(part_path(folder, number)).ok()?;
        let part = Self::unseal(&sealed).filter(|part| part.number == number)?;
        let mut file = File::open(tokens_path(folder, number)).ok()?;
        let mut hasher = blake3::Hasher::new();
        let bytes = std::io::copy(&mut file, &mut hasher).ok()?;
        let whole = bytes == part.bytes && hasher.finalize().to_hex().as_str() == part.blake3;
        whole.then_some(part)
    }

    fn seal(&self) -> Vec<u8> {
        // Numbers and strings always have a JSON form.
        let json = serde_json::to_string(self).expect("a part as JSON");
        format!("{}\n{json}\n", blake3::hash(json.as_bytes()).to_hex()).into_bytes()
    }

    fn unseal(bytes: &[u8]) -> Option<Self> {
        let (checksum, json) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        let json = json.strip_suffix('\n')?;
        let sound = blake3::hash(json.as_bytes()).to_hex().as_str() == checksum;
        if sound { serde_json::from_str(json).ok() } else { None }
    }

    /// The cells it has documents of.
    pub(super) fn cells(&self) -> &[PartCell] {
        &self.cells
    }

    /// Hands every document of one of its cells to `take`, in order.
    pub(super) fn read_cell(
        &self,
        folder: &Path,
        cell: &PartCell,
        mut take: impl FnMut(&NewDocument<'_>) -> Result<()>,
    ) -> Result<()> {
        let path = tokens_path(folder, self.number);
        let bytes = read_range(&path, cell.at, cell.bytes)?;
        let header = bytes.first_chunk::<HEADER_BYTES>().map(Header::decode);
        let layout = header.as_ref().and_then(Layout::of);
        let (Some(header), Some(layout)) = (header, layout) else {
            return Err(DataError::DamagedHeader { path });
        };
        let view = View::new(&bytes, &layout, &header);
        let sources = cell.spans.iter().flat_map(|span| (0..span.documents).map(|_| span.source));
        let mut tokens = Vec::new();
        for (document, source) in (0..header.num_documents).zip(sources) {
            tokens.clear();
            view.read_tokens(view.document_range(document), &mut tokens);
            take(&NewDocument {
                id: &view.document_id(document),
                source,
                record: view.record(document),
                source_bytes: view.source_bytes(document),
                tokens: &tokens,
            })?;
        }
        Ok(())
    }

    /// Its lines of the quarantine file.
    pub(super) fn read_quarantine(&self, folder: &Path) -> Result<Vec<u8>> {
        let bytes = self.bytes - self.quarantine_at;
        read_range(&tokens_path(folder, self.number), self.quarantine_at, bytes)
    }
}

fn part_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:05}.json"))
}

fn tokens_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:05}.tokens"))
}

fn read_range(path: &Path, at: u64, len: u64) -> Result<Vec<u8>> {
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = vec![0; len as usize];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(DataError::io("read", path))
}
