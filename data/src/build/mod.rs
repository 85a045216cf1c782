//! Sources → token store: read, judged, tokenised and written at once, and resumable.
//!
//! ```text
//! one thread        each thread              the calling thread
//! reading  ─ jobs ─▶ judges, cell, tokens ─▶ in order: account, part ─▶ parts on disk ─▶ store
//! ```
//!
//! A part is whole or not there. A build that was killed goes on behind its last whole part: it reads
//! the file in whose middle that part ends again, and tokenises none of its documents. The store is
//! put together from the parts and renamed into place. Its bytes are a function of sources, tokenizer,
//! marks, rules and shard limits alone.

mod account;
mod budget;
mod encoding;
mod merge;
mod part;
mod reading;
mod recipe;
mod settings;
mod work;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, mpsc::channel},
    time::Instant,
};

use rayon::prelude::*;

use self::{
    account::{Account, Finished},
    budget::{Budget, StopAtEnd},
    encoding::{Done, Message, Outcome},
    part::{Part, PartBuffer},
    reading::Then,
    work::WorkFolder,
};
use crate::{
    Assign, DataError, DocumentMarks, FORMAT_VERSION, Judge, MANIFEST_FILE, NewDocument,
    ReadOptions, Result, ShardLimits, Source, Store, Tokenizer, TokenizerEntry,
    store::{check_cell, token_bytes},
};

pub use recipe::{BuildRecipe, CellsConfig};
pub use settings::BuildSettings;

/// A store to be built.
///
/// ```no_run
/// use fulmar_data::{Build, DocumentMarks, Source, Tokenizer};
///
/// let tokenizer = Tokenizer::shipped()?;
/// let sources = vec![Source::file("books.jsonl.zst")];
/// let built = Build::new(sources, &tokenizer, DocumentMarks::default()).run("books")?;
/// println!("{}", built.store.manifest().account());
/// # Ok::<(), fulmar_data::DataError>(())
/// ```
pub struct Build<'a> {
    sources: Vec<Source>,
    tokenizer: &'a Tokenizer,
    marks: DocumentMarks,
    vocab_size: u32,
    judges: Vec<Box<dyn Judge + 'a>>,
    assign: Option<Box<dyn Assign + 'a>>,
    reading: ReadOptions,
    shards: ShardLimits,
    settings: BuildSettings,
    fresh: bool,
}

/// What a build has made, and what it did for that.
#[derive(Debug)]
pub struct Built {
    /// The store.
    pub store: Store,
    /// Documents that this process tokenised; the others came from parts of one that was killed.
    pub tokenised: u64,
    /// Documents taken over from such parts.
    pub taken_over: u64,
    /// Whether the store lay there already, whole and of the same things.
    pub opened: bool,
}

/// Names of what goes into a store.
struct Digests {
    /// Of all that decides the contents.
    build: String,
    /// Of the files, in order.
    sources: Vec<String>,
}

impl<'a> Build<'a> {
    /// A build of these sources, in this order, with cells as the documents name them.
    pub fn new(sources: Vec<Source>, tokenizer: &'a Tokenizer, marks: DocumentMarks) -> Self {
        Self {
            sources,
            tokenizer,
            marks,
            vocab_size: tokenizer.vocab_size(),
            judges: Vec::new(),
            assign: None,
            reading: ReadOptions::STRICT,
            shards: ShardLimits::default(),
            settings: BuildSettings::default(),
            fresh: false,
        }
    }

    /// Adds a judge, which sees the documents that those before have kept.
    #[must_use]
    pub fn judge(mut self, judge: Box<dyn Judge + 'a>) -> Self {
        self.judges.push(judge);
        self
    }

    /// Sets what chooses cells.
    #[must_use]
    pub fn assign(mut self, assign: Box<dyn Assign + 'a>) -> Self {
        self.assign = Some(assign);
        self
    }

    /// Refuses documents with ids at or above the vocabulary of a model.
    #[must_use]
    pub fn vocab_size(mut self, vocab_size: u32) -> Self {
        self.vocab_size = vocab_size.min(self.tokenizer.vocab_size());
        self
    }

    /// Sets how sources are read. Without it the first bad record is an error.
    #[must_use]
    pub fn reading(mut self, options: ReadOptions) -> Self {
        self.reading = options;
        self
    }

    /// Sets where shards end.
    #[must_use]
    pub fn shards(mut self, shards: ShardLimits) -> Self {
        self.shards = shards;
        self
    }

