//! What a recipe amounts to.

use std::fmt;

use fulmar_model::flops::{ForwardFlops, TRAINING_FACTOR};
use serde::Serialize;

use crate::config::RunConfig;
use crate::memory_plan::MemoryPlan;
use crate::optim::Peaks;
use crate::telemetry::memory::human;

/// The figures of a run that follow from its recipe alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Name of the run.
    pub name: String,
    /// Every parameter, router biases included.
    pub num_params: u64,
    /// Parameters that take part in one token's forward pass.
    pub num_active_params: u64,
    /// Forward FLOPs of a token by part.
    pub forward_flops_per_token: ForwardFlops,
    /// Training FLOPs of a step with the output head.
    pub step_flops: f64,
    /// The same without the output head, the quantity of the scaling ladder.
    pub step_flops_without_head: f64,
    /// Training FLOPs of the whole run with the output head.
    pub run_flops: f64,
    /// Updates.
    pub steps: u64,
    /// Warm-up updates.
    pub warmup_steps: u64,
    /// Tokens of a step.
    pub tokens_per_step: u64,
    /// Tokens of the whole run.
    pub total_tokens: u64,
    /// Peak rates, second decay and epsilon.
    pub peaks: Peaks,
    /// Longer rows in the course of the run.
    pub context: Vec<ContextPlan>,
    /// Bytes of a rank.
    pub memory: MemoryPlan,
}

/// A step of one context stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContextPlan {
    /// Completed updates from which it may open.
    pub from_step: u64,
    /// Tokens of a row.
    pub seq_len: usize,
    /// Rows of a step.
    pub rows: u64,
    /// Scale of the queries.
    pub qk_mult: f64,
    /// Training FLOPs of a step with the output head.
    pub step_flops: f64,
    /// The most that a rank holds at a time, in bytes.
    pub peak: u64,
    /// The largest share of dropped assignments that lets it open.
    pub max_drop_fraction: f64,
}

impl ContextPlan {
    /// The plan of the stage that is the `open`th, counted from 1.
    fn new(config: &RunConfig, open: usize) -> Self {
        let stage = &config.context[open - 1];
        let shape = config.with_open_stages(open);
        Self {
            from_step: stage.from_step,
            seq_len: stage.seq_len,
            rows: shape.batch.rows,
            qk_mult: shape.model.qk_mult,
            step_flops: shape.model.step_flops(shape.tokens_per_step()),
            peak: MemoryPlan::new(&shape).mode(config.memory.recompute).peak,
            max_drop_fraction: stage.max_drop_fraction,
        }
    }
}

impl Plan {
    /// The plan of a recipe.
    pub fn new(config: &RunConfig) -> Self {
        let (model, per_step) = (&config.model, config.tokens_per_step());
        let step_flops = model.step_flops(per_step);
        Self {
            name: config.name.clone(),
            num_params: model.num_params(),
            num_active_params: model.num_active_params(),
            forward_flops_per_token: model.forward_flops(),
            step_flops,
            step_flops_without_head: model.step_flops_without_head(per_step),
            run_flops: step_flops * config.schedule.horizon() as f64,
            steps: config.schedule.horizon(),
            warmup_steps: config.schedule.warmup(),
            tokens_per_step: per_step,
            total_tokens: config.total_tokens(),
            peaks: config.peaks(),
            context: (1..=config.context.len())
                .map(|open| ContextPlan::new(config, open))
                .collect(),
            memory: MemoryPlan::new(config),
        }
    }

    /// The plan as JSON.
    ///
    /// # Panics
    /// Never: the plan holds plain values only.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        writeln!(f, "  parameters             {:>22}", grouped(self.num_params))?;
        writeln!(f, "  active parameters      {:>22}", grouped(self.num_active_params))?;
        writeln!(f, "  tokens a step          {:>22}", grouped(self.tokens_per_step))?;
        writeln!(f, "  steps                  {:>22}", grouped(self.steps))?;
        writeln!(f, "  warm-up steps          {:>22}", grouped(self.warmup_steps))?;
        writeln!(f, "  tokens                 {:>22}", grouped(self.total_tokens))?;
        writeln!(f, "forward FLOPs of a token")?;
        let total = self.forward_flops_per_token.total();
        for (part, flops) in self.forward_flops_per_token.parts() {
            let share = 100.0 * flops as f64 / total as f64;
            writeln!(f, "  {part:<22} {:>22}  {share:5.1}%", grouped(flops))?;
        }
        writeln!(f, "  {:<22} {:>22}", "all", grouped(total))?;
        writeln!(f, "training FLOPs ({TRAINING_FACTOR} x forward)")?;
        writeln!(f, "  a step                 {:>22e}", self.step_flops)?;
        writeln!(f, "  a step, without head   {:>22e}", self.step_flops_without_head)?;
        writeln!(f, "  the run                {:>22e}", self.run_flops)?;
        writeln!(f, "optimizer")?;
        writeln!(f, "  peak rate, muonh adamh {:>22.6}", self.peaks.lr_muonh)?;
        writeln!(f, "  peak rate, adam        {:>22.6}", self.peaks.lr_adam)?;
        writeln!(f, "  beta2                  {:>22.6}", self.peaks.beta2)?;
        writeln!(f, "  epsilon                {:>22.3e}", self.peaks.epsilon)?;
        self.fmt_context(f)?;
        self.memory.fmt(f)
    }
}

impl Plan {
    fn fmt_context(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.context.is_empty() {
            return Ok(());
        }
        writeln!(f, "longer rows, behind a gate on dropped assignments")?;
        writeln!(
            f,
            "  {:>10} {:>10} {:>8} {:>8} {:>12} {:>10} {:>6}",
            "from step", "tokens", "rows", "qk_mult", "FLOPs a step", "peak", "gate"
        )?;
        for stage in &self.context {
            writeln!(
                f,
                "  {:>10} {:>10} {:>8} {:>8.4} {:>12.4e} {:>10} {:>5.1}%",
                grouped(stage.from_step),
                grouped(stage.seq_len as u64),
                grouped(stage.rows),
                stage.qk_mult,
                stage.step_flops,
                human(stage.peak),
                100.0 * stage.max_drop_fraction,
            )?;
        }
        Ok(())
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
