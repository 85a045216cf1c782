//! Assignments of tokens to experts that were dropped: where, and whose.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{TOKENS, by_tokens, cell, label, marks, marks_before, plots, table};
use crate::error::TrainError;
use crate::plan::grouped;
use crate::report_page::charts::{Chart, Line, Style, missing};
use crate::report_page::colours::Colour;
use crate::report_page::heat::{Heat, LOST};
use crate::report_page::series;
use crate::report_page::source::{RECEIVER_DROPS, SENDER_DROPS, Source, VALID};

/// Stretches of a run in the table by layer.
const STRETCHES: u64 = 48;
/// Both places where an assignment can be dropped.
const PLACES: [&str; 2] = ["sender", "receiver"];

/// Shares by place, layer and rank of each run.
pub(in crate::report_page) fn drops(runs: &[Source]) -> Result<Markup, TrainError> {
    let mut figures = Vec::new();
    let mut tables = Vec::new();
    for (run, source) in runs.iter().enumerate() {
        let name = label(runs, run);
        if !drops_any(source) {
            let (title, why) = (format!("Drops: {name}"), nothing_dropped(source));
            figures.push(missing(&title, &why));
            continue;
        }
        figures.push(by_place(source, &name, marks_before(runs, run))?);
        figures.push(by_layer(source, &name)?);
        tables.push(html! { h3 { "Drops by layer and rank: " (name) } (totals(source)) });
    }
    Ok(html! {
        (plots(&figures))
        @for table in tables { (table) }
    })
}

fn drops_any(source: &Source) -> bool {
    let any = |metric: &str| {
        source.curve(metric).is_some_and(|curve| curve.points.values().any(|share| *share > 0.0))
    };
    any(SENDER_DROPS) || any(RECEIVER_DROPS)
}

fn nothing_dropped(source: &Source) -> String {
    let exchange = source.config().parallel.dispatch_at(source.steps()).name();
    match source.steps() {
        0 => "no update is logged.".to_owned(),
        steps => format!(
            "none of the assignments of {} updates was dropped (exchange {exchange}).",
            grouped(steps)
        ),
    }
}

fn by_place(source: &Source, name: &str, before: usize) -> Result<Markup, TrainError> {
    let mut chart = Chart::new(format!("Drops by place: {name}"), TOKENS, "percent of assignments");
    let mut window = 0;
    for (at, (place, metric)) in PLACES.iter().zip([SENDER_DROPS, RECEIVER_DROPS]).enumerate() {
        let Some(curve) = source.curve(metric) else { continue };
        let points = by_tokens(source, curve, 100.0);
        window = series::window(points.len());
        let points = series::moving_mean(&points, window);
        let (name, colour) = (Some(format!("at the {place}")), Colour::Series(at));
        chart.lines.push(Line { name, colour, style: Style::Line, points });
    }
    chart.from_zero = true;
    chart.marks = marks(source, before);
    chart.caption = format!(
        "Share of all valid assignments that found no room before they were sent ({SENDER_DROPS}) or \
         where they arrived ({RECEIVER_DROPS}); the mean of the last {window} updates."
    );
    chart.figure()
}

/// Dropped assignments of a layer at one place.
fn of_layer(layer: usize, place: &str) -> String {
    format!("moe/layer_{layer}/{place}_dropped_assignments")
}

/// Dropped assignments of a rank's tokens at one place.
fn of_rank(rank: u64, place: &str) -> String {
    format!("moe/rank_{rank}/{place}_dropped_assignments")
}

/// A share as a cell; a dash where there is none.
fn percent(part: Option<f64>, whole: Option<f64>) -> Markup {
    let share = part.zip(whole).filter(|(_, whole)| *whole > 0.0);
    cell(share.map_or("–".to_owned(), |(part, whole)| format!("{:.3}%", 100.0 * part / whole)))
}

fn by_layer(source: &Source, name: &str) -> Result<Markup, TrainError> {
    let title = format!("Drops by layer: {name}");
    let layers = source.config().model.num_layers;
    if source.curve(&of_layer(0, PLACES[0])).is_none() {
        return Ok(missing(&title, "the log has no metrics of single layers (log.per_layer)."));
    }
    let Some(valid) = source.curve(VALID) else {
        return Ok(missing(&title, "the log has no number of valid assignments."));
    };
    let steps = source.steps();
    let each = steps.div_ceil(STRETCHES).max(1);
    let stretch = |points: &BTreeMap<u64, f64>, end: u64| -> f64 {
        points.range(end - each + 1..=end).map(|(_, count)| count).sum()
    };
    let ends: Vec<u64> = (1..=steps.div_ceil(each)).map(|nth| nth * each).collect();
    let row = |layer: usize| {
        let curves = PLACES.map(|place| source.curve(&of_layer(layer, place)));
        let share = |end: &u64| {
            let dropped: f64 =
                curves.iter().flatten().map(|curve| stretch(&curve.points, *end)).sum();
            dropped / (stretch(&valid.points, *end) / layers as f64)
        };
        ends.iter().map(share).collect()
    };
    let last = |end: &u64| source.tokens((*end).min(steps));
    Heat {
        title,
        caption: format!(
            "Share of each layer's valid assignments that were dropped at sender or receiver, over \
             {each} updates a field (moe/layer_*/sender_dropped_assignments and receiver_…, over \
             {VALID} / layers)."
        ),
        x: TOKENS,
        y: "layer",
        edges: std::iter::once(0.0).chain(ends.iter().map(last)).collect(),
        rows: (0..layers).map(row).collect(),
        scale: LOST,
        borders: Vec::new(),
    }
    .figure()
}

/// Sums over the whole run.
fn totals(source: &Source) -> Markup {
    let sum = |metric: &str| -> Option<f64> {
        Some(source.curve(metric)?.points.values().filter(|count| count.is_finite()).sum())
    };
    let (layers, ranks) = (source.config().model.num_layers, source.config().parallel.num_ranks());
    let valid = sum(VALID).map(|valid| valid / layers as f64);
    let layer_row = |layer: usize| {
        let [sender, receiver] = PLACES.map(|place| percent(sum(&of_layer(layer, place)), valid));
        vec![cell(layer.to_string()), sender, receiver]
    };
    let rows: Vec<_> = (0..layers).map(layer_row).collect();
    let of_ranks =
        PLACES.map(|place| (0..ranks).map(|rank| sum(&of_rank(rank, place))).collect::<Vec<_>>());
    let wholes = [0, 1].map(|place| of_ranks[place].iter().copied().sum::<Option<f64>>());
    let rank_row = |rank: u64| {
        let [sender, receiver] =
            [0, 1].map(|place| percent(of_ranks[place][rank as usize], wholes[place]));
        vec![cell(format!("rank {rank}")), sender, receiver]
    };
    let rank_rows: Vec<_> = (0..ranks).map(rank_row).collect();
    html! {
        div.pair {
            (table(&["layer", "at the sender", "at the receiver"], 1, &rows))
            @if ranks > 1 {
                (table(&["tokens of", "at the sender", "at the receiver"], 1, &rank_rows))
            }
        }
        p.note {
            "Over the whole run. By layer: shares of its valid assignments."
            @if ranks > 1 {
                " By rank whose tokens they were: shares of all drops at that place ("
                code { "moe/rank_*/…_dropped_assignments" }
                "); equal ones mean that no rank loses more than the others."
            }
        }
    }
}
