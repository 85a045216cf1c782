//! Documents → token store.

use std::path::Path;

use rayon::prelude::*;

use crate::{
    DataError, Document, DocumentMarks, DocumentReader, FORMAT_VERSION, Result, Source,
    SourceEntry, Store, StoreWriter, Tokenizer, TokenizerEntry,
};

/// Text that is read before it is tokenised, at least one document. Enough to keep many cores busy.
/// Memory beyond it is that of the documents in the tokenizer's hands, one per thread: some 100
/// bytes per byte of text, 2 GB for a document of 20 MB.
const BATCH_BYTES: usize = 4 << 20;

/// Documents between two progress messages.
const PROGRESS_DOCUMENTS: u64 = 100_000;

/// Where the store of [`build_or_open`] came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOrigin {
    /// Tokenised now.
    Built,
    /// Found in the cache.
    Opened,
}

/// Tokenises sources into a new store at `out_dir`.
///
/// Documents are tokenised in parallel on the current rayon pool and written in their order, so
/// that the store's bytes do not depend on the number of threads. Nothing lies at `out_dir` unless
/// the whole store does.
///
/// # Errors
/// Those of [`DocumentReader`], [`Tokenizer`] and [`StoreWriter`]; the first in document order.
pub fn build_store(
    sources: &[Source],
    tokenizer: &Tokenizer,
    marks: DocumentMarks,
    out_dir: impl AsRef<Path>,
) -> Result<Store> {
    let digests: Vec<String> = sources.iter().map(Source::digest).collect::<Result<_>>()?;
    let entry = TokenizerEntry::new(tokenizer, marks);
    let build_digest = build_digest(sources, &digests, &entry);
    let mut writer = StoreWriter::create(out_dir, entry)?;
    let mut entries = Vec::new();
    for (source, digest) in sources.iter().zip(digests) {
        let entry = add_source(&mut writer, source, digest, tokenizer, marks)?;
        tracing::info!(
            source = source.name(),
            documents = entry.ledger.documents,
            empty = entry.ledger.empty,
            kept = entry.ledger.kept,
            text_bytes = entry.ledger.text_bytes,
            tokens = entry.num_tokens,
            "tokenised"
        );
        entries.push(entry);
    }
    writer.finish(&build_digest, entries)
}

/// Opens the store of these sources, tokenizer and marks in a cache folder, or builds it there.
///
/// Each combination has a folder of its own, named by its digest: changed sources never overwrite a
/// store that another run reads. Two builders at once are safe; the second opens what the first
/// published.
///
/// # Errors
/// As [`build_store`] and [`Store::open`]: a damaged store in the cache is reported, not replaced.
pub fn build_or_open(
    sources: &[Source],
    tokenizer: &Tokenizer,
    marks: DocumentMarks,
    cache_dir: impl AsRef<Path>,
) -> Result<(Store, StoreOrigin)> {
    let digests: Vec<String> = sources.iter().map(Source::digest).collect::<Result<_>>()?;
    let digest = build_digest(sources, &digests, &TokenizerEntry::new(tokenizer, marks));
    let path = cache_dir.as_ref().join(&digest[..16]);
    if !path.exists() {
        match build_store(sources, tokenizer, marks, &path) {
            Ok(store) => return Ok((store, StoreOrigin::Built)),
            // Somebody else was faster, between our look and our rename.
            Err(DataError::StoreExists { .. } | DataError::Io { .. }) if path.exists() => {}
            Err(error) => return Err(error),
        }
    }
    let store = Store::open(&path)?;
    tracing::info!(path = %path.display(), tokens = store.manifest().num_tokens(), "opened store");
    Ok((store, StoreOrigin::Opened))
}

/// Digest of all that decides a store's contents.
fn build_digest(sources: &[Source], digests: &[String], tokenizer: &TokenizerEntry) -> String {
    let mut hasher = blake3::Hasher::new();
    let DocumentMarks { bos, eos } = tokenizer.marks;
    hasher.update(&FORMAT_VERSION.to_le_bytes());
    hasher.update(tokenizer.digest.as_bytes());
    hasher.update(&[u8::from(bos), u8::from(eos)]);
    for (source, digest) in sources.iter().zip(digests) {
        // The name is content too: it is part of default document ids.
        hasher.update(&(source.name().len() as u64).to_le_bytes());
        hasher.update(source.name().as_bytes());
        hasher.update(digest.as_bytes());
        hasher.update(source.meaning_digest().unwrap_or_default().as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn add_source(
    writer: &mut StoreWriter,
    source: &Source,
    digest: String,
    tokenizer: &Tokenizer,
    marks: DocumentMarks,
) -> Result<SourceEntry> {
    let mut reader = DocumentReader::open(source)?;
    let (mut num_tokens, mut reported) = (0, 0);
    loop {
        let (documents, error) = read_batch(&mut reader);
        let encode = |document: &Document| tokenizer.encode_document(&document.text, marks);
        let encoded: Vec<Result<Vec<u32>>> = documents.par_iter().map(encode).collect();
        for (document, tokens) in documents.iter().zip(encoded) {
            let tokens = tokens?;
            num_tokens += tokens.len() as u64;
            let bytes = document.text.len() as u64;
            writer.append(&document.cell(), &document.id, bytes, &tokens)?;
        }
        if let Some(error) = error {
            return Err(error);
        }
        let ledger = reader.ledger();
        if documents.is_empty() {
            return Ok(SourceEntry {
                name: source.name().to_owned(),
                blake3: digest,
                ledger,
                num_tokens,
            });
        }
        if ledger.kept >= reported + PROGRESS_DOCUMENTS {
            reported = ledger.kept;
            tracing::info!(source = source.name(), documents = reported, num_tokens, "tokenising");
        }
    }
}

/// The next documents, and the error that ended them.
fn read_batch(reader: &mut DocumentReader) -> (Vec<Document>, Option<DataError>) {
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        match reader.next() {
            Some(Ok(document)) => {
                bytes += document.text.len();
                documents.push(document);
            }
            Some(Err(error)) => return (documents, Some(error)),
            None => break,
        }
    }
    (documents, None)
}
