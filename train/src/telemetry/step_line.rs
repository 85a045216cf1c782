//! The line of one step.

use super::throughput::FLOPS_RULE;
use super::{Metrics, Peak, names};
use crate::config::RunConfig;
use crate::optim::{Norms, StepRates};
use crate::step::StepReport;
use crate::watchdog::{Phase, PhaseSeconds};

/// Everything that the log tells of a step but its alarms.
#[derive(Debug, Clone, Copy)]
pub struct StepLine<'a> {
    /// The run.
    pub config: &'a RunConfig,
    /// What the step found out.
    pub report: &'a StepReport,
    /// Its rates.
    pub rates: StepRates,
    /// Digest of its batch.
    pub digest: u64,
    /// Batches taken, this one included.
    pub batches: u64,
    /// Tokens of a row.
    pub seq_len: usize,
    /// Stage of the mixture.
    pub stage: usize,
    /// How rows reach experts.
    pub exchange: &'static str,
    /// Norms of gradients and parameters, where they are due.
    pub norms: Option<[&'a Norms; 2]>,
    /// Seconds of the step, from batch to update.
    pub secs: f64,
    /// Time by phase since the line before.
    pub phases: PhaseSeconds,
    /// What the hardware can do.
    pub peak: Option<Peak>,
}

impl StepLine<'_> {
    /// Percent of the peak that the step used, where the peak is known.
    pub fn mfu(&self) -> Option<f64> {
        Some(self.peak?.percent(self.flops(), self.secs))
    }

    /// The metrics.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = names::of_step(self.report, self.rates, self.config);
        metrics.insert("data/digest".to_owned(), format!("{:016x}", self.digest).into());
        metrics.insert(names::BATCHES.to_owned(), self.batches.into());
        metrics.insert("data/seq_len".to_owned(), self.seq_len.into());
        metrics.insert("mixture/stage".to_owned(), self.stage.into());
        metrics.insert("moe/exchange".to_owned(), self.exchange.into());
        metrics.insert(names::SKIPPED.to_owned(), u64::from(!self.report.updated).into());
        if let Some([gradients, parameters]) = self.norms {
            add_norms(&mut metrics, "grad/norm", gradients, self.config.log.per_layer);
            add_norms(&mut metrics, "params/norm", parameters, self.config.log.per_layer);
        }
        self.add_throughput(&mut metrics);
        metrics
    }

    fn add_throughput(&self, metrics: &mut Metrics) {
        let (flops, secs) = (self.flops(), self.secs);
        let mut put = |name: &str, value: f64| {
            metrics.insert(name.to_owned(), names::number(value));
        };
        put(names::DURATION, secs);
        put(names::TOKENS_PER_SECOND, self.config.tokens_per_step() as f64 / secs);
        put("throughput/gflops_per_second", flops / secs / 1e9);
        put("throughput/iteration_time", self.phases.total());
        for (name, phase) in PHASE_NAMES {
            put(name, self.phases.of(phase));
        }
        let Some(peak) = self.peak else { return };
        put("throughput/mfu", peak.percent(flops, secs));
        put("throughput/peak_flops_per_second", peak.flops_per_second);
        metrics.insert("throughput/peak_source".to_owned(), peak.source.name().into());
        metrics.insert(names::FLOPS_RULE.to_owned(), FLOPS_RULE.into());
    }

    fn flops(&self) -> f64 {
        self.config.model.step_flops(self.config.tokens_per_step())
    }
}

/// Parts of `throughput/iteration_time`; saves and evaluations are those before the step.
const PHASE_NAMES: [(&str, Phase); 9] = [
    ("throughput/starting_time", Phase::Starting),
    ("throughput/loading_time", Phase::Loading),
    ("throughput/forward_backward_time", Phase::ForwardBackward),
    ("throughput/gradient_time", Phase::Gradients),
    ("throughput/update_time", Phase::Update),
    ("throughput/hook_time", Phase::Hooks),
    ("throughput/evaluation_time", Phase::Evaluation),
    ("throughput/checkpoint_time", Phase::Saving),
    ("throughput/ending_time", Phase::Ending),
];

fn add_norms(metrics: &mut Metrics, prefix: &str, norms: &Norms, per_layer: bool) {
    let mut put = |name: String, norm: f64| {
        metrics.insert(format!("{prefix}/{name}"), names::number(norm));
    };
    put("total".to_owned(), norms.total);
    for (role, norm) in &norms.groups {
        put(role.name().to_owned(), *norm);
    }
    if per_layer {
        for (index, norm) in norms.layers.iter().enumerate() {
            put(format!("layer_{index}"), *norm);
        }
    }
}
