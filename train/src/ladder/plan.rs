//! What a ladder amounts to, before anything is trained.

use std::fmt;

use serde::Serialize;

use super::Ladder;
use crate::plan::{Plan, grouped};

/// A line for each rung.
#[derive(Debug, Clone, Serialize)]
pub struct LadderPlan {
    /// Name of the ladder.
    pub name: String,
    /// Tokens for each active parameter.
    pub tokens_per_active_param: f64,
    /// Asymptote of the fit, in nats.
    pub asymptote: f64,
    /// The rung that is forecast.
    pub target: String,
    /// The plans of the rungs, least compute first.
    pub rungs: Vec<RungPlan>,
}

/// A rung's plan.
#[derive(Debug, Clone, Serialize)]
pub struct RungPlan {
    /// All figures.
    #[serde(flatten)]
    pub plan: Plan,
    /// Rows of a step.
    pub rows: u64,
    /// FLOPs of the run without the output head, the compute of forecasts.
    pub run_flops_without_head: f64,
}

impl LadderPlan {
    /// The plan of a ladder.
    pub fn new(ladder: &Ladder) -> Self {
        let rung = |rung: &super::Rung| RungPlan {
            plan: Plan::new(&rung.config),
            rows: rung.config.batch.rows,
            run_flops_without_head: rung.flops(),
        };
        Self {
            name: ladder.name.clone(),
            tokens_per_active_param: ladder.tokens_per_active_param,
            asymptote: ladder.asymptote,
            target: ladder.target.clone(),
            rungs: ladder.rungs.iter().map(rung).collect(),
        }
    }
}

impl fmt::Display for LadderPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, tokens_per_active_param, asymptote, target, rungs } = self;
        writeln!(f, "{name}: {tokens_per_active_param} tokens for each active parameter")?;
        writeln!(f, "{target} is forecast by L = {asymptote} + A C^-alpha, C without output head")?;
        writeln!(
            f,
            "{:<10} {:>15} {:>14} {:>7} {:>8} {:>18} {:>10} {:>10} {:>6}",
            "rung", "parameters", "active", "rows", "steps", "tokens", "C", "with head", "share"
        )?;
        let all: f64 = rungs.iter().map(|rung| rung.plan.run_flops).sum();
        for RungPlan { plan, rows, run_flops_without_head } in rungs {
            writeln!(
                f,
                "{:<10} {:>15} {:>14} {:>7} {:>8} {:>18} {:>10.3e} {:>10.3e} {:>5.1}%",
                plan.name,
                grouped(plan.num_params),
                grouped(plan.num_active_params),
                grouped(*rows),
                grouped(plan.steps),
                grouped(plan.total_tokens),
                run_flops_without_head,
                plan.run_flops,
                100.0 * plan.run_flops / all,
            )?;
        }
        Ok(())
    }
}
