//! The record beside predictions.
//!
//! Each case is replayed in its own setting with the one concentration; nothing else is adjusted.

use fulmar_ep::DispatchCounts;
use fulmar_ep::replay::{Choices, Demand, Rule, World};
use serde::Serialize;

use super::fit;
use super::record::{At, CASES, Case, HERO, Part, Setting, WAVES};
use super::settings::Exchange;
use super::synthetic::{Shape, Synthetic};
use crate::error::TrainError;

/// A prediction within this factor of the recorded range is a hit.
pub(super) const HIT: f64 = 2.0;

/// What a prediction is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within a factor of two of the recorded range.
    Hit,
    /// Further away.
    Miss,
    /// No prediction: the concentration was fitted in this very setting.
    Fitted,
}

/// A recorded drop rate and the predicted one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The run.
    pub what: &'static str,
    /// Its rule.
    pub rule: &'static str,
    /// Its factor, or factors.
    pub factor: f64,
    /// Whose drops.
    pub part: Part,
    /// Least recorded share; 0 where only a bound is known.
    pub recorded_low: f64,
    /// Largest recorded share.
    pub recorded_high: f64,
    /// Predicted share.
    pub predicted: f64,
    /// What it is worth.
    pub verdict: Verdict,
    /// Issues and pulls of the public repository.
    pub source: &'static str,
}

/// The record beside predictions, where the exchange is the hero's; else nothing, because its
/// concentration says nothing about these runs.
pub(super) fn compare(
    exchange: &Exchange,
    synthetic: &Synthetic,
    concentration: f64,
    is_fitted: bool,
) -> Result<Vec<Comparison>, TrainError> {
    let hero = &HERO.shape;
    if exchange.shape(hero.row_tokens) != *hero || exchange.waves != WAVES {
        return Ok(Vec::new());
    }
    let mut comparisons = Vec::new();
    // Neighbouring cases of one setting share its choices.
    for cases in CASES.chunk_by(|a, b| a.setting == b.setting) {
        let setting = cases[0].setting;
        let selected = synthetic.choices(&setting.shape, concentration);
        for case in cases {
            let counts = setting.replay(&selected, &*case.at.rule())?;
            comparisons.push(case.beside(counts, is_fitted));
        }
    }
    Ok(comparisons)
}

impl Setting {
    fn replay(&self, selected: &[u16], rule: &dyn Rule) -> Result<DispatchCounts, TrainError> {
        let Shape { world, tokens, .. } = self.shape;
        let per_shard = tokens * world.experts_per_token;
        let slice_world = World { shards: world.shards / self.slices, ..world };
        rule.validate(slice_world)?;
        let mut all = DispatchCounts::default();
        for slice in 0..self.slices {
            let shards = selected.chunks_exact(per_shard).skip(slice).step_by(self.slices);
            let part: Vec<u16> = shards.flatten().copied().collect();
            let choices = Choices::new(slice_world, &part, None)?;
            all += rule.counts(&choices, &Demand::of(&choices)).check()?;
        }
        Ok(all)
    }
}

impl Case {
    /// Whether the fit is made in this setting (`fit`).
    fn is_the_fit(&self) -> bool {
        *self.setting == HERO && self.at == At::PooledWave(fit::FACTOR)
    }

    fn beside(&self, counts: DispatchCounts, is_fitted: bool) -> Comparison {
        let predicted = match self.part {
            Part::Total => counts.drop_fraction(),
            Part::Sender => counts.sender_drop_fraction(),
            Part::Receiver => counts.receiver_drop_fraction(),
        };
        let (low, high) = (self.percent.0 / 100.0, self.percent.1 / 100.0);
        Comparison {
            what: self.what,
            rule: self.at.rule().name(),
            factor: self.at.factor(),
            part: self.part,
            recorded_low: low,
            recorded_high: high,
            predicted,
            verdict: if is_fitted && self.is_the_fit() {
                Verdict::Fitted
            } else if (low / HIT..=high * HIT).contains(&predicted) {
                Verdict::Hit
            } else {
                Verdict::Miss
            },
            source: self.source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_is_within_a_factor_of_two() {
        let dropped = |sender_dropped| DispatchCounts {
            assignments: 10_000,
            valid: 10_000,
            kept: 10_000 - sender_dropped,
            sender_dropped,
            ..Default::default()
        };
        let hits = |case: &Case, dropped_counts: &[u64]| -> Vec<bool> {
            let is_hit = |n| case.beside(dropped(n), false).verdict == Verdict::Hit;
            dropped_counts.iter().map(|&n| is_hit(n)).collect()
        };
        // 3.4% to 3.5%: hits from 1.7% to 7%.
        assert_eq!(hits(&CASES[0], &[169, 170, 700, 701]), [false, true, true, false]);
        // At most 0.01%: hits up to 0.02%.
        assert_eq!(hits(&CASES[3], &[0, 2, 3]), [true, true, false]);
        assert_eq!(CASES[0].beside(dropped(300), true).verdict, Verdict::Fitted);
        assert_eq!(CASES[3].beside(dropped(0), true).verdict, Verdict::Hit);
    }

    #[test]
    fn every_setting_can_be_drawn_and_cut_into_slices() {
        for case in &CASES {
            let Setting { shape, slices } = case.setting;
            assert!(shape.is_even() && shape.world.shards.is_multiple_of(*slices), "{}", case.what);
            let world = World { shards: shape.world.shards / slices, ..shape.world };
            case.at.rule().validate(world).expect(case.what);
        }
    }
}
