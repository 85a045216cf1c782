//! A score of quality, learned from good and bad examples.

use linfa::DatasetBase;
use linfa::traits::Fit;
use linfa_logistic::LogisticRegression;
use ndarray::{Array1, Array2};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::features::{Features, TextFeatures, head};
use super::floats;
use super::sample::Sample;
use crate::{DataError, Document, Result};

/// Fewest examples of a kind.
const MIN_EXAMPLES: usize = 5;

/// How a scorer is trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScorerSettings {
    /// What a document is seen as.
    pub features: Features,
    /// Examples of each kind at most, drawn from all. Memory while it is trained: for each, at most
    /// [`FEATURE_BYTES`](super::FEATURE_BYTES) of its text and 24 bytes a feature.
    pub sample: usize,
    /// Share of the examples that is held out to measure by, above 0 and below 1.
    pub held_out: f64,
    /// Weight of the squared length of the weights in the loss, above 0.
    pub penalty: f64,
    /// Seed of the draw.
    pub seed: u64,
}

impl Default for ScorerSettings {
    fn default() -> Self {
        let features = Features::Text(TextFeatures { max_words: 2, dim: 4_096 });
        Self { features, sample: 5_000, held_out: 0.2, penalty: 0.1, seed: 0 }
    }
}

/// A linear score: the logarithm of the odds that a document is a good one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scorer {
    settings: ScorerSettings,
    good: u64,
    bad: u64,
    held_out: HeldOut,
    #[serde(with = "floats::decimal")]
    bias: f64,
    #[serde(with = "floats::hex")]
    weights: Vec<f32>,
}

/// How well a scorer tells examples apart that it was not trained on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// Good examples.
    pub good: u64,
    /// Bad examples.
    pub bad: u64,
    /// Share of those with a score above 0 if good, else below.
    #[serde(with = "floats::decimal")]
    pub accuracy: f64,
    /// Probability that a good example scores above a bad one, ties counted half: the area under the
    /// ROC curve.
    #[serde(with = "floats::decimal")]
    pub auc: f64,
}

impl Scorer {
    /// Trains on examples, each with whether it is a good one.
    ///
    /// # Errors
    /// The first error of `examples`; [`DataError::Setting`] for too few of a kind;
    /// [`DataError::Fit`] if the library finds no minimum.
    pub fn train(
        examples: impl IntoIterator<Item = Result<(Document, bool)>>,
        settings: &ScorerSettings,
    ) -> Result<Self> {
        settings.validate()?;
        let mut samples = [0, 1].map(|_| Sample::new(settings.seed, settings.sample));
        for example in examples {
            let (document, is_good) = example?;
            samples[usize::from(is_good)].offer(&document, || Document {
                text: head(&document.text).to_owned(),
                ..document.clone()
            });
        }
        let [bad, good] = samples.map(|sample| sample.into_items());
        let (bad, good) = (vectors("bad", &bad, settings)?, vectors("good", &good, settings)?);
        let split = |all: &[Vec<f32>]| {
            ((all.len() as f64 * settings.held_out).round() as usize).clamp(1, all.len() - 1)
        };
        let (held_bad, bad) = bad.split_at(split(&bad));
        let (held_good, good) = good.split_at(split(&good));
        let (bias, weights) = fit(bad, good, settings)?;
        let score = |vector: &Vec<f32>| linear(bias, &weights, vector);
        let held_out = HeldOut::of(
            held_bad.iter().map(score).collect(),
            held_good.iter().map(score).collect(),
        );
        let (good, bad) = (good.len() as u64, bad.len() as u64);
        Ok(Self { settings: *settings, good, bad, held_out, bias, weights })
    }

    /// How well it does.
    pub fn held_out(&self) -> HeldOut {
        self.held_out
    }

    /// Good and bad examples that it was trained on.
    pub fn trained_on(&self) -> (u64, u64) {
        (self.good, self.bad)
    }

