//! From a [`RunConfig`] to live objects, in one visible order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fulmar_data::mixture::{CellSize, DEFAULT_MAX_EPOCHS, MixtureRun};
use fulmar_data::{EvalRows, MixtureConfig, RowSource, Source, Stage, Store, Tokenizer, corpus};
use fulmar_ep::World;
use fulmar_eval::suite::HELDOUT;
use fulmar_eval::{Suite, SuiteConfig};
use fulmar_model::ModelConfig;

use crate::config::{DataConfig, RunConfig};
use crate::error::TrainError;

/// What a run reads.
#[derive(Debug)]
pub struct RunData {
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Rows to train on.
    pub rows: Arc<RowSource>,
    /// Held-out rows.
    pub heldout: EvalRows,
    /// Names the contents of the training store, whatever its path.
    pub digest: String,
    /// The same of the held-out store.
    pub heldout_digest: String,
    /// Bytes of source text a token of the training store stands for.
    pub bytes_per_token: f64,
    /// Rows of the suites beside the held-out text, in the order of the recipe.
    pub suites: Vec<Suite>,
}

impl RunData {
    /// Rows taken from each cell of the store among the first `num_rows`, by arithmetic.
    pub fn consumed(&self, num_rows: u64) -> BTreeMap<String, u64> {
        consumed(&self.rows, num_rows)
    }
}

/// Rows taken from each cell of the store among the first `num_rows`.
pub(crate) fn consumed(rows: &RowSource, num_rows: u64) -> BTreeMap<String, u64> {
    rows.store().cell_names().into_iter().zip(rows.consumed(num_rows)).collect()
}

/// As [`data`] on one of several ranks: the first builds and says what is missing, the others open
/// what it has built.
///
/// # Errors
/// As [`data`], and if a peer is lost.
pub fn data_of_rank(config: &RunConfig, world: &World) -> Result<RunData, TrainError> {
    let first = if world.is_first() { Some(data(config)?) } else { None };
    world.all.barrier("token store")?;
    match first {
        Some(data) => Ok(data),
        None => open(config, true, &|_| {}),
    }
}

/// Opens or builds tokenizer, stores and mixture.
///
/// # Errors
/// Names the file or field: unreadable sources, a store of another tokenizer, a vocabulary larger
/// than the model's, weights of cells that do not exist, cells read more often than allowed.
pub fn data(config: &RunConfig) -> Result<RunData, TrainError> {
    open(config, true, &|line| println!("{line}"))
}

/// As [`data`], also where cells are read too often, and without a word.
///
/// # Errors
/// As [`data`].
pub(crate) fn data_unchecked(config: &RunConfig) -> Result<RunData, TrainError> {
    open(config, false, &|_| {})
}

/// The tokenizer alone, which must fit the model: the recipe's, or that of a store made before.
///
/// # Errors
/// As [`data`].
pub fn tokenizer(model: &ModelConfig, data: &DataConfig) -> Result<Tokenizer, TrainError> {
    let tokenizer = match (&data.tokenizer, &data.store) {
        (Some(path), _) => Tokenizer::from_file(path)?,
        (None, Some(store)) => Store::open_unverified(store)?.tokenizer()?,
        (None, None) => Tokenizer::shipped()?,
    };
    let (vocabulary, model) = (tokenizer.vocab_size() as usize, model.vocab_size);
    if vocabulary > model {
        let rule = format!("at least {vocabulary}, the vocabulary of the tokenizer");
        return Err(TrainError::config("model.vocab_size", model, rule));
    }
    Ok(tokenizer)
}

/// The held-out text alone, as a suite in rows of `seq_len`; nothing is said about stores.
///
/// # Errors
/// As [`data`].
pub fn heldout(
    tokenizer: &Tokenizer,
    data: &DataConfig,
    seq_len: usize,
) -> Result<Suite, TrainError> {
    let opener = Opener { data, tokenizer, say: &|_| {} };
    let store = opener.store(data.heldout_store.as_deref(), &data.heldout, corpus::heldout)?;
    Ok(Suite::of_store(HELDOUT, Arc::new(store), seq_len)?)
}

/// A suite in rows of `seq_len`, its store in the cache of `data`.
///
/// # Errors
/// As [`Suite::open`].
pub fn suite(
    suite: &SuiteConfig,
    tokenizer: &Tokenizer,
    data: &DataConfig,
    seq_len: usize,
) -> Result<Suite, TrainError> {
    Ok(Suite::open(suite, tokenizer, data.marks, &data.cache, seq_len)?)
}

fn open(config: &RunConfig, capped: bool, say: &dyn Fn(String)) -> Result<RunData, TrainError> {
    let data = &config.data;
    let tokenizer = tokenizer(&config.model, data)?;
    let opener = Opener { data, tokenizer: &tokenizer, say };
    let store = opener.store(data.store.as_deref(), &data.sources, corpus::train)?;
    let heldout = data.heldout_store.as_deref();
    let heldout = opener.store(heldout, &data.heldout, corpus::heldout)?;
    let heldout_digest = heldout.manifest().build_digest.clone();
    let manifest = store.manifest();
    let bytes_per_token = manifest.source_bytes() as f64 / manifest.num_tokens().max(1) as f64;
    let digest = manifest.build_digest.clone();
    let rows = rows(config, Arc::new(store))?;
    if capped && data.max_epochs.is_some() {
        mixture_run(config, rows.store()).report(0)?.require_epochs()?;
    }
    let heldout = EvalRows::new(Arc::new(heldout), config.model.max_seq_len)?;
    let rows = Arc::new(rows);
    let open_suite = |wanted| suite(wanted, &tokenizer, data, config.model.max_seq_len);
    let suites = config.evaluation.suites.iter().map(open_suite).collect::<Result<Vec<_>, _>>()?;
    suites.iter().for_each(|suite| say(account(suite)));
    Ok(RunData { tokenizer, rows, heldout, digest, heldout_digest, bytes_per_token, suites })
}

