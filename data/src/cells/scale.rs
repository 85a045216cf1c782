//! Features brought to one scale.

use serde::{Deserialize, Serialize};

use super::features::to_unit_length;
use super::floats;

/// Mean and spread of each feature over a sample. Without it the words that every text has would
/// decide what is near.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scale {
    #[serde(with = "floats::hex")]
    mean: Vec<f32>,
    /// One over the standard deviation; 0 where a feature does not vary.
    #[serde(with = "floats::hex")]
    inverse: Vec<f32>,
}

impl Scale {
    pub(super) fn of(vectors: &[Vec<f32>]) -> Self {
        let (mut mean, mut inverse) = (Vec::new(), Vec::new());
        let num = vectors.len() as f64;
        for place in 0..vectors.first().map_or(0, Vec::len) {
            let column = || vectors.iter().map(|vector| f64::from(vector[place]));
            let center = column().sum::<f64>() / num;
            let variance = column().map(|x| (x - center).powi(2)).sum::<f64>() / num;
            mean.push(center as f32);
            // Below this it is rounding.
            inverse.push(if variance < 1e-14 { 0.0 } else { variance.sqrt().recip() as f32 });
        }
        Self { mean, inverse }
    }

    /// Number of features, if both lists agree.
    pub(super) fn dim(&self) -> Option<usize> {
        (self.mean.len() == self.inverse.len()).then_some(self.mean.len())
    }

    /// Centres, scales, and brings to length 1 again.
    pub(super) fn apply(&self, vector: &mut [f32]) {
        for ((x, mean), inverse) in vector.iter_mut().zip(&self.mean).zip(&self.inverse) {
            *x = (*x - mean) * inverse;
        }
        to_unit_length(vector);
    }
}
