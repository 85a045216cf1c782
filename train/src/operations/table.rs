//! A plan before and after a change, side by side.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Position;
use crate::config::RunConfig;
use crate::context::ContextStage;
use crate::optim::StepRates;
use crate::plan::grouped;

/// What a change of plan changes, and what it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Where the run stands.
    pub at: Position,
    /// Every figure.
    pub figures: Vec<Figure>,
}

/// One figure of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub what: String,
    /// In the plan so far.
    pub before: String,
    /// In the plan from now on.
    pub after: String,
}

impl Comparison {
    /// Two plans of a run that stands at `at`.
    pub fn new(before: &RunConfig, after: &RunConfig, at: Position) -> Self {
        let (before, after) = (figures(before, at), figures(after, at));
        let pairs = before.into_iter().zip(after);
        let figures = pairs.map(|((what, before), (_, after))| Figure {
            what: what.to_owned(),
            before,
            after,
        });
        Self { at, figures: figures.collect() }
    }

    /// The figures that differ.
    pub fn changed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.before != figure.after)
    }
}

fn figures(config: &RunConfig, at: Position) -> Vec<(&'static str, String)> {
    let horizon = config.schedule.horizon();
    let rates = |update| StepRates::of(config, update);
    let rate = |rate: f64| format!("{rate:.8}");
    let (next, last) = (rates(at.step), rates(horizon.saturating_sub(1)));
    vec![
        ("updates of the run", grouped(horizon)),
        ("updates left", grouped(horizon.saturating_sub(at.step))),
        ("tokens of the run", grouped(config.total_tokens())),
        ("tokens left", {
            let left = horizon.saturating_sub(at.step);
            grouped(left * config.tokens_per_step())
        }),
        ("next rate, muonh adamh", rate(next.muonh)),
        ("next rate, adam", rate(next.adam)),
        ("rate after half of the rest", {
            let middle = at.step + horizon.saturating_sub(at.step) / 2;
            rate(rates(middle).muonh)
        }),
        ("last rate, muonh adamh", rate(last.muonh)),
        ("final rate over peak", format!("{:.4}", config.schedule.factor(horizon))),
        ("decay of gates and router", format!("{:.6}", next.gate_router_decay)),
        ("mixture stages", mixture(config)),
        ("context stages", context(&config.context)),
        ("exchange", exchange(config, at)),
    ]
}

fn mixture(config: &RunConfig) -> String {
    let Some(stages) = &config.data.stages else { return "one, by tokens of cells".to_owned() };
    let (block, rows) = (config.data.block_rows, config.batch.rows);
    let starts = stages.iter().map(|stage| {
        let step = stage.from_block as f64 * block as f64 / rows as f64;
        format!("{} cells from step {}", stage.weights.len(), short(step))
    });
    starts.collect::<Vec<_>>().join(", ")
}

/// Without decimals where there are none.
fn short(number: f64) -> String {
    if number.fract() == 0.0 { grouped(number as u64) } else { format!("{number:.1}") }
}

fn context(stages: &[ContextStage]) -> String {
    if stages.is_empty() {
        return "none".to_owned();
    }
    let one = |stage: &ContextStage| {
        let len = grouped(stage.seq_len as u64);
        match stage.opened_at {
            Some(at) => format!("{len} since batch {}", grouped(at)),
            None => format!("{len} from step {}", grouped(stage.from_step)),
        }
    };
    stages.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn exchange(config: &RunConfig, at: Position) -> String {
    let parallel = &config.parallel;
    let now = parallel.dispatch_at(at.step).name().to_owned();
    let later = parallel.switches.iter().filter(|switch| switch.step > at.step);
    let later = later
        .map(|switch| format!("{} from step {}", switch.dispatch.name(), grouped(switch.step)));
    std::iter::once(now).chain(later).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Figure) -> &str, least: usize| {
            let longest = self.figures.iter().map(|figure| of(figure).chars().count()).max();
            longest.unwrap_or(0).max(least)
        };
        let (what, before) = (width(|f| &f.what, 12), width(|f| &f.before, 6));
        let at = format!("at step {}", grouped(self.at.step));
        writeln!(f, "  {at:<what$}  {:<before$}  after", "before")?;
        for figure in &self.figures {
            let mark = if figure.before == figure.after { ' ' } else { '*' };
            let Figure { what: name, before: old, after: new } = figure;
            writeln!(f, "{mark} {name:<what$}  {old:<before$}  {new}")?;
        }
        Ok(())
    }
}
