//! Every metric by its name in the public run's telemetry (SPEC section 9).

use fulmar_ep::{DispatchCounts, WireBytes};
use serde_json::Value;

use super::Metrics;
use super::memory::{Sizes, peak_resident_bytes};
use crate::config::RunConfig;
use crate::layer_report::LayerReport;
use crate::optim::StepRates;
use crate::step::StepReport;

/// Completed updates, the key of every line.
pub const STEP: &str = "step";
/// Mean over domains of the held-out loss, without drops.
pub const HELDOUT_LOSS: &str = "eval/heldout/macro_loss";
/// Which start of the run wrote the line, from 1.
pub const ATTEMPT: &str = "attempt";
/// Cross-entropy plus weighted z-loss, in nats; what balances sequences has its own name.
pub const LOSS: &str = "train/loss";
/// Norm of the whole gradient.
pub const GRAD_NORM: &str = "grad/norm/total";
/// Share of assignments that the exchange dropped.
pub const DROP_FRACTION: &str = "moe/drop_fraction";
/// Which FLOPs speeds count.
pub const FLOPS_RULE: &str = "throughput/flops_rule";
/// Tokens a second, of the whole step.
pub const TOKENS_PER_SECOND: &str = "throughput/tokens_per_second";
/// The most memory the process has held, in bytes; where the system tells.
pub const PEAK_RESIDENT: &str = "memory/peak_resident_bytes";
/// Batches taken, this one and skipped ones included.
pub const BATCHES: &str = "data/batches";
/// 1 of a step that was left out because it was not finite, else 0.
pub const SKIPPED: &str = "optim/skipped_step";
/// Seconds of a step.
pub const DURATION: &str = "throughput/duration";

/// The metrics of a step that are not times: the same for the same seed.
pub fn of_step(report: &StepReport, rates: StepRates, config: &RunConfig) -> Metrics {
    let mut metrics = Metrics::new();
    let mut put = |name: &str, value: f64| {
        metrics.insert(name.to_owned(), number(value));
    };
    put(LOSS, report.loss);
    put("train/cross_entropy_loss", report.cross_entropy);
    put("train/z_loss", report.z);
    put(GRAD_NORM, report.grad_norm);
    put("optim/learning_rate", rates.muonh);
    put("optim/adam_learning_rate", rates.adam);
    put("train/router/bias_min", f64::from(report.bias_range.0));
    put("train/router/bias_max", f64::from(report.bias_range.1));
    let mean = |of: &dyn Fn(&LayerReport) -> f64| {
        report.layers.iter().map(of).sum::<f64>() / report.layers.len() as f64
    };
    put("train/router/routing_entropy_mean", mean(&|layer| layer.routing.entropy()));
    put("train/router/load_balancing_loss", mean(&|layer| layer.routing.load_balancing_loss()));
    put("train/router/router_z_loss", mean(&|layer| layer.routing.router_z_loss()));
    put("train/router/capacity_overflow_rate_mean", mean(&|layer| layer.counts.drop_fraction()));
    if let Some(sequence_balance) = report.sequence_balance {
        let weight = config.model.sequence_balance_loss;
        put("train/router/aux_loss_weighted", weight * sequence_balance);
    }
    let counts = report.counts();
    put(DROP_FRACTION, counts.drop_fraction());
    put("moe/sender_drop_fraction", counts.sender_drop_fraction());
    put("moe/receiver_drop_fraction", counts.receiver_drop_fraction());
    put("moe/receiver_drop_fraction_of_received", counts.receiver_drop_fraction_of_received());
    for (name, count) in [
        ("moe/valid_assignments", counts.valid),
        ("moe/padding_assignments", counts.padding),
        ("moe/dropped_assignments", counts.sender_dropped + counts.receiver_dropped),
        ("moe/sender_dropped_assignments", counts.sender_dropped),
        ("moe/receiver_dropped_assignments", counts.receiver_dropped),
    ] {
        metrics.insert(name.to_owned(), count.into());
    }
    add_exchange(&mut metrics, report);
    if config.log.per_layer {
        for (index, layer) in report.layers.iter().enumerate() {
            add_layer(&mut metrics, index, layer);
        }
    }
    metrics
}

/// Bytes of the first rank by owner, and the peak of its process.
pub fn of_memory(sizes: &Sizes) -> Metrics {
    let mut metrics = Metrics::new();
    for (kind, by_role) in sizes.kinds() {
        for (part, bytes) in by_role.parts() {
            metrics.insert(format!("memory/{kind}/{part}_bytes"), bytes.into());
        }
    }
    if let Some(peak) = peak_resident_bytes() {
        metrics.insert(PEAK_RESIDENT.to_owned(), peak.into());
    }
    metrics
}

/// What the exchanges of all layers did: bytes, tokens by experts lost, drops by source rank.
fn add_exchange(metrics: &mut Metrics, report: &StepReport) {
    let mut wire = WireBytes::default();
    report.layers.iter().for_each(|layer| wire += layer.wire);
    metrics.insert("moe/wire_header_share".to_owned(), number(wire.header_share()));
    let mut put = |name: String, count: u64| drop(metrics.insert(name, count.into()));
    put("moe/wire_bytes".to_owned(), wire.payload + wire.header);
    put("moe/wire_header_bytes".to_owned(), wire.header);
    let Some(first) = report.layers.first() else { return };
    for lost in 0..first.tokens_by_lost.len() {
        let tokens = report.layers.iter().map(|layer| layer.tokens_by_lost[lost]).sum();
        put(format!("moe/tokens_that_lost_{lost}"), tokens);
    }
    let ranks = first.counts_by_rank.len();
    if ranks == 1 {
        return;
    }
    for rank in 0..ranks {
        let mut counts = DispatchCounts::default();
        report.layers.iter().for_each(|layer| counts += layer.counts_by_rank[rank]);
        put(format!("moe/rank_{rank}/sender_dropped_assignments"), counts.sender_dropped);
        put(format!("moe/rank_{rank}/receiver_dropped_assignments"), counts.receiver_dropped);
    }
}

fn add_layer(metrics: &mut Metrics, index: usize, layer: &LayerReport) {
    for (metric, value) in [
        ("routing_entropy", layer.routing.entropy()),
        ("load_balancing_loss", layer.routing.load_balancing_loss()),
        ("router_z_loss", layer.routing.router_z_loss()),
        ("capacity_overflow_rate", layer.counts.drop_fraction()),
    ] {
        metrics.insert(format!("train/router/layer_{index}/{metric}"), number(value));
    }
    for (metric, count) in [
        ("sender_dropped_assignments", layer.counts.sender_dropped),
        ("receiver_dropped_assignments", layer.counts.receiver_dropped),
        ("wire_bytes", layer.wire.payload + layer.wire.header),
        ("wire_header_bytes", layer.wire.header),
    ] {
        metrics.insert(format!("moe/layer_{index}/{metric}"), count.into());
    }
}

/// JSON has no NaN: what is not finite is written as text, so that it is not lost.
pub fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

/// What [`number`] wrote; none if it is no number. Digests are text that may look like one.
pub fn value(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_f64(),
    }
}
