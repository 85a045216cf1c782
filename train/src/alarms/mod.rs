//! Says when a run is not well: the health limits of SPEC section 9, with hysteresis.
//!
//! An alarm is raised by `samples` steps in a row beyond its limit, and cleared by as many within a
//! lower one, so that it does not flicker. It is an event when it is raised and when it is cleared,
//! a metric `alarm/<name>` (0 or 1) of every step, and stands on the console. It stops nothing.

mod config;
mod hysteresis;
mod signals;

pub use config::AlarmsConfig;
pub use signals::{Health, Signal};

use std::collections::VecDeque;

use hysteresis::{Alarm, Turn};

use crate::telemetry::Metrics;

/// An alarm that was raised or cleared.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Which.
    pub signal: Signal,
    /// Whether it is up now.
    pub raised: bool,
    /// What was measured.
    pub value: f64,
    /// What it went beyond, or came back within.
    pub limit: f64,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, value, limit) = (self.signal.name(), self.value, self.limit);
        let (what, than) = match self.raised {
            true => ("ALARM", "beyond"),
            false => ("alarm cleared", "back within"),
        };
        write!(f, "{what} {name}: {} is {value:.4}, {than} {limit:.4}", self.signal.meaning())
    }
}

/// All alarms of a run, on its first rank.
#[derive(Debug)]
pub struct Alarms {
    config: AlarmsConfig,
    alarms: Vec<(Signal, Alarm)>,
    /// The last losses, whose mean is the level.
    losses: VecDeque<f64>,
    /// The lowest level so far.
    floor: Option<f64>,
    /// The lowest held-out loss so far.
    best_heldout: Option<f64>,
    /// Completed updates at the last skipped steps.
    skipped: VecDeque<u64>,
}

impl Alarms {
    /// With the limits of a recipe; those that are 0 or do not apply are never raised.
    pub fn new(config: &AlarmsConfig) -> Self {
        let alarms = Signal::ALL.into_iter().filter_map(|signal| {
            let [raise, clear] = signal.limits(config)?;
            let samples = if signal.is_single() { 1 } else { config.samples };
            Some((signal, Alarm::new(raise, clear, samples)))
        });
        Self {
            alarms: alarms.collect(),
            config: config.clone(),
            losses: VecDeque::new(),
            floor: None,
            best_heldout: None,
            skipped: VecDeque::new(),
        }
    }

    /// Learns from the losses of earlier attempts, in the order of their steps.
    pub fn remember(&mut self, losses: impl Iterator<Item = f64>) {
        losses.for_each(|loss| _ = self.over_floor(loss));
    }

    /// Learns from the held-out losses of earlier attempts.
    pub fn remember_heldout(&mut self, losses: impl Iterator<Item = f64>) {
        let before = self.best_heldout.into_iter();
        self.best_heldout = before.chain(losses).filter(|loss| loss.is_finite()).reduce(f64::min);
    }

    /// What a step changes.
    pub fn after_step(&mut self, health: &Health) -> Vec<Change> {
        if health.skipped {
            self.skipped.push_back(health.step);
        }
        let window = self.config.window_steps;
        self.skipped.retain(|step| step + window > health.step);
        let warm = !health.skipped
            && health.step > self.config.warm_up_steps
            && health.assignments_per_expert >= self.config.min_expert_load;
        let when_warm = |value: f64| warm.then_some(value);
        let values = [
            (Signal::Skipped, Some(self.skipped.len() as f64)),
            (Signal::Loss, (!health.skipped).then(|| self.over_floor(health.loss))),
            (Signal::GradNorm, (!health.skipped).then_some(health.grad_norm)),
            (Signal::Drops, when_warm(health.drop_fraction)),
            (Signal::Entropy, when_warm(health.entropy_gap)),
            (Signal::Bias, Some(health.bias)),
            // A lower limit: the sign makes it an upper one.
            (Signal::Mfu, health.mfu.map(|mfu| -mfu)),
        ];
        values.into_iter().filter_map(|(signal, value)| self.sample(signal, value?)).collect()
    }

    /// What an evaluation changes.
    pub fn after_evaluation(&mut self, heldout: f64) -> Option<Change> {
        let best = self.best_heldout.map_or(heldout, |best| best.min(heldout));
        self.best_heldout = Some(best);
        self.sample(Signal::HeldOut, heldout - best)
    }

    /// What an evaluation beside its forecast changes: see [`AlarmsConfig::over_forecast`].
    pub fn after_forecast(&mut self, over_forecast: f64) -> Option<Change> {
        self.sample(Signal::Forecast, over_forecast)
    }

    /// Names of the alarms that are up.
    pub fn raised(&self) -> Vec<&'static str> {
        let raised = self.alarms.iter().filter(|(_, alarm)| alarm.is_up());
        raised.map(|(signal, _)| signal.name()).collect()
    }

    /// `alarm/<name>` of each alarm that there is, 0 or 1.
    pub fn metrics(&self) -> Metrics {
        let metric = |(signal, alarm): &(Signal, Alarm)| {
            (format!("alarm/{}", signal.name()), u64::from(alarm.is_up()).into())
        };
        self.alarms.iter().map(metric).collect()
    }

    fn sample(&mut self, signal: Signal, value: f64) -> Option<Change> {
        let (_, alarm) = self.alarms.iter_mut().find(|(known, _)| *known == signal)?;
        let turn = alarm.sample(value)?;
        let (raised, limit) = match turn {
            Turn::Raised => (true, alarm.raise_at),
            Turn::Cleared => (false, alarm.clear_at),
        };
        let sign = if signal == Signal::Mfu { -1.0 } else { 1.0 };
        Some(Change { signal, raised, value: sign * value, limit: sign * limit })
    }

    /// How far a loss is over the floor: the lowest mean of as many losses in a row as raise an
    /// alarm.
    fn over_floor(&mut self, loss: f64) -> f64 {
        // Without a floor it is at it, unless it is not a number.
        let over = loss - self.floor.unwrap_or(loss);
        self.losses.push_back(loss);
        if self.losses.len() as u64 == self.config.samples {
            let level = self.losses.iter().sum::<f64>() / self.losses.len() as f64;
            if level.is_finite() {
                self.floor = Some(self.floor.unwrap_or(level).min(level));
            }
            self.losses.pop_front();
        }
        over
    }
}

#[cfg(test)]
mod tests;
