//! What an evaluation finds.

use std::path::PathBuf;
use std::sync::Arc;

use fulmar_eval::suite::{DocumentLines, HELDOUT, Mode, Scores};
use fulmar_eval::{DocumentSum, EvalReport, Suite};

use super::names::{metrics, place};
use crate::error::TrainError;
use crate::report::suite_table;
use crate::telemetry::{Metrics, names};

/// Figures of some weights.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The checkpoint, or the exported folder.
    pub weights: PathBuf,
    /// Completed updates, of a checkpoint.
    pub step: Option<u64>,
    /// The exchange of the figures with drops.
    pub exchange: Option<Exchange>,
    /// The held-out text, then the other suites.
    pub suites: Vec<SuiteFigures>,
}

/// An exchange of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Its name.
    pub name: &'static str,
    /// The shards it runs between.
    pub shards: usize,
}

/// Figures of a suite.
#[derive(Debug, Clone)]
pub struct SuiteFigures {
    /// What was scored.
    pub suite: Arc<Suite>,
    /// Without drops.
    pub dropless: Figures,
    /// With the exchange of training.
    pub as_trained: Option<Figures>,
}

/// Losses of the documents of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Of each document, in the order of the suite's rows.
    pub sums: Vec<DocumentSum>,
    /// What they add up to.
    pub report: EvalReport,
}

impl Figures {
    /// The figures that the sums of all documents add up to.
    pub(super) fn new(suite: &Suite, sums: Vec<DocumentSum>) -> Self {
        let report = EvalReport::new(&suite.rows, &sums);
        Self { sums, report }
    }
}

impl SuiteFigures {
    fn by_mode(&self) -> impl Iterator<Item = (Mode, &Figures)> {
        let as_trained = self.as_trained.iter().map(|figures| (Mode::AsTrained, figures));
        std::iter::once((Mode::Dropless, &self.dropless)).chain(as_trained)
    }
}

impl Evaluation {
    /// The figures of the held-out text.
    pub fn heldout(&self) -> &SuiteFigures {
        &self.suites[0]
    }

    /// Everything by name, of both ways separately. `heldout` and `suites/<name>` name the contents
    /// that were scored, whatever their path.
    pub fn metrics(&self) -> Metrics {
        let mut all = Metrics::new();
        all.insert("weights".to_owned(), self.weights.display().to_string().into());
        if let Some(step) = self.step {
            all.insert(names::STEP.to_owned(), step.into());
        }
        if let Some(Exchange { name, shards }) = self.exchange {
            all.insert("eval_as_trained/exchange".to_owned(), name.into());
            all.insert("eval_as_trained/shards".to_owned(), shards.into());
        }
        for figures in &self.suites {
            let suite = &figures.suite;
            let key = match &suite.name[..] {
                HELDOUT => HELDOUT.to_owned(),
                name => format!("suites/{name}"),
            };
            all.insert(key, suite.digest().to_owned().into());
            for (mode, Figures { report, .. }) in figures.by_mode() {
                all.extend(metrics(&place(mode, &suite.name), report));
            }
        }
        all
    }

    /// The tables that the end of a run prints, for people.
    pub fn table(&self) -> String {
        let step = self.step.map_or_else(String::new, |step| format!(" (step {step})"));
        let mut text = format!("{}{step}\n", self.weights.display());
        if let Some(Exchange { name, shards }) = self.exchange {
            text += &format!("as-trained: exchange {name} between {shards} shards\n");
        }
        for SuiteFigures { suite, dropless, as_trained } in &self.suites {
            let beside = as_trained.as_ref().map(|lossy| ("as-trained", &lossy.report));
            text += &suite_table(&suite.name, &dropless.report, beside);
        }
        text
    }

    /// Writes the sums of every document, of both ways.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_documents(&self, lines: &mut DocumentLines) -> Result<(), TrainError> {
        let weights = self.weights.display().to_string();
        for figures in &self.suites {
            for (mode, Figures { sums, .. }) in figures.by_mode() {
                let (weights, suite) = (weights.clone(), figures.suite.name.clone());
                let scores = Scores { weights, step: self.step, mode, suite };
                lines.write(&scores, &figures.suite, sums)?;
            }
        }
        Ok(())
    }
}
