//! The recipe's `[alarms]`.

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// Limits beyond which a run says that it is not well (SPEC section 9). A limit of 0 is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlarmsConfig {
    /// Nats of training loss over its floor, the lowest mean of `samples` steps so far.
    pub loss_over_floor: f64,
    /// Gradient norm.
    pub grad_norm: f64,
    /// Share of assignments that the exchange drops.
    pub drop_fraction: f64,
    /// The share at which that alarm is cleared.
    pub drop_goal: f64,
    /// What the entropy of loads, a mean over layers, may be below ln(experts), that of equal loads:
    /// 5.92 of 5.951 with 384 experts.
    pub entropy_gap: f64,
    /// Absolute router bias.
    pub router_bias: f64,
    /// Percent of the peak that a run on an accelerator must use.
    pub mfu_percent: f64,
    /// Nats of held-out loss over the lowest so far. The published run watches for a rise and names
    /// no number; this is about what evaluations of a healthy run scatter.
    pub heldout_rise: f64,
    /// What the loss that was forecast may be over the forecast, as a share of the distance from it to
    /// the top of its band: above 1 is out of the band. Of runs whose recipe names a `forecast`.
    pub over_forecast: f64,
    /// Skipped steps within `window_steps`.
    pub skipped_steps: u64,
    /// Steps in which skipped ones are counted: 15 minutes of the published run are about 100.
    pub window_steps: u64,
    /// Steps in a row beyond a limit that raise an alarm, and within the lower one that clear it.
    pub samples: u64,
    /// The lower limit as a share of the limit, above 0 and at most 1.
    pub clear_share: f64,
    /// Steps at the start of a run in which drops and entropy are not judged.
    pub warm_up_steps: u64,
    /// Assignments of a layer that an expert must get on average before drops and entropy are
    /// judged: below, loads are uneven by chance.
    pub min_expert_load: f64,
}

impl Default for AlarmsConfig {
    fn default() -> Self {
        Self {
            loss_over_floor: 1.0,
            grad_norm: 2.0,
            drop_fraction: 0.07,
            drop_goal: 0.03,
            entropy_gap: 0.031,
            router_bias: 400.0,
            mfu_percent: 15.0,
            heldout_rise: 0.05,
            over_forecast: 1.0,
            skipped_steps: 3,
            window_steps: 100,
            samples: 10,
            clear_share: 0.9,
            warm_up_steps: 100,
            min_expert_load: 1000.0,
        }
    }
}

impl AlarmsConfig {
    /// Checks each value.
    ///
    /// # Errors
    /// [`TrainError::Config`] with field, value and rule.
    pub fn validate(&self) -> Result<(), TrainError> {
        let at_least_0 = [
            ("loss_over_floor", self.loss_over_floor),
            ("grad_norm", self.grad_norm),
            ("drop_fraction", self.drop_fraction),
            ("drop_goal", self.drop_goal),
            ("entropy_gap", self.entropy_gap),
            ("router_bias", self.router_bias),
            ("mfu_percent", self.mfu_percent),
            ("heldout_rise", self.heldout_rise),
            ("over_forecast", self.over_forecast),
            ("min_expert_load", self.min_expert_load),
        ];
        for (field, value) in at_least_0 {
            if !(value.is_finite() && value >= 0.0) {
                let rule = "a finite number, at least 0";
                return Err(TrainError::config(format!("alarms.{field}"), value, rule));
            }
        }
        if self.samples == 0 {
            return Err(TrainError::config("alarms.samples", 0, "at least 1"));
        }
        if !(self.clear_share > 0.0 && self.clear_share <= 1.0) {
            let rule = "above 0 and at most 1";
            return Err(TrainError::config("alarms.clear_share", self.clear_share, rule));
        }
        if self.drop_fraction > 0.0 && self.drop_goal > self.drop_fraction {
            let rule = format!("at most `alarms.drop_fraction` = {}", self.drop_fraction);
            return Err(TrainError::config("alarms.drop_goal", self.drop_goal, rule));
        }
        Ok(())
    }
}
