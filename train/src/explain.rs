//! What was in force in one update of a run: the plan of that moment, and why it was the plan.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::history::{Event, History, STARTED};
use crate::operations;
use crate::optim::StepRates;
use crate::parallel::ParallelConfig;
use crate::plan::grouped;
use crate::recipe;
use crate::telemetry::{Metrics, names, stitch};

/// Everything that held for one update, and what it came to.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// Completed updates after it.
    pub step: u64,
    /// Batches taken before it: which rows it read.
    pub batches_before: u64,
    /// Whether the run has made it, or it lies ahead.
    pub made: bool,
    /// Updates of the whole run by the plan of that moment.
    pub horizon: u64,
    /// Rate of MuonH and AdamH.
    pub muonh_rate: f64,
    /// Rate of Adam.
    pub adam_rate: f64,
    /// The rate over its peak.
    pub rate_over_peak: f64,
    /// Decay on head gates and router weights.
    pub gate_router_decay: f64,
    /// Tokens of a row.
    pub seq_len: usize,
    /// Rows of the step.
    pub rows: u64,
    /// Scale of the queries.
    pub qk_mult: f64,
    /// Block of the mixture that its first row is of.
    pub block: u64,
    /// Index of the stage of the mixture, and how many there are; none where the recipe gives none.
    pub mixture_stage: Option<(usize, usize)>,
    /// Weights of that stage, largest first.
    pub mixture_weights: Vec<(String, f64)>,
    /// Exchange between shards.
    pub exchange: String,
    /// What the log says of it, of the attempt that counts.
    pub recorded: Option<Metrics>,
    /// Changes of plan until then.
    pub operations: Vec<Event>,
    /// The start of the attempt that made it.
    pub attempt: Option<Event>,
    /// Whatever else happened at this step.
    pub events: Vec<Event>,
}

/// Explains the update that completes `step` of the run in `folder`.
///
/// # Errors
/// If step is 0 or beyond the horizon, or the run's recipe, history or log cannot be read.
pub fn explain(folder: &Path, step: u64) -> Result<Explanation, TrainError> {
    let first = recipe::load(&folder.join("recipe.toml"), &[])?;
    let recorded = stitch::updates_of_run(folder, step..=step)?.remove(&step);
    let history = History::read(folder)?;
    let plan = plan_at(&first, (&history, folder), step, recorded.as_ref())?;
    let horizon = plan.schedule.horizon();
    if step == 0 || step > horizon {
        let rule = format!("1 to {horizon}, the updates of the plan");
        return Err(TrainError::config("STEP", step, rule));
    }
    let batches_before = batches_before(step, recorded.as_ref());
    let shape = plan.with_open_stages(plan.open_stages(batches_before));
    let block = batches_before * plan.batch.rows / plan.data.block_rows;
    let rates = StepRates::of(&plan, step - 1);
    let attempt = recorded.as_ref().and_then(|line| line.get(names::ATTEMPT)?.as_u64());
    let started = |event: &&Event| event.what == STARTED && Some(event.attempt) == attempt;
    let attempt = history.iter().find(started).cloned();
    let exchange = *parallel(&plan, attempt.as_ref())?.dispatch_at(step - 1);
    let (mixture_stage, mixture_weights) = mixture(&plan, block);
    let is_change = |event: &&Event| event.what == operations::OPERATION && event.step < step;
    Ok(Explanation {
        step,
        batches_before,
        made: recorded.is_some(),
        horizon,
        muonh_rate: rates.muonh,
        adam_rate: rates.adam,
        rate_over_peak: plan.schedule.factor(step - 1),
        gate_router_decay: rates.gate_router_decay,
        seq_len: shape.model.max_seq_len,
        rows: shape.batch.rows,
        qk_mult: shape.model.qk_mult,
        block,
        mixture_stage,
        mixture_weights,
        exchange: format!("{exchange:?}"),
        operations: history.iter().filter(is_change).cloned().collect(),
        attempt,
        events: history
            .into_iter()
            .filter(|event| event.step == step && event.what != operations::OPERATION)
            .collect(),
        recorded,
    })
}

/// The plan as it stood before the update that completes `step`: operations that came later are no
/// part of it.
fn plan_at(
    first: &RunConfig,
    (history, folder): (&[Event], &Path),
    step: u64,
    recorded: Option<&Metrics>,
) -> Result<RunConfig, TrainError> {
    let mut plan = first.clone();
    for (event, operation) in operations::of_events(history, folder)? {
        // Of a step that lies ahead, every operation that is known is part of the plan.
        let later = recorded.is_some() && event.step >= step;
        if !later && !operation.opens_after(batches_before(step, recorded)) {
            plan = operation.apply(&plan)?;
        }
    }
    Ok(plan)
}

