//! Every rule at every factor, over one or more layers.

use fulmar_ep::DispatchCounts;
use fulmar_ep::replay::{
    Choices, Demand, FixedCells, Footprint, PooledWave, Ragged, Replay, Ring, Rule,
};
use serde::Serialize;

use super::settings::Exchange;
use crate::error::TrainError;

/// Dropped share that the published run's design aims below (SPEC section 9).
pub(super) const GOAL: f64 = 0.03;
/// Dropped share above which it raises an alarm (SPEC section 9).
pub(super) const ALARM: f64 = 0.07;

/// The rules, with one factor for sender and receiver.
pub(super) fn rules(waves: usize, factor: f64) -> [Box<dyn Rule>; 4] {
    [
        Box::new(PooledWave { waves, sender: factor, receiver: factor }),
        Box::new(Ragged { receiver: factor }),
        Box::new(FixedCells { receiver: factor }),
        Box::new(Ring { receiver: factor }),
    ]
}

/// Where a drop rate stands against the published run's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Within the goal of 3%.
    Goal,
    /// Between goal and alarm.
    Between,
    /// Beyond the alarm of 7%.
    Alarm,
}

/// What one rule does at one factor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The rule.
    pub rule: &'static str,
    /// Sender's and receiver's factor.
    pub factor: f64,
    /// Assignments of all layers, exact.
    #[serde(flatten)]
    pub counts: DispatchCounts,
    /// Dropped share of the valid assignments.
    pub drop_fraction: f64,
    /// The senders' part of it.
    pub sender_drop_fraction: f64,
    /// The receivers' part of it.
    pub receiver_drop_fraction: f64,
    /// Against the limits.
    pub gate: Gate,
    /// Of one shard and layer, in the mean over layers.
    #[serde(flatten)]
    pub footprint: Footprint,
    /// Share of the physical rows of expert input without a kept row.
    pub padding_share: f64,
}

/// Sums over layers.
pub(super) struct Sweep<'a> {
    exchange: &'a Exchange,
    layers: u64,
    /// By rule, then factor.
    totals: Vec<Vec<Total>>,
}

struct Total {
    rule: Box<dyn Rule>,
    factor: f64,
    counts: DispatchCounts,
    footprint: Footprint,
    wire_bytes: u64,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(exchange: &'a Exchange) -> Self {
        let mut totals: Vec<Vec<Total>> = Vec::new();
        for &factor in &exchange.factors {
            for (i, rule) in rules(exchange.waves, factor).into_iter().enumerate() {
                totals.resize_with(totals.len().max(i + 1), Vec::new);
                totals[i].push(Total {
                    rule,
                    factor,
                    counts: DispatchCounts::default(),
                    footprint: Footprint::default(),
                    wire_bytes: 0,
                });
            }
        }
        Self { exchange, layers: 0, totals }
    }

    /// Replays one layer.
    pub(super) fn add(&mut self, choices: &Choices) -> Result<(), TrainError> {
        let demand = Demand::of(choices);
        for total in self.totals.iter_mut().flatten() {
            let replay = Replay::of(&*total.rule, choices, &demand, self.exchange.payload)?;
            total.counts += replay.counts;
            total.footprint = replay.footprint;
            total.wire_bytes += replay.footprint.wire_bytes;
        }
        self.layers += 1;
        Ok(())
    }

    /// The sums, by rule and factor.
    pub(super) fn lines(&self) -> Vec<Line> {
        self.totals.iter().flatten().map(|total| self.line(total)).collect()
    }

    fn line(&self, total: &Total) -> Line {
        let (counts, layers) = (total.counts, self.layers.max(1));
        // Shapes and padding are the same in all layers; what crosses the wire is not.
        let footprint = Footprint { wire_bytes: total.wire_bytes / layers, ..total.footprint };
        let rows = footprint.expert_rows * self.exchange.shards as u64 * layers;
        let drop_fraction = counts.drop_fraction();
        Line {
            rule: total.rule.name(),
            factor: total.factor,
            counts,
            drop_fraction,
            sender_drop_fraction: counts.sender_drop_fraction(),
            receiver_drop_fraction: counts.receiver_drop_fraction(),
            gate: match drop_fraction {
                dropped if dropped > ALARM => Gate::Alarm,
                dropped if dropped > GOAL => Gate::Between,
                _ => Gate::Goal,
            },
            footprint,
            padding_share: 1.0 - counts.kept as f64 / rows as f64,
        }
    }
}
