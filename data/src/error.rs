//! Everything that can go wrong between a text file and a batch.

use std::path::PathBuf;

use crate::{Fault, Place};

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
    /// A record cannot be read as a document.
    #[error("{place}: {fault}")]
    BadRecord {
        /// File and record.
        place: Place,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A file in a format or compression that is not read.
    #[error(
        "`{file}` is {found}, which is not read; convert it to UTF-8 text, plain or compressed \
         with gzip or zstd"
    )]
    UnreadableFormat {
        /// The corpus file.
        file: String,
        /// What its first bytes say.
        found: &'static str,
    },
    /// A compressed file ends too early.
    #[error(
        "`{file}` is truncated: its {archive} data end at byte {at_byte} of the file, after \
         {records} whole records; fetch the file again"
    )]
    TruncatedArchive {
        /// The corpus file.
        file: String,
        /// `gzip`, `zstd` or `Parquet`.
        archive: &'static str,
        /// Bytes of the file that could be read.
        at_byte: u64,
        /// Records read before the end.
        records: u64,
    },
    /// A compressed file does not decompress.
    #[error(
        "`{file}` is damaged: no valid {archive} data before byte {at_byte} of the file, after \
         {records} whole records ({reason}); fetch the file again"
    )]
    DamagedArchive {
        /// The corpus file.
        file: String,
        /// `gzip`, `zstd` or `Parquet`.
        archive: &'static str,
        /// Bytes of the file taken so far, an upper bound of the damage's position; for Parquet, where
        /// the page or the footer begins that cannot be read.
        at_byte: u64,
        /// Records read before the damage.
        records: u64,
        /// The decoder's reason.
        reason: String,
    },
    /// A Parquet file lacks a column.
    #[error("`{file}` has no column `{column}` of one value a row; its columns are {there}")]
    NoColumn {
        /// The corpus file.
        file: String,
        /// The column that is needed.
        column: String,
        /// Names of the columns there are.
        there: String,
    },
    /// A Parquet source that is no file.
    #[error("`{file}` is Parquet compiled into the program; only files on disk are read as such")]
    ParquetInMemory {
        /// Name of the source.
        file: String,
    },
    /// A field of a recipe's source that cannot be.
    #[error("source `{name}`: `{field}` is {found}; need {needed}")]
    SourceField {
        /// Name of the source.
        name: String,
        /// Path of the field, as in `columns.domain`.
        field: String,
        /// The value found.
        found: String,
        /// The rule.
        needed: &'static str,
    },
    /// Two sources of a recipe with one name.
    #[error("two sources are called `{name}`; rename one")]
    SourceNames {
        /// The name.
        name: String,
    },
    /// A path of a source without a file.
    #[error("source `{name}`: `{pattern}` matches no file in `{}`", folder.display())]
    NoMatch {
        /// Name of the source.
        name: String,
        /// The path in the recipe.
        pattern: String,
        /// Where relative paths start.
        folder: PathBuf,
    },
    /// A file that is read twice.
    #[error("`{file}` is matched by {first} and by {second}; a file is read once: narrow one")]
    MatchedTwice {
        /// The file.
        file: String,
        /// Path and source that found it.
        first: String,
        /// The others.
        second: String,
    },
    /// A file whose name cannot be kept.
    #[error("`{}`: the name is not UTF-8; rename the file", path.display())]
    FileName {
        /// The file.
        path: PathBuf,
    },
    /// Columns for a file that has none.
    #[error(
        "source `{name}`: `{file}` is a text file, which has no columns; leave out `columns` and \
         `require`, or say `format`"
    )]
    TextColumns {
        /// Name of the source.
        name: String,
        /// The file.
        file: String,
    },
    /// A domain cannot name a folder.
    #[error(
        "document `{document}`: `domain` is {domain:?}; use 1 to 64 ASCII letters, digits, `_`, \
         `-` or `.`, not starting with `.` nor ending with `.json` or `.jsonl`"
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
    #[error(
        "tokenizer `{file}` has no token `{token}`, which marks the ends of documents; name its own \
         in `marks.bos_token` and `marks.eos_token`"
    )]
    MissingSpecialToken {
        /// The tokenizer file.
        file: String,
        /// The missing token.
        token: String,
    },
    /// A tokenizer that would encode a text differently each time.
    #[error(
        "tokenizer `{file}`: `model.dropout` is above 0, which draws tokens by chance; need null"
    )]
    TokenizerDropout {
        /// The tokenizer file.
        file: String,
    },
    /// A text whose words are a document mark to the tokenizer.
    #[error(
        "document `{document}`: its text holds token {id}, which marks the ends of documents; have \
         the tokenizer call that token special"
    )]
    MarkInText {
        /// Id of the document.
        document: String,
        /// The mark.
        id: u32,
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
    /// A data recipe is not one.
    #[error("`{}` is no data recipe", path.display())]
    RecipeFile {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A field of a data recipe that cannot be.
    #[error("data recipe: `{field}` is {found}; need {needed}")]
    Recipe {
        /// Path of the field, as in `sources[0].paths`.
        field: String,
        /// The value found.
        found: String,
        /// The rule.
        needed: String,
    },
    /// The work folder of a store holds the parts of another one.
    #[error(
        "`{}` holds {parts} part(s) of an unfinished build of other sources or settings; remove it, \
         or build into another folder",
        path.display()
    )]
    OtherBuild {
        /// The folder.
        path: PathBuf,
        /// Its whole parts.
        parts: usize,
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
    /// A shard's header does not match its own checksum.
    #[error("`{}`: its header was altered; build the store again", path.display())]
    DamagedHeader {
        /// The shard.
        path: PathBuf,
    },
    /// A shard is not what it was when the store was opened.
    #[error(
        "`{}` {what} while the store was in use; what was read from it may be wrong: put the shard \
         back, check with `train data verify` and go on from before",
        path.display()
    )]
    ShardChanged {
        /// The shard.
        path: PathBuf,
        /// What happened to it.
        what: &'static str,
    },
    /// A store was written without its tokenizer.
    #[error("store `{}` has no tokenizer of its own; pass the one it was made with", path.display())]
    NoTokenizer {
        /// The store.
        path: PathBuf,
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
    /// A table of cells that cannot be read as one.
    #[error("cells of `{origin}`, line {line}: {problem}")]
    CellTable {
        /// Where the table comes from.
        origin: String,
        /// Counted from 1.
        line: u64,
        /// What is wrong, and what is needed.
        problem: String,
    },
    /// Cells with weight of which a run would not see one page.
    #[error(
        "{} cells have weight and not one whole page of {page_len} tokens at {:.4}% of their \
         tokens: {}; set their weights to 0, plan shorter rows or a longer run, or name a tail cell",
        cells.len(),
        100.0 * share,
        cells.join(", ")
    )]
    EmptyCells {
        /// Their names.
        cells: Vec<String>,
        /// Tokens of a page.
        page_len: u64,
        /// Share of each cell that the run sees.
        share: f64,
    },
    /// A plan repeats cells more often than is allowed.
    #[error(
        "{} cells would be read more than {max_epochs} times: {}; lower their weights, shorten the \
         run or raise `max_epochs`",
        cells.len(),
        cells.join(", ")
    )]
    TooManyEpochs {
        /// The cap.
        max_epochs: f64,
        /// Their names, each with its epochs at the end of the run.
        cells: Vec<String>,
    },
    /// A changed mixture would have read other rows before the change.
    #[error(
        "the change moves the past: {what} at block {block} (step {at_block_step}), before step \
         {step}; only what begins with block {next_block} or later can change"
    )]
    PastMoves {
        /// What differs.
        what: String,
        /// First block that differs.
        block: u64,
        /// The step in which it begins.
        at_block_step: u64,
        /// Where the run stands.
        step: u64,
        /// The first block that is not begun there.
        next_block: u64,
    },
    /// A mixture file that cannot be read.
    #[error("mixture `{origin}`: {problem}")]
    MixtureFile {
        /// The file.
        origin: String,
        /// What is wrong, and what is needed.
        problem: String,
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