/// Ranks and exchanges of the attempt that made the update, which may be others than the recipe's.
fn parallel(plan: &RunConfig, attempt: Option<&Event>) -> Result<ParallelConfig, TrainError> {
    let Some(event) = attempt else { return Ok(plan.parallel.clone()) };
    let Some(text) = event.detail.get("recipe").and_then(|text| text.as_str()) else {
        return Ok(plan.parallel.clone());
    };
    let recipe: RunConfig = recipe::from_toml(text, "recipe of the attempt")?;
    Ok(recipe.parallel)
}

/// Batches taken before the update; as many as updates where no log tells of skipped ones.
fn batches_before(step: u64, recorded: Option<&Metrics>) -> u64 {
    let logged = recorded.and_then(|line| line.get(names::BATCHES)?.as_u64());
    logged.unwrap_or(step).saturating_sub(1)
}

type MixtureStage = (Option<(usize, usize)>, Vec<(String, f64)>);

/// Index and number of stages, and the weights in force.
fn mixture(plan: &RunConfig, block: u64) -> MixtureStage {
    let Some(stages) = &plan.data.stages else { return (None, Vec::new()) };
    let index = stages.iter().rposition(|stage| stage.from_block <= block).unwrap_or(0);
    let weights = stages[index].weights.iter().map(|(cell, weight)| (cell.clone(), *weight));
    let mut weights: Vec<(String, f64)> = weights.collect();
    weights.sort_by(|a, b| b.1.total_cmp(&a.1));
    (Some((index, stages.len())), weights)
}

/// Cells shown by name; the others are summed up.
const SHOWN_CELLS: usize = 5;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = 100.0 * self.step as f64 / self.horizon as f64;
        let made = if self.made { "made" } else { "lies ahead" };
        writeln!(
            f,
            "update {} of {} ({share:.1}%), {made}",
            grouped(self.step),
            grouped(self.horizon)
        )?;
        let mut line = |what: &str, value: String| writeln!(f, "  {what:<22} {value}");
        line("rate, muonh adamh", format!("{:.8}", self.muonh_rate))?;
        line("rate, adam", format!("{:.8}", self.adam_rate))?;
        line("rate over peak", format!("{:.6}", self.rate_over_peak))?;
        line("gate, router decay", format!("{:.6}", self.gate_router_decay))?;
        line("rows", format!("{} of {} tokens", self.rows, grouped(self.seq_len as u64)))?;
        line("qk_mult", format!("{:.4}", self.qk_mult))?;
        line("batches before", grouped(self.batches_before))?;
        line("mixture", self.mixture_line())?;
        line("exchange", self.exchange.clone())?;
        if let Some(attempt) = &self.attempt {
            line("attempt", format!("{}: {}", attempt.attempt, attempt.text))?;
        }
        self.fmt_recorded(f)?;
        for event in &self.operations {
            let kind = event.detail.get("operation").and_then(|op| op["kind"].as_str());
            let kind = kind.unwrap_or("operation").replace('_', " ");
            writeln!(f, "  since step {}: {kind} ({})", grouped(event.step), event.text)?;
            fmt_change(f, event)?;
        }
        for event in &self.events {
            writeln!(f, "  at this step: {} ({})", event.what.replace('_', " "), event.text)?;
        }
        Ok(())
    }
}

impl Explanation {
    fn mixture_line(&self) -> String {
        let Some((index, count)) = self.mixture_stage else {
            return format!("by tokens of cells, block {}", grouped(self.block));
        };
        let shown = self.mixture_weights.iter().take(SHOWN_CELLS);
        let mut cells: Vec<String> =
            shown.map(|(cell, weight)| format!("{cell} {weight:.4}")).collect();
        let rest = self.mixture_weights.iter().skip(SHOWN_CELLS);
        let (count_rest, sum) = rest.fold((0, 0.0), |(n, sum), (_, weight)| (n + 1, sum + weight));
        if count_rest > 0 {
            cells.push(format!("{count_rest} others {sum:.4}"));
        }
        let block = grouped(self.block);
        format!("stage {} of {count}, block {block}: {}", index + 1, cells.join(", "))
    }

    fn fmt_recorded(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(recorded) = &self.recorded else { return Ok(()) };
        let figures = [names::LOSS, "grad/norm/total", "moe/drop_fraction", "data/digest"];
        for name in figures {
            if let Some(value) = recorded.get(name) {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                writeln!(f, "  {name:<22} {value}")?;
            }
        }
        Ok(())
    }
}

fn fmt_change(f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
    let change = event.detail.get("change").cloned().unwrap_or_default();
    let Ok(change) = serde_json::from_value::<operations::Comparison>(change) else {
        return Ok(());
    };
    for figure in change.changed() {
        writeln!(f, "    {:<26} {} -> {}", figure.what, figure.before, figure.after)?;
    }
    Ok(())
}
