//! The runs at a glance.

use maud::{Markup, html};

use super::{cell, named, number, table};
use crate::plan::grouped;
use crate::report_page::source::{Source, State};
use crate::telemetry::names;

/// A row a run.
pub(in crate::report_page) fn runs(runs: &[Source]) -> Markup {
    let head = [
        "run",
        "state",
        "parameters",
        "active",
        "updates",
        "of",
        "tokens",
        "training loss",
        "held-out loss (macro)",
        "bits per byte (macro)",
        "starts",
    ];
    let row = |(run, source): (usize, &Source)| {
        let steps = source.steps();
        vec![
            named(runs, run),
            cell(state(source)),
            cell(grouped(source.plan.num_params)),
            cell(grouped(source.plan.num_active_params)),
            cell(grouped(steps)),
            cell(grouped(source.config().schedule.horizon())),
            cell(grouped(source.tokens(steps) as u64)),
            number(source.last(names::LOSS), 4),
            number(source.last(names::HELDOUT_LOSS), 4),
            number(source.last("eval/heldout/macro_bpb"), 4),
            cell(source.attempts.len().to_string()),
        ]
    };
    let rows: Vec<_> = runs.iter().enumerate().map(row).collect();
    html! {
        (table(&head, 2, &rows))
        p.note {
            "Losses are in nats a token, at the last point of the log. Held-out figures are means over "
            "domains without drops (" code { "eval/heldout/macro_loss" } ", " code { "macro_bpb" } ")."
        }
    }
}

/// Its state in words.
fn state(source: &Source) -> &'static str {
    match source.state() {
        State::NotBegun => "not begun",
        State::Finished => "finished",
        State::Ended => "ended before its horizon, as asked",
        State::Stopped => "stopped",
        State::Open => "going on or cut off",
    }
}
