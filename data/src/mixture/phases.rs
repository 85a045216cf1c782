//! Phases: stages of a mixture by their share of a run.

use std::collections::BTreeMap;

use super::Stage;
use crate::{BatchPlan, DataError, Result};

/// Weights that hold for a share of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Share of the run's steps; above 0, the sum of all is 1.
    pub share: f64,
    /// As in [`Stage::weights`].
    pub weights: BTreeMap<String, f64>,
}

/// How far shares may be from a sum of 1.
const SHARE_TOLERANCE: f64 = 1e-6;

/// The stages of a run of `steps` batches.
///
/// A phase ends behind its share of the run's steps, rounded down to a whole step and from there to
/// one that begins with a block (SPEC section 5); the last one has no end.
///
/// # Errors
/// [`DataError::Mixture`] for shares that are not above 0, do not sum to 1, or leave a phase
/// without a block.
pub fn stages_of_phases(phases: &[Phase], steps: u64, batches: &BatchPlan) -> Result<Vec<Stage>> {
    let bad = |field: String, found: f64, needed: String| DataError::Mixture {
        field,
        found: found.to_string(),
        needed,
    };
    let sum: f64 = phases.iter().fold(0.0, |sum, phase| sum + phase.share);
    if (sum - 1.0).abs() > SHARE_TOLERANCE || !sum.is_finite() {
        let needed = format!("a sum of shares of 1 within {SHARE_TOLERANCE}");
        return Err(bad("phases".to_owned(), sum, needed));
    }
    let every = batches.next_boundary(1);
    let (mut stages, mut until, mut from_block) = (Vec::new(), 0.0, 0);
    for (index, phase) in phases.iter().enumerate() {
        let field = || format!("phases[{index}].share");
        if phase.share.is_nan() || phase.share <= 0.0 {
            return Err(bad(field(), phase.share, "a number above 0".to_owned()));
        }
        stages.push(Stage { from_block, weights: phase.weights.clone() });
        until += phase.share;
        // Sums of decimal shares may lie a rounding below the whole step that is meant.
        let step = (until * steps as f64 + 1e-6) as u64 / every * every;
        let next = batches.block(step);
        if next <= from_block {
            let needed = format!(
                "a share that holds a boundary of blocks, every {every} of the run's {steps} steps"
            );
            return Err(bad(field(), phase.share, needed));
        }
        from_block = next;
    }
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RowLengths;

    fn phases(shares: &[f64]) -> Vec<Phase> {
        let weights = BTreeMap::from([("a/q1".to_owned(), 1.0)]);
        shares.iter().map(|&share| Phase { share, weights: weights.clone() }).collect()
    }

    fn starts(shares: &[f64], steps: u64, block_rows: u64, batch_rows: u64) -> Result<Vec<u64>> {
        let batches = RowLengths::constant(4).plan(block_rows)?.batches(4 * batch_rows)?;
        let stages = stages_of_phases(&phases(shares), steps, &batches)?;
        Ok(stages.iter().map(|stage| stage.from_block).collect())
    }

    #[test]
    fn the_heros_second_phase_begins_with_step_312_192() {
        let found = starts(&[0.8, 0.2], 390_251, 49_152, 11_264).expect("two phases");
        assert_eq!(found, [0, 312_192 * 11_264 / 49_152]);
        assert_eq!(found[1] * 49_152, 312_192 * 11_264);
    }

    #[test]
    fn sums_of_decimal_shares_end_at_the_step_that_is_meant() {
        // 0.7 + 0.1 is a rounding below 0.8.
        assert_eq!(starts(&[0.7, 0.1, 0.2], 1_000, 5, 5).expect("three"), [0, 700, 800]);
    }

    #[test]
    fn shares_that_cannot_be_are_refused() {
        for (shares, needed) in [
            (&[0.5, 0.4][..], "`phases` is 0.9"),
            (&[], "`phases` is 0"),
            (&[1.5, -0.5], "`phases[1].share` is -0.5"),
            (&[f64::NAN, 1.0], "`phases` is NaN"),
            (&[0.01, 0.99], "every 48 of the run's 1000 steps"),
        ] {
            let error = starts(shares, 1_000, 49_152, 11_264).expect_err(needed).to_string();
            assert!(error.contains(needed), "{error}");
        }
    }
}
