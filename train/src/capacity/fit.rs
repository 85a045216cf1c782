//! The one number that is fitted.

use fulmar_ep::replay::{Choices, Demand, PooledWave, Rule};
use serde::Serialize;

use super::settings::{Drawn, Exchange};
use crate::error::TrainError;

/// Row length of the drop rate that is fitted to, where a shard's tokens allow it.
const ROW_TOKENS: usize = 4_096;
/// Sender's and receiver's factor of that drop rate, those of the published run.
pub(super) const FACTOR: f64 = 1.15;
/// Concentrations to look among: with the lowest a document lives on about ten experts, with the
/// highest documents hardly differ.
const RANGE: (f64, f64) = (0.03, 100.0);
/// Halvings of the range, in logarithms; 14 leave a width of 5e-4, in which drops hardly change.
const MAX_PROBES: usize = 14;
/// How far below the target, relatively, is near enough.
const TOLERANCE: f64 = 2e-3;
/// Relative distance from the target beyond which it was not reached.
const MISSED: f64 = 0.05;

/// A fitted concentration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// The concentration.
    pub concentration: f64,
    /// Dropped share that was asked for.
    pub target: f64,
    /// Dropped share with it.
    pub reached: f64,
    /// Whole batches that were drawn and replayed.
    pub probes: usize,
    /// Tokens of the rows it was fitted at.
    pub row_tokens: usize,
    /// Both factors of the pooled-wave rule it was fitted at.
    pub factor: f64,
}

/// Finds the concentration with which pooled-wave drops `target` of the assignments.
///
/// Bisection: the less documents differ, the less is dropped. Each probe is an exact replay of the
/// whole batch, drawn with the same random numbers.
pub(super) fn fit(exchange: &Exchange, drawn: &Drawn, target: f64) -> Result<Fit, TrainError> {
    let fits = exchange.shape(ROW_TOKENS).is_even();
    let row_tokens = if fits { ROW_TOKENS } else { exchange.tokens };
    let shape = exchange.shape(row_tokens);
    let rule = PooledWave { waves: exchange.waves, sender: FACTOR, receiver: FACTOR };
    rule.validate(shape.world)?;
    let (mut low, mut high) = (RANGE.0.ln(), RANGE.1.ln());
    let mut fit =
        Fit { concentration: 0.0, target, reached: 0.0, probes: 0, row_tokens, factor: FACTOR };
    while fit.probes < MAX_PROBES {
        let middle = 0.5 * (low + high);
        fit.concentration = middle.exp();
        let selected = drawn.synthetic.choices(&shape, fit.concentration);
        let choices = Choices::new(shape.world, &selected, None)?;
        fit.reached = rule.counts(&choices, &Demand::of(&choices)).check()?.drop_fraction();
        fit.probes += 1;
        let distance = fit.reached / target - 1.0;
        if (-TOLERANCE..=0.0).contains(&distance) {
            return Ok(fit);
        }
        if distance > 0.0 { low = middle } else { high = middle }
    }
    if (fit.reached / target - 1.0).abs() <= MISSED {
        return Ok(fit);
    }
    let rule = format!(
        "a share that documents of a concentration from {} to {} can lead to; the nearest is \
         {:.2e}, at {:.3}",
        RANGE.0, RANGE.1, fit.reached, fit.concentration
    );
    Err(TrainError::config("--fit", target, rule))
}
