//! The runs at a glance.

use maud::{Markup, html};

use super::{cell, date, named, number, table};
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
pub(super) fn state(source: &Source) -> String {
    let newest = source.attempts.last().map_or("unknown".to_owned(), |last| date(last.unix_secs));
    match source.state() {
        State::NotBegun => "not begun".to_owned(),
        State::Finished => "finished".to_owned(),
        State::Ended => "ended before its horizon, as asked".to_owned(),
        State::Stopped => "stopped".to_owned(),
        State::Open => format!("going on or cut off (last start {newest})"),
    }
}
