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
mod digests;
mod encoding;
mod merge;
mod part;
mod reading;
mod recipe;
mod settings;
mod work;
mod writing;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, mpsc::channel},
};

use self::{
    account::Account,
    budget::{Budget, StopAtEnd},
    digests::Digests,
    encoding::Message,
    part::Part,
    work::WorkFolder,
    writing::Writing,
};
use crate::{
    Assign, DataError, DocumentMarks, Judge, MANIFEST_FILE, ReadOptions, Result, ShardLimits,
    Source, Store, Tokenizer, TokenizerEntry,
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
    ///
    /// # Errors
    /// As [`Build::run`].
    pub fn run_in_cache(&self, cache: impl AsRef<Path>) -> Result<Built> {
        let digests = self.digests()?;
        self.run_in(&cache.as_ref().join(&digests.build[..16]), &digests)
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
        let mut writing = Writing::new(self, work, parts)?;
        let start = writing.start();
        let budget = Budget::new(self.settings.in_flight_bytes);
        let (job_sender, jobs) = channel();
        let (done_sender, done) = channel::<Message>();
        let jobs = Mutex::new(jobs);
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
        writing.finish()
    }

    fn tokenizer_entry(&self) -> TokenizerEntry {
        TokenizerEntry::new(self.tokenizer, self.marks)
    }
}
