//! Floating-point operations by part.

use fulmar_model::flops::TRAINING_FACTOR;
use maud::{Markup, html};

use super::{cell, label, table};
use crate::plan::grouped;
use crate::report_page::source::Source;

/// Forward FLOPs of a token by part, and what a step and a run come to.
pub(in crate::report_page) fn flops(runs: &[Source]) -> Markup {
    let labels: Vec<String> = (0..runs.len()).map(|run| label(runs, run)).collect();
    let head: Vec<&str> = std::iter::once("forward FLOPs of a token")
        .chain(labels.iter().map(String::as_str))
        .collect();
    let forward = |source: &Source| source.plan.forward_flops_per_token;
    let parts = runs.first().map_or(0, |source| forward(source).parts().len());
    let part = |at: usize| {
        let name = forward(&runs[0]).parts()[at].0;
        let of_run = |source: &Source| {
            let (flops, total) = (forward(source).parts()[at].1, forward(source).total());
            cell(format!("{} ({:.1}%)", grouped(flops), 100.0 * flops as f64 / total as f64))
        };
        std::iter::once(cell(name)).chain(runs.iter().map(of_run)).collect()
    };
    let mut rows: Vec<Vec<Markup>> = (0..parts).map(part).collect();
    type Total = fn(&Source) -> String;
    let totals: [(&str, Total); 6] = [
        ("all", |source| grouped(source.plan.forward_flops_per_token.total())),
        ("training FLOPs of an update", |source| format!("{:.4e}", source.plan.step_flops)),
        ("the same without output head", |source| {
            format!("{:.4e}", source.plan.step_flops_without_head)
        }),
        ("of the whole run", |source| format!("{:.4e}", source.plan.run_flops)),
        ("the same without output head", |source| {
            let horizon = source.config().schedule.horizon() as f64;
            format!("{:.4e}", horizon * source.plan.step_flops_without_head)
        }),
        ("spent so far, with output head", |source| {
            format!("{:.4e}", source.steps() as f64 * source.plan.step_flops)
        }),
    ];
    for (name, total) in totals {
        let of_runs = runs.iter().map(|source| cell(total(source)));
        rows.push(std::iter::once(cell(name)).chain(of_runs).collect());
    }
    html! {
        (table(&head, 1, &rows))
        p.note {
            "Counted from the plan, not measured. Training costs " (TRAINING_FACTOR) " forward passes. "
            "Rows are as long as in the beginning. Ladders compare runs without the output head, MFU has it."
        }
    }
}