    /// The score of a document.
    ///
    /// # Errors
    /// [`DataError::Unassigned`] if it lacks its embedding.
    pub fn score(&self, document: &Document) -> Result<f64> {
        Ok(linear(self.bias, &self.weights, &self.settings.features.of(document)?))
    }

    /// Whether the weights are those of the features.
    pub(super) fn is_whole(&self) -> bool {
        self.weights.len() == self.settings.features.dim()
    }
}

impl ScorerSettings {
    fn validate(&self) -> Result<()> {
        self.features.validate()?;
        if !(self.held_out > 0.0 && self.held_out < 1.0) {
            return Err(DataError::setting("held_out", self.held_out, "above 0 and below 1"));
        }
        if !(self.penalty > 0.0 && self.penalty.is_finite()) {
            return Err(DataError::setting("penalty", self.penalty, "above 0"));
        }
        if self.sample < MIN_EXAMPLES {
            let rule = format!("at least {MIN_EXAMPLES}");
            return Err(DataError::setting("sample", self.sample, rule));
        }
        Ok(())
    }
}

fn vectors(
    kind: &'static str,
    examples: &[Document],
    settings: &ScorerSettings,
) -> Result<Vec<Vec<f32>>> {
    if examples.len() < MIN_EXAMPLES {
        let found = format!("{} examples", examples.len());
        return Err(DataError::setting(kind, found, format!("at least {MIN_EXAMPLES}")));
    }
    examples.par_iter().map(|document| settings.features.of(document)).collect()
}

/// Bias and weights of a logistic regression.
fn fit(bad: &[Vec<f32>], good: &[Vec<f32>], settings: &ScorerSettings) -> Result<(f64, Vec<f32>)> {
    let shape = (bad.len() + good.len(), settings.features.dim());
    let numbers = bad.iter().chain(good).flatten().map(|&x| f64::from(x)).collect();
    let records = Array2::from_shape_vec(shape, numbers).expect("rows of one length");
    let is_good: Array1<bool> = (0..shape.0).map(|row| row >= bad.len()).collect();
    let fitted = LogisticRegression::default()
        .alpha(settings.penalty)
        .max_iterations(200)
        .fit(&DatasetBase::new(records, is_good))
        .map_err(|source| DataError::Fit { what: "the scorer", source: Box::new(source) })?;
    // The library makes the larger class the positive one.
    let sign = if fitted.labels().pos.class { 1.0 } else { -1.0 };
    let weights = fitted.params().iter().map(|&weight| (sign * weight) as f32).collect();
    Ok((sign * fitted.intercept(), weights))
}

fn linear(bias: f64, weights: &[f32], vector: &[f32]) -> f64 {
    let products = weights.iter().zip(vector).map(|(&w, &x)| f64::from(w) * f64::from(x));
    bias + products.sum::<f64>()
}

impl HeldOut {
    fn of(mut bad: Vec<f64>, good: Vec<f64>) -> Self {
        bad.sort_by(f64::total_cmp);
        let right = bad.iter().filter(|&&score| score <= 0.0).count()
            + good.iter().filter(|&&score| score > 0.0).count();
        let wins = |score: &f64| {
            let below = bad.partition_point(|bad| bad < score);
            let not_above = bad.partition_point(|bad| bad <= score);
            (below + not_above) as f64 / 2.0
        };
        let pairs = (bad.len() * good.len()) as f64;
        Self {
            good: good.len() as u64,
            bad: bad.len() as u64,
            accuracy: right as f64 / (bad.len() + good.len()) as f64,
            auc: good.iter().map(wins).sum::<f64>() / pairs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_counts_pairs_and_half_of_ties() {
        let found = HeldOut::of(vec![3.0, -1.0, 0.0], vec![1.0, 3.0]);
        // Of six pairs the good one is above in 2 + 2, and level in one.
        assert_eq!(found.auc, 4.5 / 6.0);
        assert_eq!(found.accuracy, 4.0 / 5.0);
    }
}
