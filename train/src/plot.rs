//! The loss curve, for a terminal and as a picture.

use std::path::Path;

use plotters::prelude::*;
use textplots::{Chart, Plot as _, Shape};

use crate::error::TrainError;

/// Steps that a point of the smoothed curve averages, at most.
const WINDOW: usize = 10;

/// The curve as lines of text.
pub fn text(losses: &[(u64, f64)]) -> String {
    if losses.len() < 2 {
        return String::new();
    }
    let points: Vec<(f32, f32)> =
        smoothed(losses).iter().map(|(step, loss)| (*step as f32, *loss as f32)).collect();
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let mut chart = Chart::new(120, 40, first, last);
    let lines = Shape::Lines(&points);
    let chart = chart.lineplot(&lines);
    chart.axis();
    chart.figures();
    format!("{chart}")
}

/// The curve as an SVG file: every step, and a moving mean over them.
///
/// # Errors
/// If the file cannot be written.
pub fn svg(losses: &[(u64, f64)], path: &Path) -> Result<(), TrainError> {
    draw(losses, path)
        .map_err(|error| TrainError::io("draw", path)(std::io::Error::other(error.to_string())))
}

fn draw(losses: &[(u64, f64)], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (Some(first), Some(last)) = (losses.first(), losses.last()) else { return Ok(()) };
    let low = losses.iter().map(|(_, loss)| *loss).fold(f64::INFINITY, f64::min);
    let high = losses.iter().map(|(_, loss)| *loss).fold(f64::NEG_INFINITY, f64::max);
    let margin = 0.05 * (high - low).max(1e-3);
    let root = SVGBackend::new(path, (800, 450)).into_drawing_area();
    root.fill(&WHITE)?;
    let caption = format!("training loss: every step (light), mean of {WINDOW} (dark)");
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 15))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(first.0..last.0.max(first.0 + 1), low - margin..high + margin)?;
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc("training loss (nats a token)")
        .light_line_style(WHITE)
        .draw()?;
    chart.draw_series(LineSeries::new(losses.iter().copied(), RGBColor(170, 195, 220)))?;
    let mean = RGBColor(20, 80, 150).stroke_width(2);
    chart.draw_series(LineSeries::new(smoothed(losses), mean))?;
    root.present()?;
    Ok(())
}

/// Mean over the last [`WINDOW`] steps at each step.
fn smoothed(losses: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let mean = |end: usize| {
        let window = &losses[(end + 1).saturating_sub(WINDOW)..=end];
        window.iter().map(|(_, loss)| loss).sum::<f64>() / window.len() as f64
    };
    (0..losses.len()).map(|i| (losses[i].0, mean(i))).collect()
}
