//! The norm of the gradient, and where it is largest.

use maud::{Markup, html};

use super::{TOKENS, by_progress, cell, label, named, noisy, noisy_note, plots, table, with_marks};
use crate::error::TrainError;
use crate::forecast::Preregistration;
use crate::plan::grouped;
use crate::report_page::charts::{Area, Chart, Line, Style};
use crate::report_page::colours::Colour;
use crate::report_page::series;
use crate::report_page::source::{GRAD_NORM, Source};

/// The norm by tokens and by progress, and its peaks.
pub(in crate::report_page) fn gradient(
    runs: &[Source],
    forecast: Option<&Preregistration>,
) -> Result<Markup, TrainError> {
    let mut chart = with_marks(Chart::new("Gradient norm", TOKENS, "norm"), runs);
    chart.lines = noisy(runs, GRAD_NORM, 1.0);
    chart.from_zero = true;
    chart.caption = format!(
        "Euclidean norm of the whole gradient before the update, no unit ({GRAD_NORM}). {}",
        noisy_note(runs, GRAD_NORM)
    );
    let mut figures = vec![chart.figure()?];
    if runs.len() > 1 || forecast.is_some() {
        figures.push(at_equal_progress(runs, forecast)?);
    }
    let peak = |(run, source): (usize, &Source)| {
        let points = &source.curve(GRAD_NORM)?.points;
        let finite = points.iter().filter(|(_, norm)| norm.is_finite());
        let (step, norm) = finite.max_by(|a, b| a.1.total_cmp(b.1))?;
        let share = 100.0 * *step as f64 / source.config().schedule.horizon() as f64;
        let place = [grouped(*step), format!("{share:.1}%")].map(cell);
        let [step, share] = place;
        Some(vec![named(runs, run), cell(format!("{norm:.4}")), step, share])
    };
    let peaks: Vec<_> = runs.iter().enumerate().filter_map(peak).collect();
    Ok(html! {
        (plots(&figures))
        h3 { "Largest norm" }
        (table(&["run", "norm", "at update", "of the run"], 1, &peaks))
    })
}

fn at_equal_progress(
    runs: &[Source],
    forecast: Option<&Preregistration>,
) -> Result<Markup, TrainError> {
    let mut chart = Chart::new("Gradient norm at equal progress", "percent of the run", "norm");
    let line = |(run, source): (usize, &Source)| {
        let points = by_progress(source, source.curve(GRAD_NORM)?, 1.0);
        let points = series::moving_mean(&points, series::window(points.len()));
        let (name, colour) = (Some(label(runs, run)), Colour::Series(run));
        Some(Line { name, colour, style: Style::Line, points })
    };
    chart.lines = runs.iter().enumerate().filter_map(line).collect();
    chart.from_zero = true;
    chart.caption =
        format!("The same means ({GRAD_NORM}) by the share of its updates that a run has made.");
    let bands = forecast.map_or(&[][..], |forecast| &forecast.trajectories.grad_norm);
    if !bands.is_empty() {
        chart.area = Some(Area {
            name: "rungs of the forecast".to_owned(),
            points: bands.iter().map(|band| (band.progress as f64, band.low, band.high)).collect(),
        });
    }
    chart.figure()
}
