//! Where runs come from: attempts and branches.

use maud::{Markup, html};

use super::{cell, date, label, named, plots, table};
use crate::error::TrainError;
use crate::plan::grouped;
use crate::report_page::lineage::{figure, parent_of};
use crate::report_page::source::{Attempt, Source};

/// The drawing, and a row a start.
pub(in crate::report_page) fn lineage(runs: &[Source]) -> Result<Markup, TrainError> {
    let mut rows = Vec::new();
    for (run, source) in runs.iter().enumerate() {
        let row = |attempt: &Attempt| {
            vec![
                cell(format!("{}.{}", run + 1, attempt.number)),
                named(runs, run),
                cell(&attempt.text),
                cell(&attempt.on),
                cell(date(attempt.unix_secs)),
                cell(grouped(attempt.from)),
                cell(grouped(attempt.to)),
            ]
        };
        rows.extend(source.attempts.iter().map(row));
    }
    Ok(html! {
        (plots(&[figure(runs)?]))
        @for (run, source) in runs.iter().enumerate() {
            @if let Some(parent) = &source.config().parent {
                p.note {
                    (label(runs, run)) " branched off from " code { (parent.run.display()) }
                    " at update " (grouped(parent.step))
                    @if parent_of(runs, run).is_none() { ", which is not among these runs" }
                    "."
                }
            }
        }
        (table(&["start", "run", "how", "on", "when", "from update", "to update"], 5, &rows))
    })
}
