//! Held-out figures by suite and tag.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::{TOKENS, by_tokens, cell, label, number, plots, table};
use crate::error::TrainError;
use crate::plan::grouped;
use crate::report_page::charts::{Chart, Line, Style, Top, missing};
use crate::report_page::colours::{Colour, NUM_SERIES};
use crate::report_page::source::{Source, place_of};
use crate::telemetry::{Metrics, names};

/// Figures over all tags, with what they are.
const OVERALL: [(&str, &str); 2] = [("macro_", "mean of tags"), ("", "all tokens")];

/// A table a suite, plots by tag, and what was evaluated after the steps.
pub(in crate::report_page) fn evaluations(runs: &[Source]) -> Result<Markup, TrainError> {
    let places: BTreeSet<&str> =
        runs.iter().flat_map(|source| source.evaluations().into_keys()).collect();
    if places.is_empty() {
        return Ok(missing("Evaluations by tag", "the logs have no evaluation."));
    }
    let mut parts = Vec::new();
    for place in places {
        parts.push(html! { h3 { code { (place) } " (" (mode(place)) ")" } (last_of(runs, place)) });
        let mut figures = Vec::new();
        for (run, source) in runs.iter().enumerate() {
            figures.extend(by_tag(source, &label(runs, run), place)?);
        }
        parts.push(plots(&figures));
    }
    Ok(html! {
        @for part in parts { (part) }
        (recorded(runs))
    })
}

fn mode(place: &str) -> &'static str {
    if place.starts_with("eval_as_trained/") {
        "with the exchange of training, which may drop"
    } else {
        "nothing is dropped"
    }
}

/// Tags of a place that any run has.
fn tags<'a>(runs: &'a [Source], place: &str) -> BTreeSet<&'a str> {
    let of_run = |source: &'a Source| source.curves.keys().filter_map(|metric| place_of(metric));
    let here = runs.iter().flat_map(of_run).filter(|(found, _)| *found == place);
    here.filter_map(|(_, figure)| Some(figure.rsplit_once('/')?.0)).collect()
}

fn last_of(runs: &[Source], place: &str) -> Markup {
    let labels: Vec<String> = (0..runs.len())
        .flat_map(|run| ["nats", "bits/byte"].map(|unit| format!("{}, {unit}", label(runs, run))))
        .collect();
    let head: Vec<&str> = std::iter::once("tag").chain(labels.iter().map(String::as_str)).collect();
    let row = |name: &str, begin: &str| {
        let figures = runs.iter().flat_map(|source| {
            ["loss", "bpb"]
                .map(|figure| number(source.last(&format!("{place}/{begin}{figure}")), 4))
        });
        std::iter::once(cell(name)).chain(figures).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> =
        tags(runs, place).into_iter().map(|tag| row(tag, &format!("{tag}/"))).collect();
    rows.extend(OVERALL.iter().map(|(begin, name)| row(name, begin)));
    html! { (table(&head, 1, &rows)) p.note { "At the last evaluation in the log of each run." } }
}

/// Bits per byte of each tag, a few to a plot.
fn by_tag(source: &Source, name: &str, place: &str) -> Result<Vec<Markup>, TrainError> {
    let runs = std::slice::from_ref(source);
    let tags: Vec<&str> = tags(runs, place).into_iter().collect();
    let mut figures = Vec::new();
    for some in tags.chunks(NUM_SERIES) {
        let mut chart = Chart::new(format!("{place} by tag: {name}"), TOKENS, "bits per byte");
        for (at, tag) in some.iter().enumerate() {
            let metric = format!("{place}/{tag}/bpb");
            let Some(curve) = source.curve(&metric) else { continue };
            let points = by_tokens(source, curve, 1.0);
            let (name, colour) = (Some((*tag).to_owned()), Colour::Series(at));
            chart.lines.push(Line { name, colour, style: Style::Dots, points });
        }
        chart.top = Top::After(0.04);
        chart.caption = format!(
            "Sum of bits over sum of bytes of all documents of a tag, {} ({place}/TAG/bpb).",
            mode(place)
        );
        figures.push(chart.figure()?);
    }
    Ok(figures)
}

/// What `train eval --record` added.
fn recorded(runs: &[Source]) -> Markup {
    let mut rows = Vec::new();
    for (run, source) in runs.iter().enumerate() {
        for line in &source.recorded {
            rows.extend(recorded_rows(&label(runs, run), line));
        }
    }
    let head = ["run", "suite", "update", "loss, mean of tags", "bits per byte, mean of tags"];
    html! {
        @if rows.is_empty() {
            (missing("Recorded after the steps", "no run has an evaluations.jsonl (train eval --record)."))
        } @else {
            h3 { "Recorded after the steps" }
            (table(&head, 2, &rows))
        }
    }
}

fn recorded_rows(name: &str, line: &Metrics) -> Vec<Vec<Markup>> {
    let step = line.get(names::STEP).and_then(serde_json::Value::as_u64);
    let places: BTreeSet<&str> =
        line.keys().filter_map(|metric| place_of(metric)).map(|(place, _)| place).collect();
    let row = |place: &str| {
        let of = |figure: &str| line.get(&format!("{place}/{figure}")).and_then(names::value);
        Some(vec![
            cell(name),
            html! { code { (place) } },
            cell(step.map_or("–".to_owned(), grouped)),
            number(Some(of("macro_loss")?), 4),
            number(of("macro_bpb"), 4),
        ])
    };
    places.into_iter().filter_map(row).collect()
}
