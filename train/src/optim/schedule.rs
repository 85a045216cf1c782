//! The learning rate as a function of the update.

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// Linear warm-up to the peak, then a linear fall to a share of it at the horizon.
///
/// In the course of a run the horizon may be moved: from each [`Replan`] on, what falls goes on
/// falling in a line from where it stands, so that nothing jumps at the join.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Updates of the run as it was planned first: the budget that peak rates follow from, and the
    /// horizon of the decay until a replan.
    pub steps: u64,
    /// Warm-up updates; 1% of `steps`, rounded down, when absent.
    #[serde(default)]
    pub warmup_steps: Option<u64>,
    /// Rate at the horizon over the peak.
    #[serde(default = "final_ratio")]
    pub final_ratio: f64,
    /// Other horizons from some update on, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replans: Vec<Replan>,
}

/// Another horizon from one update on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replan {
    /// Completed updates at the join; the update after them is the first of the new line.
    pub from: u64,
    /// Updates of the whole run from then on.
    pub steps: u64,
}

fn final_ratio() -> f64 {
    0.05
}

impl Schedule {
    /// The recipe's schedule over `steps` updates.
    pub fn new(steps: u64) -> Self {
        Self { steps, warmup_steps: None, final_ratio: final_ratio(), replans: Vec::new() }
    }

    /// Warm-up updates.
    pub fn warmup(&self) -> u64 {
        self.warmup_steps.unwrap_or(self.steps / 100)
    }

    /// Updates of the whole run, by the last replan if there was one.
    pub fn horizon(&self) -> u64 {
        self.replans.last().map_or(self.steps, |replan| replan.steps)
    }

    /// The horizon in force for the update after `update` completed ones.
    pub fn horizon_at(&self, update: u64) -> u64 {
        self.replan_before(update).map_or(self.steps, |index| self.replans[index].steps)
    }

    /// The rate of update `i` (from 0) over the peak: `i / w` below `w`, then
    /// `1 - (1 - final) (i - w) / (steps - w)` (SPEC section 4).
    pub fn factor(&self, update: u64) -> f64 {
        let first = |update: u64| {
            let warmup = self.warmup();
            if update < warmup {
                return update as f64 / warmup as f64;
            }
            let progress = (update - warmup) as f64 / (self.steps - warmup) as f64;
            1.0 - (1.0 - self.final_ratio) * progress.min(1.0)
        };
        self.follow(self.replan_before(update), update, self.final_ratio, &first)
    }

    /// What is left at update `i` of something that falls from 1 at the start to 0 at the horizon.
    pub fn remaining(&self, update: u64) -> f64 {
        let first = |update: u64| (1.0 - update as f64 / self.steps as f64).max(0.0);
        self.follow(self.replan_before(update), update, 0.0, &first)
    }

    /// Which replan is in force for an update.
    fn replan_before(&self, update: u64) -> Option<usize> {
        self.replans.iter().rposition(|replan| replan.from <= update)
    }

    /// A line from where the value stood at the join to `end` at the replan's horizon; `first`
    /// before any replan.
    fn follow(
        &self,
        replan: Option<usize>,
        update: u64,
        end: f64,
        first: &dyn Fn(u64) -> f64,
    ) -> f64 {
        let Some(index) = replan else { return first(update) };
        let Replan { from, steps } = self.replans[index];
        let start = self.follow(index.checked_sub(1), from, end, first);
        let progress = (update - from) as f64 / (steps - from) as f64;
        start - (start - end) * progress.min(1.0)
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
        let mut earliest = self.warmup();
        for (index, replan) in self.replans.iter().enumerate() {
            let field = |name: &str| format!("schedule.replans[{index}].{name}");
            if replan.from < earliest {
                let rule = format!("at least {earliest}, after warm-up and the replan before");
                return Err(TrainError::config(field("from"), replan.from, rule));
            }
            if replan.steps <= replan.from {
                let rule = format!("above `from` = {}", replan.from);
                return Err(TrainError::config(field("steps"), replan.steps, rule));
            }
            earliest = replan.from + 1;
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

    #[test]
    fn a_replan_is_continuous_and_ends_at_the_final_share() {
        let first = Schedule::new(1_000);
        let mut schedule = first.clone();
        schedule.replans = vec![Replan { from: 200, steps: 500 }, Replan { from: 300, steps: 900 }];
        schedule.validate().expect("in order");
        for update in 0..=200 {
            assert_eq!(schedule.factor(update), first.factor(update));
            assert_eq!(schedule.remaining(update), first.remaining(update));
        }
        let at = |update| schedule.factor(update);
        let slope = (first.factor(200) - 0.05) / 300.0;
        assert!((at(200) - at(201) - slope).abs() < 1e-12, "the first line");
        let slope = (at(300) - 0.05) / 600.0;
        assert!((at(299) - at(300) - (first.factor(200) - 0.05) / 300.0).abs() < 1e-12);
        assert!((at(300) - at(301) - slope).abs() < 1e-12, "the second line");
        assert!((at(900) - 0.05).abs() < 1e-12 && (at(901) - 0.05).abs() < 1e-12);
        assert!(schedule.remaining(900).abs() < 1e-12 && schedule.remaining(899) > 0.0);
        let horizons = [0, 199, 200, 299, 300].map(|update| schedule.horizon_at(update));
        assert_eq!((horizons, schedule.horizon()), ([1_000, 1_000, 500, 500, 900], 900));
    }

    #[test]
    fn replans_out_of_order_or_without_time_are_refused() {
        let refused = |from, steps, needed: &str| {
            let mut schedule = Schedule::new(1_000);
            schedule.replans = vec![Replan { from: 100, steps: 800 }, Replan { from, steps }];
            let error = schedule.validate().expect_err(needed).to_string();
            assert!(error.contains(needed), "{error}");
        };
        refused(100, 900, "`schedule.replans[1].from` is 100, needed at least 101");
        refused(200, 200, "`schedule.replans[1].steps` is 200, needed above `from` = 200");
        let mut schedule = Schedule::new(1_000);
        schedule.replans = vec![Replan { from: 9, steps: 800 }];
        let error = schedule.validate().expect_err("in warm-up").to_string();
        assert!(error.contains("needed at least 10"), "{error}");
    }
}
