use std::path::{Path, PathBuf};

use burn::tensor::DType;
use fulmar_model::Role;
use thiserror::Error;

use crate::storage::Storage;

/// What can stop a run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A recipe or override that cannot be read.
    #[error("{origin}, field `{field}`: {problem}")]
    Recipe {
        /// The recipe's path, or the override.
        origin: String,
        /// Path of the field within the recipe.
        field: String,
        /// What is wrong, and the nearest known name where one is near.
        problem: String,
    },
    /// A value that breaks a rule.
    #[error("field `{field}` is {found}, needed {rule}")]
    Config {
        /// Path of the field within the recipe.
        field: String,
        /// Its value.
        found: String,
        /// The rule.
        rule: String,
    },
    /// An exchange that breaks a rule.
    #[error("`{place}`: {source}")]
    Dispatch {
        /// Path of the exchange within the recipe.
        place: String,
        /// The rule.
        source: Box<fulmar_ep::EpError>,
    },
    /// The first rank that failed, of several.
    #[error("rank {rank}: {source}")]
    Rank {
        /// The rank.
        rank: usize,
        /// What happened there.
        source: Box<TrainError>,
    },
    /// A rank that panicked.
    #[error("panicked: {message}")]
    Panic {
        /// The panic's message.
        message: String,
    },
    /// A model configuration, weight or forward pass.
    #[error(transparent)]
    Model(#[from] fulmar_model::ModelError),
    /// A collective that failed.
    #[error(transparent)]
    Transport(#[from] fulmar_ep::transport::TransportError),
    /// Corpus, tokenizer, store or mixture.
    #[error(transparent)]
    Data(#[from] fulmar_data::DataError),
    /// An exchange between shards, or the layout of ranks.
    #[error(transparent)]
    Ep(#[from] fulmar_ep::EpError),
    /// Evaluation.
    #[error(transparent)]
    Eval(#[from] fulmar_eval::EvalError),
    /// A suite that cannot be evaluated, or a file of document sums.
    #[error(transparent)]
    Suite(#[from] fulmar_eval::SuiteError),
    /// A ladder from which nothing can be forecast.
    #[error(transparent)]
    Forecast(#[from] fulmar_eval::forecast::ForecastError),
    /// Runs that are no ladder, or a forecast that was altered.
    #[error(transparent)]
    Rungs(#[from] crate::forecast::RungsError),
    /// A parameter without a role or a role without a parameter.
    #[error("`{path}` has no {missing}; every trained parameter needs exactly one role")]
    Role {
        /// Path of the parameter.
        path: String,
        /// What is missing: `role` or `parameter`.
        missing: &'static str,
    },
    /// A role whose rule cannot apply to the parameter's shape.
    #[error("`{path}` has role {role:?} and shape {shape:?}, needed a matrix or a stack of them")]
    RoleShape {
        /// Path of the parameter.
        path: String,
        /// Its role.
        role: Role,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A trained parameter that the loss does not depend on.
    #[error("`{path}` got no gradient; the loss must depend on every trained parameter")]
    MissingGradient {
        /// Path of the parameter.
        path: String,
    },
    /// Optimizer state that a checkpoint lacks.
    #[error("optimizer state `{name}` is missing from the checkpoint")]
    MissingState {
        /// `<path>.<moment>`.
        name: String,
    },
    /// Optimizer state of another type than the recipe's.
    #[error(
        "optimizer state `{name}` is {found:?}, needed {needed:?} (`optimizer.momentum_dtype`)"
    )]
    StateType {
        /// `<path>.<moment>`.
        name: String,
        /// The type in the checkpoint.
        found: DType,
        /// The type that the recipe asks for.
        needed: DType,
    },
    /// Loss or gradient norm that is not finite.
    #[error(
        "step {step} is not finite (loss {loss}, gradient norm {grad_norm}); batch digest \
         {digest:016x}, nothing was updated"
    )]
    NotFinite {
        /// Completed updates before it.
        step: u64,
        /// The loss.
        loss: f64,
        /// The gradient norm.
        grad_norm: f64,
        /// Digest of the batch.
        digest: u64,
    },
    /// A batch that has ended the run before.
    #[error(
        "batch {batch} (digest {digest:016x}) has ended this run {times} times with a loss or \
         gradient that is not finite, so it will again; look at it, change the recipe, or leave it \
         out with `--skip-batch {batch}`"
    )]
    NotFiniteAgain {
        /// The batch, from 0 over the whole run.
        batch: u64,
        /// Its digest.
        digest: u64,
        /// How often.
        times: u64,
    },
    /// A checkpoint that cannot be used.
    #[error("checkpoint {path}: {problem}")]
    Checkpoint {
        /// The checkpoint's folder or file.
        path: PathBuf,
        /// What was found and what is needed.
        problem: String,
    },
    /// Weights in the published layout that cannot be used, or that are not those of the checkpoint.
    #[error("{path}: {problem}")]
    Interchange {
        /// The folder or file.
        path: PathBuf,
        /// What was found and what is needed.
        problem: String,
    },
    /// A storage that cannot be written, read or listed.
    #[error("could not {doing} {place}: {source}")]
    Storage {
        /// What we were doing.
        doing: &'static str,
        /// Path or address of the object.
        place: String,
        /// The answer.
        source: std::io::Error,
    },
    /// A state that could not be saved.
    #[error("the state of step {step} was not saved: rank {rank}: {problem}")]
    NotSaved {
        /// The step.
        step: u64,
        /// The first rank that could not write.
        rank: usize,
        /// Its error and the causes.
        problem: String,
    },
    /// What some rank found out about a checkpoint while it was restored.
    #[error("{reason}")]
    Damaged {
        /// The rank's error and the causes.
        reason: String,
    },
    /// A run that saved, of which no checkpoint is whole.
    #[error(
        "no whole checkpoint in {place}, though the run saved: {}; start anew in another folder",
        reasons.join("; ")
    )]
    NoneWhole {
        /// Path or address of the checkpoints.
        place: String,
        /// One reason for each that was passed over.
        reasons: Vec<String>,
    },
    /// A stretch of a run that was not the same when it was trained again.
    #[error(
        "not proved: {problem} ({differences} differences, {missing} steps not recorded; {})",
        report.display()
    )]
    Unproved {
        /// The first difference.
        problem: String,
        /// How many there are.
        differences: usize,
        /// Steps that the record lacks.
        missing: usize,
        /// The report.
        report: PathBuf,
    },
    /// A record of an experiment that cannot be used, or does not check.
    #[error("experiment {path}: {problem}")]
    Experiment {
        /// The experiment's folder or file.
        path: PathBuf,
        /// What was found and what is needed.
        problem: String,
    },
    /// Recorded choices of experts that cannot be used.
    #[error("choices {path}: {problem}")]
    Choices {
        /// The file.
        path: PathBuf,
        /// What was found and what is needed.
        problem: String,
    },
    /// A device that this build or machine does not have.
    #[error("device `{device}`: {problem}")]
    Device {
        /// The device asked for.
        device: String,
        /// What is missing and what to do.
        problem: String,
    },
    /// A file that cannot be read or written.
    #[error("could not {doing} {path}: {source}")]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A device whose kernels do not compute what they mean.
    #[error("{device} fails at: {}", operations.join(", "))]
    Unhealthy {
        /// The device.
        device: String,
        /// The operations that fail.
        operations: Vec<String>,
    },
    /// An operation that nobody knows.
    #[error("`--op` is `{found}`, needed one of: {}", known.join(", "))]
    UnknownOperation {
        /// What was asked for.
        found: String,
        /// What can be.
        known: Vec<&'static str>,
    },
}

impl TrainError {
    /// The error and its causes, one a line, each once: some messages quote their cause.
    pub fn chain(&self) -> String {
        let mut said = self.to_string();
        let mut text = said.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let message = error.to_string();
            if !said.contains(&message) {
                text += &format!("\n  because: {message}");
                said = message;
            }
            cause = error.source();
        }
        text
    }

    pub(crate) fn config(
        field: impl Into<String>,
        found: impl ToString,
        rule: impl Into<String>,
    ) -> Self {
        Self::Config { field: field.into(), found: found.to_string(), rule: rule.into() }
    }

    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    pub(crate) fn storage(
        doing: &'static str,
        storage: &dyn Storage,
        name: &str,
    ) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let place = storage.locate(name);
        move |source| Self::Storage { doing, place, source }
    }

    pub(crate) fn choices(path: &Path, problem: impl Into<String>) -> Self {
        Self::Choices { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn experiment(path: &Path, problem: impl Into<String>) -> Self {
        Self::Experiment { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn interchange(path: &Path, problem: impl Into<String>) -> Self {
        Self::Interchange { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn checkpoint(path: &Path, problem: impl Into<String>) -> Self {
        Self::Checkpoint { path: path.to_owned(), problem: problem.into() }
    }
}
