//! What plots of every kind share: their size, their axes, the text in them.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::colours::Colour;
use crate::error::TrainError;

/// Small enough that text is still readable on a phone, where a plot is about 350 pixels wide.
pub(super) const SIZE: (u32, u32) = (440, 300);
/// Text in a plot, of the same unit.
pub(super) const FONT_SIZE: u32 = 15;

pub(super) type Cartesian<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// Grid, figures and names of both axes.
pub(super) fn axes(
    chart: &mut Cartesian<'_, '_>,
    x: &str,
    y: &str,
    x_figure: &dyn Fn(&f64) -> String,
    y_figure: &dyn Fn(&f64) -> String,
) -> Result<(), Box<dyn std::error::Error>> {
    let figures = ("sans-serif", FONT_SIZE).into_font().color(&Colour::Ink.rgb());
    let names = ("sans-serif", FONT_SIZE).into_font().color(&Colour::Muted.rgb());
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(x_figure)
        .y_label_formatter(y_figure)
        .label_style(figures)
        .axis_desc_style(names)
        .axis_style(Colour::Muted.rgb())
        .bold_line_style(Colour::Grid.rgb())
        .max_light_lines(0)
        .draw()?;
    Ok(())
}

/// Text in a plot, by its place relative to the point it is drawn at.
pub(super) fn text(colour: Colour, h: HPos, v: VPos) -> TextStyle<'static> {
    ("sans-serif", FONT_SIZE).into_font().color(&colour.rgb()).pos(Pos::new(h, v))
}

/// `1200000` as `1.2M`, `0.00012` as `1.2e-4`.
pub(super) fn si(value: &f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e18).contains(&size) {
        return format!("{value:.1e}");
    }
    let units = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
    let (unit, letter) = units.into_iter().find(|(unit, _)| size >= *unit).unwrap_or((1.0, ""));
    let scaled = value / unit;
    let digits = match scaled.abs() {
        small if small < 1.0 => 4,
        small if small < 10.0 => 3,
        middle if middle < 100.0 => 2,
        _ => 1,
    };
    let figure = format!("{scaled:.digits$}");
    format!("{}{letter}", figure.trim_end_matches('0').trim_end_matches('.'))
}

/// What turns a failure of drawing into an error of the page.
pub(super) fn drawing<E: std::fmt::Display>(title: &str) -> impl Fn(E) -> TrainError + '_ {
    move |error| {
        let source = std::io::Error::other(error.to_string());
        TrainError::io("draw", std::path::Path::new(title))(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, figure) in [
            (0.0, "0"),
            (1_200_000.0, "1.2M"),
            (250_000.0, "250k"),
            (15e12, "15T"),
            (-0.025, "-0.025"),
            (4.25, "4.25"),
            (0.000_12, "1.2e-4"),
        ] {
            assert_eq!(si(&value), figure);
        }
    }
}
