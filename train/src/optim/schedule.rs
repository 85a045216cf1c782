//! The learning rate as a function of the update.

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// Linear warm-up to the peak, then a linear fall to a share of it at the horizon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Updates of the whole run, the horizon of the decay.
    pub steps: u64,
    /// Warm-up updates; 1% of `steps`, rounded down, when absent.
    #[serde(default)]
    pub warmup_steps: Option<u64>,
    /// Rate at the horizon over the peak.
    #[serde(default = "final_ratio")]
    pub final_ratio: f64,
}

fn final_ratio() -> f64 {
    0.05
}

impl Schedule {
    /// The recipe's schedule over `steps` updates.
    pub fn new(steps: u64) -> Self {
        Self { steps, warmup_steps: None, final_ratio: final_ratio() }
    }

    /// Warm-up updates.
    pub fn warmup(&self) -> u64 {
        self.warmup_steps.unwrap_or(self.steps / 100)
    }

    /// The rate of update `i` (from 0) over the peak: `i / w` below `w`, then
    /// `1 - (1 - final) (i - w) / (steps - w)` (SPEC section 4).
    pub fn factor(&self, update: u64) -> f64 {
        let warmup = self.warmup();
        if update < warmup {
            return update as f64 / warmup as f64;
        }
        let progress = (update - warmup) as f64 / (self.steps - warmup) as f64;
        1.0 - (1.0 - self.final_ratio) * progress.min(1.0)
    }

    /// Checks each value.
    ///
    /// # Errors
    /// [`TrainError::Config`] with field, value and rule.
    pub fn validate(&self) -> Result<(), TrainError> {
        if self.steps == 0 {
            return Err(TrainError::config("schedule.steps", 0, "at least 1"));
        }
        if self.warmup() >= self.steps {
            let rule = format!("below `schedule.steps` = {}", self.steps);
            return Err(TrainError::config("schedule.warmup_steps", self.warmup(), rule));
        }
        if !(0.0..=1.0).contains(&self.final_ratio) {
            return Err(TrainError::config("schedule.final_ratio", self.final_ratio, "0 to 1"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_from_zero_and_falls_in_a_line() {
        let schedule = Schedule { warmup_steps: Some(2), ..Schedule::new(24) };
        let factors: Vec<f64> = [0, 1, 2, 3, 24].map(|i| schedule.factor(i)).to_vec();
        let expected = [0.0, 0.5, 1.0, 1.0 - 0.95 / 22.0, 0.05];
        for (found, expected) in factors.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{factors:?}");
        }
    }

    #[test]
    fn a_run_too_short_to_warm_up_starts_at_the_peak() {
        assert_eq!(Schedule::new(20).factor(0), 1.0);
    }
}