    /// Sets memory and parts.
    #[must_use]
    pub fn settings(mut self, settings: BuildSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Begins anew where an unfinished build of other things lies.
    #[must_use]
    pub fn fresh(mut self, fresh: bool) -> Self {
        self.fresh = fresh;
        self
    }

    /// Builds the store at `out_dir`, on as many threads as the current rayon pool has beside one
    /// that reads and the calling one, which writes.
    ///
    /// What an earlier process has done of the same build and in the same place is taken over. Two
    /// at once are safe: the second waits, and opens what the first published. An error publishes
    /// nothing; parts that are whole stay in `.<name>.partial` beside `out_dir` for a next try.
    ///
    /// # Errors
    /// Those of [`DocumentReader`](crate::DocumentReader), [`Tokenizer`] and
    /// [`StoreWriter`](crate::StoreWriter), the first in document order; [`DataError::StoreExists`]
    /// when something else lies at `out_dir`; [`DataError::OtherBuild`].
    pub fn run(&self, out_dir: impl AsRef<Path>) -> Result<Built> {
        self.run_in(out_dir.as_ref(), &self.digests()?)
    }

    /// As [`Build::run`] in a folder of a cache, which is named by the digest of the build.
    pub(crate) fn run_in_cache(&self, cache: &Path) -> Result<Built> {
        let digests = self.digests()?;
        self.run_in(&cache.join(&digests.build[..16]), &digests)
    }

    fn run_in(&self, out_dir: &Path, digests: &Digests) -> Result<Built> {
        if out_dir.exists() && !WorkFolder::is_beside(out_dir) {
            return self.open(out_dir, &digests.build);
        }
        let work = WorkFolder::lock(out_dir)?;
        if out_dir.exists() {
            // Of one who published the store and was killed before the folder was gone, or whom we
            // have waited for.
            work.remove()?;
            return self.open(out_dir, &digests.build);
        }
        let mut parts = work.take_over(&digests.build, self.fresh)?;
        let taken_over: u64 = parts.iter().map(|part| part.num_documents).sum();
        if taken_over > 0 {
            tracing::info!(parts = parts.len(), documents = taken_over, "going on");
        }
        let store = self
            .make_parts(&work, &mut parts)
            .and_then(|account| self.publish(&work, &parts, &account, digests, out_dir));
        let tokenised = parts.iter().map(|part| part.num_documents).sum::<u64>() - taken_over;
        match store {
            Ok(store) => {
                work.remove()?;
                Ok(Built { store, tokenised, taken_over, opened: false })
            }
            Err(error) => {
                if parts.is_empty() || matches!(error, DataError::NoDocuments { .. }) {
                    work.remove()?;
                }
                Err(error)
            }
        }
    }

    /// The digest that names what this build makes.
    ///
    /// # Errors
    /// [`DataError::Io`] for a source that cannot be read.
    pub fn digest(&self) -> Result<String> {
        Ok(self.digests()?.build)
    }

    /// Opens a store of the same things.
    fn open(&self, out_dir: &Path, digest: &str) -> Result<Built> {
        let is_store = out_dir.join(MANIFEST_FILE).exists();
        if !is_store || Store::open_unverified(out_dir)?.manifest().build_digest != digest {
            return Err(DataError::StoreExists { path: out_dir.to_owned() });
        }
        let store = Store::open(out_dir)?;
        Ok(Built { store, tokenised: 0, taken_over: 0, opened: true })
    }

    /// Reads on behind the parts there are, until all sources are in parts.
    fn make_parts(&self, work: &WorkFolder, parts: &mut Vec<Part>) -> Result<Account> {
        let mut account = Account::default();
        let mut folded_names = BTreeMap::new();
        for part in parts.iter() {
            account.finished.extend(&part.finished);
            account.open = part.open;
            for cell in part.cells() {
                check_cell(&cell.key(), "", &mut folded_names)?;
            }
        }
        let start = account.start();
        let budget = Budget::new(self.settings.in_flight_bytes);
        let (job_sender, jobs) = channel();
        let (done_sender, done) = channel::<Message>();
        let jobs = Mutex::new(jobs);
        let mut writing = Writing {
            build: self,
            work,
            parts,
            account,
            folded_names,
            part: PartBuffer::default(),
            finished_before: start.source,
            began: Instant::now(),
        };
        std::thread::scope(|scope| {
            let _stop = StopAtEnd(&budget);
            let (budget, jobs) = (&budget, &jobs);
            scope.spawn(move || self.read(start, budget, &job_sender));
            for _ in 0..rayon::current_num_threads() {
                let done_sender = done_sender.clone();
                scope.spawn(move || self.encode_jobs(jobs, budget, &done_sender));
            }
            drop(done_sender);
            let (mut next, mut early) = (0, BTreeMap::new());
            for message in done {
                let message = message.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                early.insert(message.number, message);
                while let Some(done) = early.remove(&next) {
                    let bytes = done.bytes;
                    writing.take(done)?;
                    budget.give_back(bytes);
                    next += 1;
                }
            }
            Ok(())
        })?;
        writing.end_part()?;
        Ok(writing.account)
    }

    fn tokenizer_entry(&self) -> TokenizerEntry {
        TokenizerEntry::new(self.tokenizer, self.marks)
    }

    /// Digests of the judges and of what chooses cells, in the order of their work.
    fn rules(&self) -> Vec<String> {
        let judges = self.judges.iter().map(|judge| judge.digest());
        judges.chain(self.assign.iter().map(|assign| assign.digest())).collect()
    }

    fn digests(&self) -> Result<Digests> {
        // Collected first, so that the error is that of the first file.
        let sources: Vec<Result<String>> = self.sources.par_iter().map(Source::digest).collect();
        let sources = sources.into_iter().collect::<Result<Vec<String>>>()?;
        let mut hasher = blake3::Hasher::new();
        let DocumentMarks { bos, eos } = self.marks;
        hasher.update(&FORMAT_VERSION.to_le_bytes());
        hasher.update(self.tokenizer.digest().as_bytes());
        hasher.update(&self.tokenizer.bos_id().to_le_bytes());
        hasher.update(&self.tokenizer.eos_id().to_le_bytes());
        hasher.update(&[u8::from(bos), u8::from(eos)]);
        hasher.update(&self.shards.tokens.to_le_bytes());
        hasher.update(&self.shards.documents.to_le_bytes());
        let ReadOptions { strict, limits, checks_domain } = self.reading;
        hasher.update(&limits.max_bytes.to_le_bytes());
        hasher.update(&limits.min_characters.to_le_bytes());
        hasher.update(&[u8::from(strict), u8::from(checks_domain)]);
        for rule in self.rules() {
            hasher.update(rule.as_bytes());
        }
        for (source, digest) in self.sources.iter().zip(&sources) {
            // The name is content too: it is part of default document ids.
            hasher.update(&(source.name().len() as u64).to_le_bytes());
            hasher.update(source.name().as_bytes());
            hasher.update(digest.as_bytes());
            hasher.update(source.meaning_digest().unwrap_or_default().as_bytes());
        }
        Ok(Digests { build: hasher.finalize().to_hex().to_string(), sources })
    }
}

/// The writing end: takes jobs in order, and makes parts of them.
struct Writing<'a> {
    build: &'a Build<'a>,
    work: &'a WorkFolder,
    parts: &'a mut Vec<Part>,
    account: Account,
    folded_names: BTreeMap<String, String>,
    part: PartBuffer,
    /// Files that had ended when the part began.
    finished_before: usize,
    began: Instant,
}

