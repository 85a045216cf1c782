//! What the page was made of, and what the logs lack.

use maud::{Markup, html};

use super::{cell, date, label, named, table};
use crate::history::Event;
use crate::plan::grouped;
use crate::recipe;
use crate::report_page::source::Source;
use crate::telemetry::names;
use crate::telemetry::stitch::Curve;

/// Files with their digests, what is missing, and the whole recipes.
pub(in crate::report_page) fn origin(runs: &[Source]) -> Markup {
    let row = |(run, source): (usize, &Source)| {
        let none = Curve::default();
        let loss = source.curve(names::LOSS).unwrap_or(&none);
        let counts = [
            loss.gaps,
            loss.superseded,
            loss.doubles,
            loss.not_finite,
            loss.skipped,
            source.cut_short,
        ];
        let folder = html! { code { (source.run.folder.display()) } };
        std::iter::once(named(runs, run))
            .chain([folder])
            .chain(counts.map(|count| cell(grouped(count))))
            .collect::<Vec<_>>()
    };
    let rows: Vec<_> = runs.iter().enumerate().map(row).collect();
    let head = [
        "run",
        "folder",
        "updates missing",
        "made again",
        "logged twice",
        "not finite",
        "left out",
        "lines cut short",
    ];
    let (release, now) = (env!("CARGO_PKG_VERSION"), date(Event::now(0, 0, "", "").unix_secs));
    html! {
        (table(&head, 2, &rows))
        p.note {
            "Of the training loss. Where several starts made an update, the newest one that passed it counts. "
            "Page made at " (now) " by release " (release) "."
        }
        @for (run, source) in runs.iter().enumerate() {
            details {
                summary { (label(runs, run)) ": digests and recipe" }
                p.note {
                    "Log (BLAKE3): " code { (source.log_digest.as_deref().unwrap_or("no log")) } br;
                    "Data: " code { (source.run.data_digest().unwrap_or("not recorded")) } br;
                    "Recipe in force: " code { (source.config().digest()) }
                }
                pre { code { (recipe::to_toml(source.config())) } }
            }
        }
    }
}
