//! Levels of quality: a score, cut into buckets of equal size.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::floats;
use super::model_file::{self, Model};
use super::sample::Sample;
use super::scorer::{HeldOut, Scorer};
use crate::{Assign, CellKey, DataError, Document, Result};

/// How a score is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QualitySettings {
    /// Number of buckets, 5 as the published mixture has levels.
    pub buckets: usize,
    /// Documents whose scores the cuts are taken from, drawn from all; some 150 bytes each.
    pub sample: usize,
    /// Seed of the draw.
    pub seed: u64,
}

impl Default for QualitySettings {
    fn default() -> Self {
        Self { buckets: 5, sample: 200_000, seed: 0 }
    }
}

/// A score and its cuts: the level of a document is the number of cuts at or below its score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QualityModel {
    settings: QualitySettings,
    documents: u64,
    sampled: u64,
    cuts: Vec<Cut>,
    buckets: Vec<u64>,
    /// None: the document's given score.
    scorer: Option<Scorer>,
}

/// Where a level begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// The least score of the level.
    #[serde(with = "floats::decimal")]
    pub score: f64,
    /// Documents of the sample with this very score: the more, the further the buckets are from
    /// equal sizes.
    pub ties: u64,
}

impl Model for QualityModel {
    const KIND: &'static str = "quality";
}

impl QualityModel {
    /// Cuts the scores of documents at their quantiles: those of a scorer, or given ones. Documents
    /// count once each, whatever their length.
    ///
    /// # Errors
    /// The first error of `documents`; [`DataError::Unassigned`] for a score that is missing or not
    /// finite; [`DataError::Setting`] if so many documents have the same score that a bucket would
    /// be empty.
    pub fn cut(
        documents: impl IntoIterator<Item = Result<Document>>,
        scorer: Option<Scorer>,
        settings: &QualitySettings,
    ) -> Result<Self> {
        if settings.buckets == 0 || settings.sample < settings.buckets {
            let rule = format!("1 to {}, the size of the sample", settings.sample);
            return Err(DataError::setting("buckets", settings.buckets, rule));
        }
        let mut sample = Sample::new(settings.seed, settings.sample);
        for document in documents {
            let document = document?;
            let mut scored = Ok(());
            sample.offer(&document, || match score(&document, scorer.as_ref()) {
                Ok(score) => score,
                Err(error) => {
                    scored = Err(error);
                    0.0
                }
            });
            scored?;
        }
        let seen = sample.seen();
        let mut scores = sample.into_items();
        scores.sort_by(f64::total_cmp);
        let cuts = cuts(&scores, settings.buckets)?;
        let mut buckets = vec![0; settings.buckets];
        scores.iter().for_each(|&score| buckets[level(score, &cuts)] += 1);
        let (settings, sampled) = (*settings, scores.len() as u64);
        Ok(Self { settings, documents: seen, sampled, cuts, buckets, scorer })
    }

    /// Where the levels above 0 begin.
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Documents of the sample in each level.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// What scores, if the score is not a given one.
    pub fn scorer(&self) -> Option<&Scorer> {
        self.scorer.as_ref()
    }

    /// The level of a document.
    ///
    /// # Errors
    /// [`DataError::Unassigned`] if its score or embedding is missing or not finite.
    pub fn level(&self, document: &Document) -> Result<u32> {
        Ok(level(score(document, self.scorer.as_ref())?, &self.cuts) as u32)
    }

    /// Writes the model file, all of it or nothing; an earlier one is replaced.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        model_file::write(path.as_ref(), self)
    }

    /// Reads a model file.
    ///
    /// # Errors
    /// [`DataError::Io`]; [`DataError::ModelFile`] if it is of another kind or version, or was
    /// altered.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let model: Self = model_file::read(path.as_ref())?;
        if model.scorer.as_ref().is_none_or(Scorer::is_whole) {
            return Ok(model);
        }
        let reason = "its scorer has not a weight for each feature".to_owned();
        Err(DataError::ModelFile { path: path.as_ref().to_owned(), reason })
    }
}

impl Assign for QualityModel {
    /// The level of the score as quality; the domain is the document's own.
    fn cell(&self, document: &Document) -> Result<CellKey> {
        Ok(CellKey { domain: document.domain.clone(), quality: self.level(document)? })
    }

    fn digest(&self) -> String {
        model_file::digest(self)
    }
}

fn score(document: &Document, scorer: Option<&Scorer>) -> Result<f64> {
    let score = match scorer {
        Some(scorer) => scorer.score(document)?,
        None => document.score.ok_or_else(|| {
            DataError::unassigned(document, "no score; name the column that holds it".to_owned())
        })?,
    };
    if score.is_finite() {
        // Minus zero is zero: an order of bits would tell them apart.
        return Ok(score + 0.0);
    }
    Err(DataError::unassigned(document, format!("score is {score}, need a finite number")))
}

/// The scores at i/n of the sorted ones.
fn cuts(sorted: &[f64], buckets: usize) -> Result<Vec<Cut>> {
    if sorted.len() < buckets {
        let rule = format!("at most {}, the documents there are", sorted.len());
        return Err(DataError::setting("buckets", buckets, rule));
    }
    let mut cuts: Vec<Cut> = Vec::new();
    for bucket in 1..buckets {
        let score = sorted[bucket * sorted.len() / buckets];
        let below = sorted.partition_point(|&other| other < score);
        let ties = (sorted.partition_point(|&other| other <= score) - below) as u64;
        let last = cuts.last().map_or(sorted[0], |cut| cut.score);
        if score == last {
            let share = 100.0 * ties as f64 / sorted.len() as f64;
            let rule = format!(
                "fewer: {share:.1}% of the documents have the score {score}, so that bucket {} \
                 would be empty",
                bucket - 1
            );
            return Err(DataError::setting("buckets", buckets, rule));
        }
        cuts.push(Cut { score, ties });
    }
    Ok(cuts)
}

fn level(score: f64, cuts: &[Cut]) -> usize {
    cuts.partition_point(|cut| cut.score <= score)
}

impl fmt::Display for QualityModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scorer) = &self.scorer {
            let (good, bad) = scorer.trained_on();
            let HeldOut { good: held_good, bad: held_bad, accuracy, auc } = scorer.held_out();
            writeln!(f, "scorer of {good} good and {bad} bad examples")?;
            writeln!(
                f,
                "held out {held_good} good and {held_bad} bad: accuracy {accuracy:.4}, AUC {auc:.4}"
            )?;
        }
        let (sampled, documents) = (self.sampled, self.documents);
        writeln!(f, "cuts of {sampled} scores drawn from {documents} documents")?;
        writeln!(
            f,
            "{:<5} {:>10} {:>7} {:>14} {:>8}",
            "level", "documents", "share", "from", "ties"
        )?;
        for (level, &documents) in self.buckets.iter().enumerate() {
            let share = 100.0 * documents as f64 / sampled as f64;
            let (from, ties) = match level.checked_sub(1) {
                None => ("-".to_owned(), "-".to_owned()),
                Some(cut) => {
                    (format!("{:.6}", self.cuts[cut].score), self.cuts[cut].ties.to_string())
                }
            };
            writeln!(f, "q{level:<4} {documents:>10} {share:>6.2}% {from:>14} {ties:>8}")?;
        }
        Ok(())
    }
}
