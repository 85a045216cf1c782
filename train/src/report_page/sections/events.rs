//! What happened besides steps.

use maud::{Markup, html};

use super::{cell, date, marks_before, named, table};
use crate::history::Event;
use crate::operations::Comparison;
use crate::plan::grouped;
use crate::report_page::axes::si;
use crate::report_page::charts::missing;
use crate::report_page::source::Source;

/// A row an event, by the numbers that plots have; saves are counted and no more.
pub(in crate::report_page) fn events(runs: &[Source]) -> Markup {
    let mut rows = Vec::new();
    for (run, source) in runs.iter().enumerate() {
        let before = marks_before(runs, run);
        for (at, event) in source.marks().into_iter().enumerate() {
            rows.push(row((before + at + 1, named(runs, run)), source, event));
        }
    }
    let saves = |source: &Source| {
        source.run.history.iter().filter(|event| event.what == "saved").count().to_string()
    };
    let saves: Vec<String> = runs.iter().map(saves).collect();
    html! {
        @if rows.is_empty() {
            (missing("Events", "the histories have first starts and saves alone."))
        } @else {
            (table(&["", "run", "what", "why, and what it changed", "when", "update", "tokens"], 5, &rows))
        }
        p.note { "Saves, by run: " (saves.join(", ")) ". From " code { "history.jsonl" } "." }
    }
}

fn row((number, name): (usize, Markup), source: &Source, event: &Event) -> Vec<Markup> {
    let kind = event.detail.get("operation").and_then(|operation| operation["kind"].as_str());
    let what = match kind {
        Some(kind) => format!("{}: {}", event.what, kind),
        None => event.what.clone(),
    };
    vec![
        cell(number.to_string()),
        name,
        cell(what.replace('_', " ")),
        html! {
            (event.text)
            @for change in changes(event) { br; small { (change) } }
        },
        cell(date(event.unix_secs)),
        cell(grouped(event.step)),
        cell(si(&source.tokens(event.step))),
    ]
}

/// Figures of the plan that an operation changed.
fn changes(event: &Event) -> Vec<String> {
    let change = event.detail.get("change").cloned().unwrap_or_default();
    let Ok(change) = serde_json::from_value::<Comparison>(change) else { return Vec::new() };
    let changed = change.changed();
    changed.map(|figure| format!("{}: {} → {}", figure.what, figure.before, figure.after)).collect()
}
