//! `train data quality`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use fulmar_data::Assign as _;
use fulmar_data::cells::{
    Features, QualityModel, QualitySettings, Scorer, ScorerSettings, TextFeatures,
};
use serde_json::json;

use super::files::{Files, Reading};
use crate::error::TrainError;

/// Flags of `data quality`; the score is a given one, or one learned from examples.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("score").required(true).args(["given", "good", "good_from"])))]
pub struct QualityArgs {
    /// What is cut into buckets.
    #[command(flatten)]
    pub files: Files,
    /// The model file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Cut the score that each document has.
    #[arg(long, conflicts_with_all = ["bad", "dim", "max_words"])]
    pub given: bool,
    /// Good examples to learn from; may be repeated.
    #[arg(long, value_name = "FILE", requires = "bad")]
    pub good: Vec<String>,
    /// Bad examples to learn from; may be repeated.
    #[arg(long, value_name = "FILE", requires = "good")]
    pub bad: Vec<String>,
    /// Learn from these documents themselves: good from this quality on.
    #[arg(long, value_name = "N")]
    pub good_from: Option<u32>,
    /// Number of levels.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub buckets: usize,
    /// Places that n-grams of words are hashed into.
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    pub dim: usize,
    /// Words of the longest n-gram.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub max_words: usize,
    /// Documents whose scores are cut, drawn from all.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub sample: usize,
    /// Seed of what is drawn.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl QualityArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let reading = self.files.open()?;
        let Self { buckets, sample, seed, .. } = *self;
        let settings = QualitySettings { buckets, sample, seed };
        let model = QualityModel::cut(reading.documents(), self.scorer()?, &settings)?;
        model.write(&self.out)?;
        if self.json {
            let cuts: Vec<_> = model
                .cuts()
                .iter()
                .map(|cut| json!({"score": cut.score, "ties": cut.ties}))
                .collect();
            let scorer = model.scorer().map(|scorer| {
                let (held, (good, bad)) = (scorer.held_out(), scorer.trained_on());
                json!({
                    "good": good, "bad": bad, "held_out_good": held.good,
                    "held_out_bad": held.bad, "accuracy": held.accuracy, "auc": held.auc,
                })
            });
            let (out, digest, buckets) = (&self.out, model.digest(), model.buckets());
            let report = json!({
                "out": out, "digest": digest, "buckets": buckets, "cuts": cuts, "scorer": scorer,
                "left_out": reading.left_out(),
            });
            println!("{report:#}");
        } else {
            print!("{model}");
            reading.say_left_out();
            println!("written to {}, digest {}", self.out.display(), model.digest());
        }
        Ok(())
    }

    /// What scores, unless the score is a given one.
    fn scorer(&self) -> Result<Option<Scorer>, TrainError> {
        if self.given {
            return Ok(None);
        }
        let Self { max_words, dim, seed, .. } = *self;
        let features = Features::Text(TextFeatures { max_words, dim });
        let settings = ScorerSettings { features, seed, ..ScorerSettings::default() };
        if let Some(least) = self.good_from {
            let labelled = self.files.open()?.documents().map(|document| {
                document.map(|document| {
                    let is_good = document.quality >= least;
                    (document, is_good)
                })
            });
            return Ok(Some(Scorer::train(labelled, &settings)?));
        }
        let examples = |files: &[String], is_good: bool| {
            let documents = Reading::open(files)?.documents();
            let labelled = move |document: fulmar_data::Result<_>| document.map(|it| (it, is_good));
            Ok::<_, TrainError>(documents.map(labelled))
        };
        let all = examples(&self.good, true)?.chain(examples(&self.bad, false)?);
        Ok(Some(Scorer::train(all, &settings)?))
    }
}