impl Writing<'_> {
    fn take(&mut self, done: Done) -> Result<()> {
        for outcome in done.outcomes {
            self.take_outcome(done.source, outcome?)?;
        }
        match done.then {
            Then::More => {}
            Then::End(read) => {
                self.account.finish(read);
                self.say_end(done.source as usize);
            }
            Then::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn take_outcome(&mut self, source: u32, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Unread(reject) => {
                self.account.pass();
                self.part.quarantine(&reject);
            }
            Outcome::LeftOut(reject) => {
                self.account.leave_out(reject.reason, reject.raw_bytes);
                self.part.quarantine(&reject);
            }
            Outcome::Kept { id, record, cell, source_bytes, tokens } => {
                check_cell(&cell, &id, &mut self.folded_names)?;
                self.account.keep(tokens.len());
                let tokens = &tokens;
                let document = NewDocument { id: &id, source, record, source_bytes, tokens };
                let width = token_bytes(self.build.tokenizer.vocab_size());
                self.part.append(cell, &document, width);
            }
        }
        if self.part.held_bytes >= self.build.settings.part_bytes {
            self.end_part()?;
        }
        Ok(())
    }

    /// Writes what there is, if there is anything, as a part.
    fn end_part(&mut self) -> Result<()> {
        let nothing = self.part.num_documents == 0
            && self.part.is_without_lines()
            && self.finished_before == self.account.finished.len();
        if nothing {
            return Ok(());
        }
        let number = self.parts.len() as u64;
        let width = token_bytes(self.build.tokenizer.vocab_size());
        let buffer = std::mem::take(&mut self.part);
        let documents = buffer.num_documents;
        let folder = self.work.parts();
        let part = buffer.write(&folder, number, width, &self.account, self.finished_before)?;
        self.finished_before = self.account.finished.len();
        self.parts.push(part);
        tracing::info!(
            part = number,
            documents,
            seconds = self.began.elapsed().as_secs_f32(),
            "part is whole"
        );
        Ok(())
    }

    fn say_end(&self, source: usize) {
        if let Some(Finished { ledger, num_tokens }) = self.account.finished.last() {
            tracing::info!(
                source = self.build.sources[source].name(),
                documents = ledger.documents,
                empty = ledger.empty,
                kept = ledger.kept,
                text_bytes = ledger.text_bytes,
                tokens = num_tokens,
                "tokenised"
            );
        }
    }
}
