//! What alarms look at.

use super::AlarmsConfig;
use crate::config::RunConfig;
use crate::step::StepReport;

/// Something that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Training loss over its floor.
    Loss,
    /// Gradient norm.
    GradNorm,
    /// Share of assignments that the exchange dropped.
    Drops,
    /// What the entropy of loads is below that of equal loads.
    Entropy,
    /// The largest router bias, whatever its sign.
    Bias,
    /// Percent of the device's peak that the run uses.
    Mfu,
    /// Held-out loss over its lowest.
    HeldOut,
    /// The loss that was forecast over its forecast.
    Forecast,
    /// Skipped steps of the last few.
    Skipped,
}

impl Signal {
    pub(super) const ALL: [Self; 9] = [
        Self::Loss,
        Self::GradNorm,
        Self::Drops,
        Self::Entropy,
        Self::Bias,
        Self::Mfu,
        Self::HeldOut,
        Self::Forecast,
        Self::Skipped,
    ];

    /// As in the metric `alarm/<name>`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::GradNorm => "grad_norm",
            Self::Drops => "drops",
            Self::Entropy => "entropy",
            Self::Bias => "router_bias",
            Self::Mfu => "mfu",
            Self::HeldOut => "heldout",
            Self::Forecast => "forecast",
            Self::Skipped => "skipped_steps",
        }
    }

    /// For people: what the number is.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Loss => "the training loss over its floor",
            Self::GradNorm => "the gradient norm",
            Self::Drops => "the share of dropped assignments",
            Self::Entropy => "the entropy of loads below that of equal loads",
            Self::Bias => "the largest router bias",
            Self::Mfu => "percent of the peak",
            Self::HeldOut => "the held-out loss over its lowest",
            Self::Forecast => "the loss over its forecast, as a share of the band above,",
            Self::Skipped => "the number of skipped steps in the window",
        }
    }

    /// One value suffices where it sums up many.
    pub(super) fn is_single(self) -> bool {
        matches!(self, Self::HeldOut | Self::Forecast | Self::Skipped)
    }

    /// Where the alarm is raised and where it is cleared; none if it is off.
    pub(super) fn limits(self, config: &AlarmsConfig) -> Option<[f64; 2]> {
        let below = |limit: f64| [limit, config.clear_share * limit];
        let (limit, limits) = match self {
            Self::Loss => (config.loss_over_floor, below(config.loss_over_floor)),
            Self::GradNorm => (config.grad_norm, below(config.grad_norm)),
            Self::Drops => (config.drop_fraction, [config.drop_fraction, config.drop_goal]),
            Self::Entropy => (config.entropy_gap, below(config.entropy_gap)),
            Self::Bias => (config.router_bias, below(config.router_bias)),
            Self::Mfu => (
                config.mfu_percent,
                [-config.mfu_percent, -config.mfu_percent / config.clear_share],
            ),
            Self::HeldOut => (config.heldout_rise, below(config.heldout_rise)),
            Self::Forecast => (config.over_forecast, below(config.over_forecast)),
            // `skipped_steps` of them raise it, and none clears it.
            Self::Skipped => {
                let skipped = config.skipped_steps as f64;
                (skipped, [skipped - 1.0, 0.0])
            }
        };
        (limit > 0.0).then_some(limits)
    }
}

/// What alarms are told of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Health {
    /// Completed updates.
    pub step: u64,
    /// Whether the step was left out because it was not finite.
    pub skipped: bool,
    /// Training loss.
    pub loss: f64,
    /// Gradient norm.
    pub grad_norm: f64,
    /// Share of assignments that the exchange dropped.
    pub drop_fraction: f64,
    /// ln(experts) less the mean entropy of loads over layers.
    pub entropy_gap: f64,
    /// Largest absolute router bias.
    pub bias: f64,
    /// Percent of the peak, where the device is an accelerator.
    pub mfu: Option<f64>,
    /// Assignments of a layer over experts: how much of an uneven load is chance.
    pub assignments_per_expert: f64,
}

impl Health {
    /// Of the step that has led to `step` completed updates; `mfu` in percent where it counts.
    pub fn of(report: &StepReport, step: u64, config: &RunConfig, mfu: Option<f64>) -> Self {
        let experts = config.model.num_experts as f64;
        let entropy = report.layers.iter().map(|layer| layer.routing.entropy()).sum::<f64>();
        let assignments = config.tokens_per_step() * config.model.num_experts_per_token as u64;
        let (low, high) = report.bias_range;
        Self {
            step,
            skipped: !report.updated,
            loss: report.loss,
            grad_norm: report.grad_norm,
            drop_fraction: report.counts().drop_fraction(),
            entropy_gap: experts.ln() - entropy / report.layers.len() as f64,
            bias: f64::from(low.abs().max(high.abs())),
            mfu,
            assignments_per_expert: assignments as f64 / experts,
        }
    }
}
