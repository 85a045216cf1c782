//! What the page has, a section a file.

mod drops;
mod evaluations;
mod events;
mod experiments;
mod flops;
mod gradient;
mod lineage;
mod loads;
mod loss;
mod origin;
mod runs;
mod schedule;
mod speed;

pub(super) use drops::drops;
pub(super) use evaluations::evaluations;
pub(super) use events::events;
pub(super) use experiments::{Experiment, experiments};
pub(super) use flops::flops;
pub(super) use gradient::gradient;
pub(super) use lineage::lineage;
pub(super) use loads::loads;
pub(super) use loss::loss;
pub(super) use origin::origin;
pub(super) use runs::runs;
pub(super) use schedule::schedule;
pub(super) use speed::speed;

use chrono::DateTime;
use maud::{Markup, html};

use super::charts::{Chart, Line, Style};
use super::colours::Colour;
use super::series;
use super::source::Source;
use crate::history::Event;
use crate::telemetry::stitch::Curve;

/// The horizontal axis of most plots.
const TOKENS: &str = "tokens trained on";

/// Plots side by side where there is room.
fn plots(figures: &[Markup]) -> Markup {
    html! { div.plots { @for figure in figures { (figure) } } }
}

/// A table whose cells beyond the first `words` are numbers.
fn table(head: &[&str], words: usize, rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.table {
            table {
                thead {
                    tr { @for (at, name) in head.iter().enumerate() { th.n[at >= words] { (name) } } }
                }
                tbody {
                    @for row in rows {
                        tr { @for (at, cell) in row.iter().enumerate() { td.n[at >= words] { (cell) } } }
                    }
                }
            }
        }
    }
}

/// Text, escaped, as a cell.
fn cell(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}

/// A number with so many decimals, or a dash.
fn number(value: Option<f64>, digits: usize) -> Markup {
    cell(value.map_or("–".to_owned(), |value| format!("{value:.digits$}")))
}

/// The name of a run behind its colour.
fn named(runs: &[Source], run: usize) -> Markup {
    html! {
        span.run {
            span.swatch style={ "background:" (Colour::Series(run).css()) } {}
            (label(runs, run))
        }
    }
}

/// The name of a run; with its folder where several have the name.
fn label(runs: &[Source], run: usize) -> String {
    let name = runs[run].name();
    match runs.iter().filter(|other| other.name() == name).count() {
        1 => name.to_owned(),
        _ => format!("{name} ({})", runs[run].run.folder.display()),
    }
}

/// `2026-11-30 22:46 UTC`.
fn date(unix_secs: u64) -> String {
    let date = i64::try_from(unix_secs).ok().and_then(|secs| DateTime::from_timestamp(secs, 0));
    date.map_or("unknown".to_owned(), |date| date.format("%Y-%m-%d %H:%M UTC").to_string())
}

/// The points of a curve by tokens.
fn by_tokens(source: &Source, curve: &Curve, scale: f64) -> Vec<(f64, f64)> {
    series::finite(&curve.points, |step| source.tokens(step), scale)
}

/// The points of a curve by percent of the run.
fn by_progress(source: &Source, curve: &Curve, scale: f64) -> Vec<(f64, f64)> {
    let horizon = source.config().schedule.horizon() as f64;
    series::finite(&curve.points, |step| 100.0 * step as f64 / horizon, scale)
}

/// A noisy metric of each update of every run: its moving mean; of one run also each update.
fn noisy(runs: &[Source], metric: &str, scale: f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for (run, source) in runs.iter().enumerate() {
        let Some(curve) = source.curve(metric) else { continue };
        let points = by_tokens(source, curve, scale);
        let mean = series::moving_mean(&points, series::window(points.len()));
        let colour = Colour::Series(run);
        let name = label(runs, run);
        if runs.len() == 1 {
            lines.push(Line { name: None, colour, style: Style::Faint, points });
        }
        lines.push(Line { name: Some(name), colour, style: Style::Line, points: mean });
    }
    lines
}

/// What [`noisy`] draws, for a caption.
fn noisy_note(runs: &[Source], metric: &str) -> String {
    let points = |source: &Source| source.curve(metric).map_or(0, |curve| curve.points.len());
    let windows: Vec<String> =
        runs.iter().map(|source| series::window(points(source)).to_string()).collect();
    let pale = if runs.len() == 1 { "Pale: each update. " } else { "" };
    let updates = match windows.split_first() {
        Some((first, others)) if others.iter().all(|window| window == first) => first.clone(),
        _ => format!("{} (by run)", windows.join(", ")),
    };
    format!("{pale}Strong: the mean of the last {updates} updates.")
}

/// A metric of every run as it is.
fn smooth(runs: &[Source], metric: &str, style: Style) -> Vec<Line> {
    let line = |(run, source): (usize, &Source)| {
        let points = by_tokens(source, source.curve(metric)?, 1.0);
        Some(Line { name: Some(label(runs, run)), colour: Colour::Series(run), style, points })
    };
    runs.iter().enumerate().filter_map(line).collect()
}

/// The chart with the marks of the run, if it is the only one.
fn with_marks(mut chart: Chart, runs: &[Source]) -> Chart {
    if let [source] = runs {
        chart.marks = marks(source, 0);
    }
    chart
}

/// Numbers and places of a run's events, of which those of runs before it have the first `before`.
fn marks(source: &Source, before: usize) -> Vec<(usize, f64)> {
    let place = |event: &&Event| source.tokens(event.step);
    source.marks().iter().map(place).enumerate().map(|(at, x)| (before + at + 1, x)).collect()
}

/// Events of the runs before `run`.
fn marks_before(runs: &[Source], run: usize) -> usize {
    runs[..run].iter().map(|source| source.marks().len()).sum()
}
