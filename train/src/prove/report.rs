//! What a proof found, for people and as a file.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::Compared;
use crate::checkpoint::Manifest;
use crate::error::TrainError;
use crate::plan::grouped;

/// Differences that are printed; the file has all.
const SHOWN: usize = 12;

/// Figures that are counted by name; all others together.
const NAMED: [&str; 6] = [
    "data/digest",
    "optim/learning_rate",
    "optim/adam_learning_rate",
    "train/loss",
    "grad/norm/total",
    "moe/dropped_assignments",
];

/// A figure that was not the same again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Completed updates.
    pub step: u64,
    /// Its name in the log, or what of the checkpoint.
    pub figure: String,
    /// In the record of the run.
    pub recorded: String,
    /// When it was trained again.
    pub again: String,
}

/// A stretch of a run, done again.
#[derive(Debug, Clone, Serialize)]
pub struct Proof {
    /// Where the stretch was trained, and where `proof.json` lies.
    pub place: PathBuf,
    /// The step of the checkpoint that it began with.
    pub from: u64,
    /// The step at which it ended.
    pub until: u64,
    /// Steps of which the record or the stretch lacks a line.
    pub missing: Vec<u64>,
    /// How often each figure was compared.
    pub figures: std::collections::BTreeMap<String, u64>,
    /// Digest of all weights at the end, as the run saved them.
    pub weights: String,
    /// Digest of weights, moments and pending balance.
    pub state: String,
    /// What differs.
    pub differences: Vec<Difference>,
}

impl Proof {
    pub(super) fn new(
        place: PathBuf,
        (from, until, again): (&Manifest, &Manifest, &Manifest),
        compared: Compared,
    ) -> Self {
        let Compared { missing, figures, mut differences } = compared;
        let digests = [
            ("digest of all weights", &until.weights, &again.weights),
            ("digest of the state", &until.state, &again.state),
        ];
        for (figure, recorded, again) in digests {
            if recorded != again {
                let (recorded, again) = (recorded.clone(), again.clone());
                let figure = figure.to_owned();
                differences.push(Difference { step: until.step, figure, recorded, again });
            }
        }
        if until.batches != again.batches {
            let (recorded, again) = (until.batches.to_string(), again.batches.to_string());
            let figure = "batches taken".to_owned();
            differences.push(Difference { step: until.step, figure, recorded, again });
        }
        Self {
            place,
            from: from.step,
            until: until.step,
            missing,
            figures,
            weights: until.weights.clone(),
            state: until.state.clone(),
            differences,
        }
    }

    /// Nothing, if every step is in the record and everything was the same again.
    ///
    /// # Errors
    /// [`TrainError::Unproved`] with the first difference, or the first step that is not recorded.
    pub fn verdict(&self) -> Result<(), TrainError> {
        let problem = match (self.differences.first(), self.missing.first()) {
            (Some(Difference { step, figure, recorded, again }), _) => {
                format!("`{figure}` of step {step} was {recorded} and is {again}")
            }
            (None, Some(step)) => format!("step {step} is not in the record"),
            (None, None) => return Ok(()),
        };
        let (differences, missing) = (self.differences.len(), self.missing.len());
        Err(TrainError::Unproved { problem, differences, missing, report: self.file() })
    }

    /// The report as a file.
    pub fn file(&self) -> PathBuf {
        self.place.join("proof.json")
    }

    /// The report as JSON.
    ///
    /// # Panics
    /// Never: plain values only.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values")
    }

    pub(super) fn write(&self) -> Result<(), TrainError> {
        std::fs::write(self.file(), self.to_json()).map_err(TrainError::io("write", &self.file()))
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.until - self.from;
        writeln!(
            f,
            "steps {} to {}, trained again from step {}",
            self.from + 1,
            self.until,
            self.from
        )?;
        let differing = |name: &str| self.differences.iter().filter(|d| d.figure == name).count();
        let line = |f: &mut fmt::Formatter<'_>, name: &str, same: u64, all: u64| {
            writeln!(f, "  {name:<28} {:>8} of {:>8} the same", grouped(same), grouped(all))
        };
        for name in NAMED {
            if let Some(all) = self.figures.get(name) {
                line(f, name, all - differing(name) as u64, *all)?;
            }
        }
        let others = self.figures.iter().filter(|(name, _)| !NAMED.contains(&&name[..]));
        let (all, differ) = others.fold((0, 0), |(all, differ), (name, count)| {
            (all + count, differ + differing(name) as u64)
        });
        line(
            f,
            &format!("{} other figures", self.figures.len().saturating_sub(NAMED.len())),
            all - differ,
            all,
        )?;
        for (name, digest) in
            [("digest of all weights", &self.weights), ("digest of the state", &self.state)]
        {
            let same = if differing(name) == 0 { "the same" } else { "DIFFERS" };
            writeln!(f, "  {name:<28} {same}: {digest}")?;
        }
        if !self.missing.is_empty() {
            let (missing, first) = (self.missing.len(), self.missing[0]);
            writeln!(
                f,
                "  {missing} of {steps} steps are not in the record, the first is {first}"
            )?;
        }
        for Difference { step, figure, recorded, again } in self.differences.iter().take(SHOWN) {
            writeln!(f, "  step {step}: `{figure}` was {recorded} and is {again}")?;
        }
        if self.differences.len() > SHOWN {
            writeln!(f, "  and {} more", self.differences.len() - SHOWN)?;
        }
        let proved = self.differences.is_empty() && self.missing.is_empty();
        write!(
            f,
            "{} ({})",
            if proved { "PROVED: the run did it again, bit for bit" } else { "NOT PROVED" },
            self.file().display()
        )
    }
}
