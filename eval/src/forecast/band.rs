//! How far a run may be from its forecast and still be the run that was forecast.

use serde::{Deserialize, Serialize};

use super::predict::{check, losses, progress, rungs_but, spent};
use super::{ForecastError, Ladder, NUM_POINTS, PowerLaw, SWEEP};

/// What a figure may be at some progress.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// Progress in percent.
    pub progress: usize,
    /// The least.
    pub low: f64,
    /// What is expected.
    pub mid: f64,
    /// The most.
    pub high: f64,
}

impl Band {
    /// From the least to the largest of `values`, about `mid`.
    pub fn over(progress: usize, mid: f64, values: impl IntoIterator<Item = f64>) -> Self {
        let start = Self { progress, low: mid, mid, high: mid };
        values.into_iter().fold(start, |band, value| Self {
            low: band.low.min(value),
            high: band.high.max(value),
            ..band
        })
    }

    /// Whether a value lies within; one that is not a number does not.
    pub fn holds(&self, value: f64) -> bool {
        value >= self.low && value <= self.high
    }
}

/// The band about the forecast of `target` at each 5%: from the least to the largest of
///
/// - the law without one of the rungs, for each of them,
/// - the law with each asymptote of [`SWEEP`],
/// - the law and one standard error of a further run's loss more and less, in `ln(L - L0)`: the scatter
///   `s` of the rungs about the law, with two degrees of freedom fewer than rungs, times
///   `sqrt(1 + 1/n + (x - mean x)^2 / sum (x_i - mean x)^2)` with `x = ln C`.
///
/// # Errors
/// As [`Forecast::new`](super::Forecast::new).
pub fn loss_band(
    ladder: &Ladder,
    target: &str,
    asymptote: f64,
) -> Result<Vec<Band>, ForecastError> {
    let (flops, rungs) = (ladder.flops(target)?, rungs_but(ladder, target)?);
    SWEEP.iter().try_for_each(|step| check(&rungs, asymptote + step))?;
    let band = |point| {
        let at = spent(flops, point);
        let (points, _) = losses(&rungs, point, asymptote)?;
        let law = PowerLaw::fit(&points, asymptote);
        let mut others = scattered(&points, law, at).to_vec();
        others.extend((0..points.len()).map(|left| without(&points, left, asymptote).loss(at)));
        for step in SWEEP {
            let (points, _) = losses(&rungs, point, asymptote + step)?;
            others.push(PowerLaw::fit(&points, asymptote + step).loss(at));
        }
        Ok(Band::over(progress(point), law.loss(at), others))
    };
    (0..NUM_POINTS).map(band).collect()
}

fn without(points: &[(f64, f64)], left: usize, asymptote: f64) -> PowerLaw {
    let mut others = points.to_vec();
    others.remove(left);
    PowerLaw::fit(&others, asymptote)
}

/// The law at `flops`, one standard error of a further run less and more.
fn scattered(points: &[(f64, f64)], law: PowerLaw, flops: f64) -> [f64; 2] {
    let count = points.len() as f64;
    let above = |loss: f64| (loss - law.asymptote).ln();
    let residuals = points.iter().map(|(flops, loss)| above(*loss) - above(law.loss(*flops)));
    let variance = residuals.map(|r| r * r).sum::<f64>() / (count - 2.0);
    let mean = points.iter().map(|(flops, _)| flops.ln()).sum::<f64>() / count;
    let spread = points.iter().map(|(flops, _)| (flops.ln() - mean).powi(2)).sum::<f64>();
    let leverage = 1.0 + 1.0 / count + (flops.ln() - mean).powi(2) / spread;
    let error = (variance * leverage).sqrt();
    let expected = law.loss(flops) - law.asymptote;
    [-error, error].map(|error| law.asymptote + expected * error.exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::Forecast;

    #[test]
    fn the_band_of_the_published_golden_ladder_holds_its_forecast_range_and_sweep() {
        let ladder = Ladder::published().expect("the shipped table");
        let band = loss_band(&ladder, "d6144", 1.5).expect("four rungs");
        let forecast = Forecast::new(&ladder, "d6144", 1.5).expect("four rungs");
        assert_eq!(band.len(), forecast.points.len());
        for (band, at) in band.iter().zip(&forecast.points) {
            assert_eq!((band.progress, band.mid), (at.progress, at.predicted));
            assert!(band.low < band.mid && band.mid < band.high, "{band:?}");
        }
        let end = band[NUM_POINTS - 1];
        let (low, high) = forecast.range();
        let sweep = forecast.sweep.iter().map(|(_, end)| *end);
        assert!(sweep.chain([low, high]).all(|value| end.holds(value)), "{end:?}");
    }

    #[test]
    fn a_standard_error_by_hand() {
        // Four rungs a decade apart, ln(L - L0) of 0.1, -0.1, -0.1, 0.1 off a flat line: no slope, s^2 =
        // 0.04 / 2. At the mean of ln C the factor is 1 + 1/4, so that the error is sqrt(0.025).
        let points = [1.0, 10.0, 100.0, 1000.0];
        let off = [0.1f64, -0.1, -0.1, 0.1];
        let points: Vec<(f64, f64)> =
            points.iter().zip(off).map(|(flops, off)| (*flops, 2.0 + off.exp())).collect();
        let law = PowerLaw::fit(&points, 2.0);
        let [low, high] = scattered(&points, law, 1000f64.sqrt());
        let error = 0.025f64.sqrt();
        assert!((law.exponent.abs()) < 1e-12, "{law:?}");
        assert!((high - 2.0 - error.exp()).abs() < 1e-12, "{high}");
        assert!((low - 2.0 - (-error).exp()).abs() < 1e-12, "{low}");
    }

    #[test]
    fn rungs_on_a_law_leave_a_band_of_asymptotes_alone() {
        let law = PowerLaw { asymptote: 2.0, amplitude: 40.0, exponent: 0.1 };
        let flops = [1e12, 1e13, 1e14];
        let ladder = Ladder {
            metric: "loss".to_owned(),
            source: "a law".to_owned(),
            flops_without_head: ["a", "b", "c", "t"]
                .into_iter()
                .zip(flops.into_iter().chain([1e15]))
                .map(|(name, flops)| (name.to_owned(), flops))
                .collect(),
            values: ["a", "b", "c"]
                .into_iter()
                .zip(flops)
                .map(|(name, flops)| {
                    let losses = (0..NUM_POINTS).map(|point| law.loss(spent(flops, point)));
                    (name.to_owned(), losses.collect())
                })
                .collect(),
        };
        for (point, band) in loss_band(&ladder, "t", 2.0).expect("three rungs").iter().enumerate() {
            let expected = law.loss(spent(1e15, point));
            assert!((band.mid - expected).abs() < 1e-9, "{band:?}");
            // Asymptotes a tenth of a nat off are the widest here.
            assert!(band.high - band.low < 0.1 && band.high > band.mid + 1e-4, "{band:?}");
        }
        assert!(!Band::over(5, 1.0, [2.0]).holds(f64::NAN));
    }
}