/// What a suite is, for people.
fn account(suite: &Suite) -> String {
    let documents = suite.rows.documents();
    let (empty, rejected) = suite.left_out();
    format!(
        "suite {}: {} documents under {} tags; {empty} empty, {rejected} rejected",
        suite.name,
        documents.len(),
        suite.tags().len(),
    )
}

/// The rows of a run's plan.
///
/// # Errors
/// If a cell of the mixture is not in the store, or too small for the plan's rows.
pub(crate) fn rows(config: &RunConfig, store: Arc<Store>) -> Result<RowSource, TrainError> {
    let run = mixture_run(config, &store);
    if config.data.simulated_epoching.is_none() {
        return Ok(RowSource::new(store, &run.mixture, &run.lengths, run.seed)?);
    }
    let visible = run.visible()?;
    let (mixture, seen) = (&visible.mixture, &visible.tokens);
    Ok(RowSource::of_seen(store, mixture, &run.lengths, seen, run.seed)?)
}

/// A run's mixture over the cells of its store, as a plan without data.
pub fn mixture_run(config: &RunConfig, store: &Store) -> MixtureRun {
    let data = &config.data;
    let mixture = match &data.stages {
        Some(stages) => MixtureConfig { block_rows: data.block_rows, stages: stages.clone() },
        None => MixtureConfig::proportional(store, config.longest_row(), data.block_rows),
    };
    MixtureRun {
        cells: CellSize::of_store(store),
        mixture,
        lengths: config.row_lengths(),
        tokens_per_step: config.tokens_per_step(),
        steps: config.schedule.horizon(),
        seed: config.seed,
        epoching: data.simulated_epoching.clone(),
        epoching_tokens: Some(config.tokens_per_step() * config.schedule.steps),
        max_epochs: data.max_epochs.unwrap_or(DEFAULT_MAX_EPOCHS),
    }
}

/// Reads on in the rows of the plan `config`, whose open stage is `shape`: rows of its length to train
/// and to evaluate on.
///
/// # Errors
/// If a cell is too small for rows of that length.
pub fn reshape(
    data: &mut RunData,
    config: &RunConfig,
    shape: &RunConfig,
) -> Result<(), TrainError> {
    if *data.rows.lengths() != config.row_lengths().plan(config.data.block_rows)? {
        data.rows = Arc::new(rows(config, data.rows.store().clone())?);
    }
    let seq_len = shape.model.max_seq_len;
    if data.heldout.seq_len() != seq_len {
        data.heldout = EvalRows::new(data.heldout.store().clone(), seq_len)?;
    }
    for suite in &mut data.suites {
        if suite.rows.seq_len() != seq_len {
            *suite = suite.in_rows_of(seq_len)?;
        }
    }
    Ok(())
}

/// The stages of a mixture that follow from the tokens of the store's cells.
///
/// # Errors
/// As [`data`].
pub fn proportional_stages(config: &RunConfig) -> Result<Vec<Stage>, TrainError> {
    let store = data(config)?.rows.store().clone();
    let longest = config.longest_row();
    Ok(MixtureConfig::proportional(&store, longest, config.data.block_rows).stages)
}

/// What stores are opened with.
struct Opener<'a> {
    data: &'a DataConfig,
    tokenizer: &'a Tokenizer,
    say: &'a dyn Fn(String),
}

impl Opener<'_> {
    /// A store made before, or one of `files`, or one of the shipped corpus.
    fn store(
        &self,
        made: Option<&Path>,
        files: &[std::path::PathBuf],
        shipped: fn() -> Source,
    ) -> Result<Store, TrainError> {
        if let Some(path) = made {
            let store = Store::open(path)?;
            store.require_tokenizer(self.tokenizer.digest())?;
            return Ok(store);
        }
        let sources = if files.is_empty() {
            vec![shipped()]
        } else {
            files.iter().map(Source::file).collect()
        };
        let names: Vec<&str> = sources.iter().map(Source::name).collect();
        let cache = &self.data.cache;
        let names = names.join(", ");
        (self.say)(format!("store of {names}: opened or built in {}", cache.display()));
        let marks = self.data.marks;
        let (store, _) = fulmar_data::build_or_open(&sources, self.tokenizer, marks, cache)?;
        self.report_ledgers(&store);
        Ok(store)
    }

    /// Documents that were left out are counted, and the count is said.
    fn report_ledgers(&self, store: &Store) {
        for source in &store.manifest().sources {
            if source.ledger.empty > 0 {
                let (name, empty) = (&source.name, source.ledger.empty);
                (self.say)(format!("{name}: {empty} empty documents left out"));
            }
        }
    }
}
