//! One run of a ladder: what it spent and what it reached.

use super::error::{ForecastError, refused};
use super::power_law::line;

/// Points of a run at which it is evaluated: each 5%.
pub const NUM_POINTS: usize = 20;

/// Points that the line of a rung that stopped early is put through.
const LINE_POINTS: usize = 5;

/// What is added to that line: the published record's margin for a rate that does not fall on, in nats.
const MARGIN: f64 = 0.005;

/// A loss at some progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossAt {
    /// In nats a token.
    pub loss: f64,
    /// Whether the run stopped before, and this is the line through its last points.
    pub extrapolated: bool,
}

/// One run of a ladder.
#[derive(Debug, Clone, PartialEq)]
pub struct Rung {
    /// Its name.
    pub name: String,
    /// FLOPs of the whole run, without the output head.
    pub flops: f64,
    /// Losses at 5%, 10%, ... of the run; fewer than [`NUM_POINTS`] if it stopped early.
    pub losses: Vec<f64>,
}

impl Rung {
    /// Fails with the first thing about it that cannot be, for a law above `asymptote`.
    pub(super) fn check(&self, asymptote: f64) -> Result<(), ForecastError> {
        let Self { name, flops, losses } = self;
        if !(flops.is_finite() && *flops > 0.0) {
            return Err(refused(name, "FLOPs", flops, "a positive number"));
        }
        if losses.len() > NUM_POINTS {
            let needed = format!("at most {NUM_POINTS}, one each 5%");
            return Err(refused(name, "number of losses", losses.len(), needed));
        }
        for (point, loss) in losses.iter().enumerate() {
            if !(loss.is_finite() && *loss > asymptote) {
                let what = format!("loss at {}%", 5 * (point + 1));
                let needed = format!("a number above the asymptote, {asymptote}");
                return Err(refused(name, what, loss, needed));
            }
        }
        Ok(())
    }

    /// Its loss at point `point`, from 0. Where it stopped before, the line of least squares through its
    /// last five points and 0.005 more; none where it has fewer than those.
    pub fn at(&self, point: usize) -> Option<LossAt> {
        if let Some(loss) = self.losses.get(point) {
            return Some(LossAt { loss: *loss, extrapolated: false });
        }
        let first = self.losses.len().checked_sub(LINE_POINTS)?;
        let last: Vec<(f64, f64)> =
            (first..self.losses.len()).map(|at| (at as f64, self.losses[at])).collect();
        let (slope, intercept) = line(&last);
        Some(LossAt { loss: intercept + slope * point as f64 + MARGIN, extrapolated: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(losses: &[f64]) -> Rung {
        Rung { name: "d48".to_owned(), flops: 1e15, losses: losses.to_vec() }
    }

    #[test]
    fn a_run_that_stopped_goes_on_along_the_line_of_its_last_five_points() {
        let stopped = rung(&[9.0, 5.0, 4.0, 3.5, 3.0, 2.5, 2.0]);
        assert_eq!(stopped.at(6), Some(LossAt { loss: 2.0, extrapolated: false }));
        let on = stopped.at(8).expect("five points");
        assert!(on.extrapolated && (on.loss - 1.005).abs() < 1e-12, "{on:?}");
        assert_eq!(rung(&[3.0, 2.0]).at(5), None);
    }

    #[test]
    fn what_no_run_has_is_named() {
        for (rung, needed) in [
            (Rung { flops: 0.0, ..rung(&[3.0]) }, "rung `d48`: FLOPs is 0, needed a positive"),
            (
                rung(&[3.0, f64::NAN]),
                "loss at 10% is NaN, needed a number above the asymptote, 1.5",
            ),
            (rung(&[1.5]), "loss at 5% is 1.5"),
            (rung(&[3.0; 21]), "number of losses is 21, needed at most 20"),
        ] {
            let error = rung.check(1.5).expect_err(needed).to_string();
            assert!(error.contains(needed), "{error}");
        }
    }
}
