//! Everything that can go wrong between a text file and a batch.

use std::path::PathBuf;

/// Result of this crate's fallible functions.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// An error of reading, tokenising, storing, mixing or loading data.
///
/// Causes are kept as sources: print the whole chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The operating system refused a file operation.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What we were doing, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A corpus file holds no line at all.
    #[error("`{file}` is empty; it needs one JSON object a line")]
    EmptyFile {
        /// The corpus file.
        file: String,
    },
    /// A line is not a JSON object.
    #[error("`{file}` line {line}: not a JSON object with a `text` field")]
    NotJson {
        /// The corpus file.
        file: String,
        /// Counted from 1, in the decompressed text.
        line: u64,
        /// What the parser found; its own line number counts within this one line.
        source: serde_json::Error,
    },
    /// A line is valid JSON, yet not an object.
    #[error("`{file}` line {line}: found a JSON value that starts with `{found}`, need an object")]
    NotAnObject {
        /// The corpus file.
        file: String,
        /// Counted from 1, in the decompressed text.
        line: u64,
        /// The first character of the value.
        found: char,
    },
    /// A known field has the wrong type.
    #[error("`{file}` line {line}: a field has the wrong type")]
    FieldType {
        /// The corpus file.
        file: String,
        /// Counted from 1, in the decompressed text.
        line: u64,
        /// Found and expected type.
        source: serde_json::Error,
    },
    /// A document has no `text`, or `text` is null.
    #[error("`{file}` line {line}: the object has no `text`; every document needs one")]
    MissingText {
        /// The corpus file.
        file: String,
        /// Counted from 1, in the decompressed text.
        line: u64,
    },
    /// A line is not UTF-8.
    #[error("`{file}` line {line}: invalid UTF-8 at byte {byte} of the line; convert the file")]
    InvalidUtf8 {
        /// The corpus file.
        file: String,
        /// Counted from 1, in the decompressed text.
        line: u64,
        /// Offset of the first bad byte within the line, from 0.
        byte: usize,
    },
    /// A compressed file ends in the middle of a frame.
    #[error(
        "`{file}` is truncated: the zstd data end inside a frame at byte {at_byte} of the \
         compressed file, after {lines} whole lines; fetch the file again"
    )]
    TruncatedArchive {
        /// The corpus file.
        file: String,
        /// Bytes of the compressed file that could be read.
        at_byte: u64,
        /// Lines read before the end.
        lines: u64,
    },
    /// A compressed file does not decompress.
    #[error(
        "`{file}` is damaged: no valid zstd data before byte {at_byte} of the compressed file, \
         after {lines} whole lines; fetch the file again"
    )]
    DamagedArchive {
        /// The corpus file.
        file: String,
        /// Bytes of the compressed file read so far, an upper bound of the damage's position.
        at_byte: u64,
        /// Lines read before the damage.
        lines: u64,
        /// The decoder's reason.
        source: std::io::Error,
    },
    /// A domain cannot name a folder.
    #[error(
        "document `{document}`: `domain` is {domain:?}; use 1 to 64 ASCII letters, digits, `_`, \
         `-` or `.`, not starting with `.`"
    )]
    DomainName {
        /// Id of the document.
        document: String,
        /// The domain found.
        domain: String,
    },
    /// A cell name that cannot be read.
    #[error("cell name is {found:?}; need `<domain>/q<quality>`, such as `poetry/q3`, or `c07q3`")]
    CellName {
        /// The name found.
        found: String,
    },
    /// Two cells would share a folder on file systems that ignore case.
    #[error("cells `{first}` and `{second}` differ only in case; rename one")]
    CellCase {
        /// The cell met first.
        first: String,
        /// The cell met second.
        second: String,
    },
    /// No source holds a document with text.
    #[error("found no document with text in {num_sources} source(s); need at least one")]
    NoDocuments {
        /// Number of sources read.
        num_sources: usize,
    },
    /// The tokenizer library refused something.
    #[error("tokenizer: cannot {action}")]
    Tokenizer {
        /// What we were doing, as a verb with its object.
        action: String,
        /// The library's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A tokenizer lacks one of the two document marks.
    #[error("tokenizer `{file}` has no token `{token}`, which marks the ends of documents")]
    MissingSpecialToken {
        /// The tokenizer file.
        file: String,
        /// The missing token.
        token: &'static str,
    },
    /// A vocabulary that cannot hold every byte and the two marks.
    #[error("`vocab_size` is {found}; need at least {needed}: 256 bytes and two document marks")]
    VocabSize {
        /// Asked for.
        found: usize,
        /// The smallest possible.
        needed: usize,
    },
    /// A token id outside the vocabulary.
    #[error("document `{document}`: token id {id} is outside the vocabulary of {vocab_size}")]
    TokenId {
        /// Id of the document.
        document: String,
        /// The id.
        id: u32,
        /// Number of ids.
        vocab_size: u32,
    },
    /// The place for a new store is taken.
    #[error("`{}` exists already; choose a new folder or remove it first", path.display())]
    StoreExists {
        /// The folder.
        path: PathBuf,
    },
    /// A store's manifest cannot be read as one.
    #[error("store manifest `{}` is not readable: {reason}; build the store again", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A store file was written in another format.
    #[error(
        "`{}` has store format version {found}, this build reads version {needed}; build the \
         store again",
        path.display()
    )]
    StoreVersion {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// Version of this build.
        needed: u32,
    },
    /// A store file is shorter or longer than the manifest says.
    #[error(
        "`{}` has {found} bytes, the manifest says {needed}; build the store again",
        path.display()
    )]
    FileSize {
        /// The file.
        path: PathBuf,
        /// Bytes on disk.
        found: u64,
        /// Bytes in the manifest.
        needed: u64,
    },
    /// The contents of a store file changed.
    #[error(
        "`{}` has checksum {found}, the record says {needed}: the file was altered; build the \
         store again",
        path.display()
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// BLAKE3 of what is on disk.
        found: String,
        /// BLAKE3 written when the store was built.
        needed: String,
    },
    /// A shard's own header contradicts the manifest.
    #[error("`{}`: header says `{field}` {found}, the manifest says {needed}", path.display())]
    ShardHeader {
        /// The shard.
        path: PathBuf,
        /// Name of the header field.
        field: &'static str,
        /// Value in the header.
        found: u64,
        /// Value in the manifest.
        needed: u64,
    },
    /// A store holds ids of another tokenizer.
    #[error(
        "store `{}` was tokenised with tokenizer {found}, not with {needed}; build the store \
         again or pass its own tokenizer",
        path.display()
    )]
    TokenizerMismatch {
        /// The store.
        path: PathBuf,
        /// Digest in the store.
        found: String,
        /// Digest of the tokenizer in use.
        needed: String,
    },
    /// A number in a mixture that cannot be.
    #[error("mixture: `{field}` is {found}; need {needed}")]
    Mixture {
        /// Path of the field, as in `stages[0].weights.poetry/q3`.
        field: String,
        /// The value found.
        found: String,
        /// The rule.
        needed: String,
    },
    /// A mixture weighs a cell that the store lacks.
    #[error("mixture: stage {stage} names cell `{cell}`, which the store does not have; {hint}")]
    UnknownCell {
        /// Index of the stage, from 0.
        stage: usize,
        /// The name in the mixture.
        cell: String,
        /// The cells there are.
        hint: String,
    },
    /// A cell with weight has not one whole page.
    #[error(
        "cell `{cell}` holds {found} tokens, a row of the longest length (`{field}`) needs \
         {needed}; plan shorter rows or set the cell's weight to 0"
    )]
    CellTooSmall {
        /// The cell.
        cell: String,
        /// Its tokens.
        found: u64,
        /// The row's tokens.
        needed: u64,
        /// Path of the field of [`RowLengths`](crate::RowLengths) that asks for such rows.
        field: String,
    },
    /// A row length that cannot be used.
    #[error("`seq_len` is {found}; need {needed}")]
    SeqLen {
        /// The value found.
        found: usize,
        /// The rule.
        needed: &'static str,
    },
    /// A number in the lengths of rows that cannot be.
    #[error("row lengths: `{field}` is {found}; need {needed}")]
    RowLengths {
        /// Path of the field, as in `changes[0].seq_len`.
        field: String,
        /// The value found.
        found: String,
        /// The rule.
        needed: String,
    },
    /// Batches that would cut a row.
    #[error(
        "a batch has {tokens_per_batch} tokens, which rows of {seq_len} tokens do not fill; use a \
         multiple of {seq_len}"
    )]
    BatchTokens {
        /// Tokens of a batch.
        tokens_per_batch: u64,
        /// Tokens of a row.
        seq_len: usize,
    },
    /// Rows change their length inside a batch.
    #[error(
        "rows of {seq_len} tokens begin with block {from_block}, inside batch {batch} of \
         {tokens_per_batch} tokens; a length begins with a batch: use block {next_block}, where \
         batch {next_batch} begins"
    )]
    ChangeInsideBatch {
        /// Tokens of a row behind the change.
        seq_len: usize,
        /// Block of the change.
        from_block: u64,
        /// Tokens of a batch.
        tokens_per_batch: u64,
        /// The batch in which the block begins.
        batch: u64,
        /// The next block that begins with a batch.
        next_block: u64,
        /// That batch.
        next_batch: u64,
    },
    /// A batch without rows.
    #[error("`batch_rows` is 0; need at least 1")]
    NoRows,
    /// The reading thread ended by a panic.
    #[error("the data thread panicked before step {step}: {message}")]
    LoaderPanicked {
        /// Step whose batch was due.
        step: u64,
        /// The panic's message.
        message: String,
    },
    /// A setting of clustering, scoring or cleaning that breaks a rule.
    #[error("`{field}` is {found}; need {needed}")]
    Setting {
        /// The setting.
        field: &'static str,
        /// Its value.
        found: String,
        /// The rule.
        needed: String,
    },
    /// A file that a cleaning pass does not expect.
    #[error("cleaning: file `{file}` is {problem}")]
    UnknownFile {
        /// The file.
        file: String,
        /// What is wrong with it and what is needed.
        problem: &'static str,
    },
    /// A decisions file that cannot be read as one.
    #[error("decisions file `{}`: {reason}; clean the sources again", path.display())]
    Decisions {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Decisions about other files than those of a build.
    #[error("decisions about `{file}`: found {found}, need {needed}; clean the sources again")]
    DecisionsSource {
        /// The file.
        file: String,
        /// What the build has.
        found: String,
        /// What was cleaned.
        needed: String,
    },
    /// A model file of clusters or of quality that cannot be read as one.
    #[error("model file `{}`: {reason}; make it again", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A library that could not fit a model.
    #[error("cannot fit {what}")]
    Fit {
        /// The model.
        what: &'static str,
        /// The library's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A document without what the choice of its cell needs.
    #[error("`{file}` record {record}: {problem}")]
    Unassigned {
        /// Name of its file.
        file: String,
        /// Its place in the file, from 1.
        record: u64,
        /// What was found and what is needed.
        problem: String,
    },
}

impl DataError {
    pub(crate) fn setting(
        field: &'static str,
        found: impl ToString,
        needed: impl Into<String>,
    ) -> Self {
        Self::Setting { field, found: found.to_string(), needed: needed.into() }
    }

    pub(crate) fn unassigned(document: &crate::Document, problem: String) -> Self {
        let (file, record) = (document.file.to_string(), document.record);
        Self::Unassigned { file, record, problem }
    }

    pub(crate) fn decisions(path: &std::path::Path, reason: impl Into<String>) -> Self {
        Self::Decisions { path: path.to_owned(), reason: reason.into() }
    }

    /// For `map_err` on file operations.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> DataError {
        let path = path.into();
        move |source| DataError::Io { action, path, source }
    }
}
