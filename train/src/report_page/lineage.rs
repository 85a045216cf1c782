//! Attempts and branches as a drawing: a bar an attempt, from the update it began at to its last.

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axes::{FONT_SIZE, SIZE, axes, drawing, si, text};
use super::charts::missing;
use super::colours::Colour;
use super::source::Source;
use crate::error::TrainError;

/// Height of a bar's row and of what surrounds all rows.
const ROW: u32 = 30;
const AROUND: u32 = 80;

/// One bar.
struct Bar {
    run: usize,
    attempt: u64,
    from: u64,
    to: u64,
    /// Updates beyond this one were made again by a later attempt.
    counts_to: u64,
}

/// Where the parent's row is, where the branch's, and at which update.
struct Branch {
    parent: usize,
    child: usize,
    step: u64,
}

/// The drawing, or a note where no run has been started.
///
/// # Errors
/// If it cannot be drawn.
pub(super) fn figure(runs: &[Source]) -> Result<Markup, TrainError> {
    let title = "Attempts and branches";
    let bars = bars(runs);
    if bars.is_empty() {
        return Ok(missing(title, "no run has been started."));
    }
    let branches = branches(runs, &bars);
    let mut svg = String::new();
    draw(&mut svg, &bars, &branches).map_err(drawing(title))?;
    Ok(html! {
        figure {
            h3 { (title) }
            div.plot role="img" aria-label=(title) { (PreEscaped(svg)) }
            figcaption {
                "A bar is one start of a run (run . attempt), from the update that it began at to its last "
                "logged one; the pale end was made again by a later attempt and does not count. "
                "An upright line is a branch: it begins at a saved state of the run it comes from."
            }
        }
    })
}

fn bars(runs: &[Source]) -> Vec<Bar> {
    let of_run = |(run, source): (usize, &Source)| {
        let bar = |attempt: &super::Attempt| {
            let later = source.attempts.iter().filter(|other| other.number > attempt.number);
            let taken_over = later.map(|other| other.from).min().unwrap_or(u64::MAX);
            let counts_to = attempt.to.min(taken_over).max(attempt.from);
            Bar { run, attempt: attempt.number, from: attempt.from, to: attempt.to, counts_to }
        };
        source.attempts.iter().map(bar).collect::<Vec<_>>()
    };
    runs.iter().enumerate().flat_map(of_run).collect()
}

/// The run among `runs` that another one branched off from.
pub(super) fn parent_of(runs: &[Source], child: usize) -> Option<usize> {
    let parent = &runs[child].config().parent.as_ref()?.run;
    let name = parent.file_name()?;
    let same = |source: &Source| {
        let folder = &source.run.folder;
        folder == parent || folder.canonicalize().ok().as_deref() == Some(parent)
    };
    let by_name = |source: &Source| source.run.folder.file_name() == Some(name);
    runs.iter().position(same).or_else(|| runs.iter().position(by_name)).filter(|run| *run != child)
}

fn branches(runs: &[Source], bars: &[Bar]) -> Vec<Branch> {
    let row_of = |run: usize| bars.iter().position(|bar| bar.run == run);
    let of_run = |child: usize| {
        let step = runs[child].config().parent.as_ref()?.step;
        let parent = parent_of(runs, child)?;
        let saved_it = |bar: &Bar| bar.run == parent && (bar.from..=bar.counts_to).contains(&step);
        let parent = bars.iter().rposition(saved_it).or_else(|| row_of(parent))?;
        Some(Branch { parent, child: row_of(child)?, step })
    };
    (0..runs.len()).filter_map(of_run).collect()
}

fn draw(
    svg: &mut String,
    bars: &[Bar],
    branches: &[Branch],
) -> Result<(), Box<dyn std::error::Error>> {
    let rows = bars.len();
    let root =
        SVGBackend::with_string(svg, (SIZE.0, AROUND + ROW * rows as u32)).into_drawing_area();
    let last = bars.iter().map(|bar| bar.to).max().unwrap_or(1).max(1) as f64;
    let mut chart = ChartBuilder::on(&root)
        .margin_top(8)
        .margin_right(24)
        .x_label_area_size(48)
        .y_label_area_size(3 * FONT_SIZE)
        .build_cartesian_2d(0.0..last, 0.0..rows as f64)?;
    axes(&mut chart, "completed updates", "", &si, &|_| String::new())?;
    let middle = |row: usize| (rows - row) as f64 - 0.5;
    for (row, bar) in bars.iter().enumerate() {
        let colour = Colour::Series(bar.run).rgb();
        let field = |from: u64, to: u64, style: ShapeStyle| {
            let corners = [(from as f64, middle(row) + 0.3), (to as f64, middle(row) - 0.3)];
            Rectangle::new(corners, style)
        };
        chart.draw_series([field(bar.from, bar.to, colour.mix(0.3).filled())])?;
        chart.draw_series([field(bar.from, bar.counts_to, colour.filled())])?;
        let style = text(Colour::Ink, HPos::Right, VPos::Center);
        let label = format!("{}.{}", bar.run + 1, bar.attempt);
        chart.draw_series([Text::new(label, (-0.02 * last, middle(row)), style)])?;
    }
    for Branch { parent, child, step } in branches {
        let line = vec![(*step as f64, middle(*parent)), (*step as f64, middle(*child))];
        chart.draw_series([PathElement::new(line, Colour::Ink.rgb().stroke_width(2))])?;
        let dot =
            |row: usize| Circle::new((*step as f64, middle(row)), 4, Colour::Ink.rgb().filled());
        chart.draw_series([dot(*parent), dot(*child)])?;
    }
    root.present()?;
    Ok(())
}
