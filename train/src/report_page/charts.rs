//! Curves over an axis, as SVG within a figure of the page.

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::colours::Colour;
use super::series;
use crate::error::TrainError;

/// Small enough that text is still readable on a phone, where a plot is about 350 pixels wide.
pub(super) const SIZE: (u32, u32) = (440, 300);
/// Text in a plot, of the same unit.
pub(super) const FONT_SIZE: u32 = 15;
/// Marks with a number; more would overlap.
const MOST_NUMBERED_MARKS: usize = 25;

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// What was measured at each update, noisy.
    Faint,
    /// A mean, or what does not jump.
    Line,
    /// Few points, each worth a dot.
    Dots,
}

/// A curve.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// For the legend; none for one that another line stands for.
    pub(super) name: Option<String>,
    pub(super) colour: Colour,
    pub(super) style: Style,
    pub(super) points: Vec<(f64, f64)>,
}

/// From the least to the most at each place.
#[derive(Debug, Clone)]
pub(super) struct Area {
    pub(super) name: String,
    /// Place, least and most.
    pub(super) points: Vec<(f64, f64, f64)>,
}

/// Up to where the vertical axis goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Top {
    /// The highest point, unless few are far above all others.
    Highest,
    /// The highest point after this share of the horizontal axis: what falls fast at first.
    After(f64),
}

/// A plot with everything that explains it.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    pub(super) title: String,
    /// What is measured, from which metric, in plain words.
    pub(super) caption: String,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) lines: Vec<Line>,
    pub(super) area: Option<Area>,
    /// Events, each with its number in the list of events.
    pub(super) marks: Vec<(usize, f64)>,
    pub(super) top: Top,
    pub(super) from_zero: bool,
}

impl Chart {
    pub(super) fn new(title: impl Into<String>, x: &'static str, y: &'static str) -> Self {
        Self {
            title: title.into(),
            caption: String::new(),
            x,
            y,
            lines: Vec::new(),
            area: None,
            marks: Vec::new(),
            top: Top::Highest,
            from_zero: false,
        }
    }

    /// The figure; where there is nothing to draw, a note that says so.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(super) fn figure(mut self) -> Result<Markup, TrainError> {
        let mut thinned = false;
        for line in &mut self.lines {
            let (points, some) = series::thin(std::mem::take(&mut line.points));
            line.points = points;
            thinned |= some;
        }
        self.lines.retain(|line| !line.points.is_empty());
        if self.lines.is_empty() {
            return Ok(missing(&self.title, "The logs have no point of it."));
        }
        let ranges = self.ranges();
        let mut svg = String::new();
        self.draw(&mut svg, &ranges).map_err(drawing(&self.title))?;
        let notes = [series::thinned_note(thinned), self.mark_note(), ranges.note()].concat();
        Ok(html! {
            figure {
                h3 { (self.title) }
                (self.legend())
                div.plot role="img" aria-label=(self.title) { (PreEscaped(svg)) }
                figcaption { (self.caption) (notes) }
            }
        })
    }

    fn legend(&self) -> Markup {
        let named: Vec<_> =
            self.lines.iter().filter_map(|line| Some((line.name.as_ref()?, line.colour))).collect();
        let area = self.area.as_ref();
        html! {
            @if named.len() + usize::from(area.is_some()) > 1 {
                ul.legend {
                    @for (name, colour) in named {
                        li { i style={ "background:" (colour.css()) } {} (name) }
                    }
                    @if let Some(area) = area {
                        li { i style={ "background:" (Colour::Band.css()) } {} (area.name) }
                    }
                }
            }
        }
    }

    fn mark_note(&self) -> String {
        match self.marks.len() {
            0 => String::new(),
            count if count <= MOST_NUMBERED_MARKS => {
                " Upright lines are events, by their numbers in the list of events.".to_owned()
            }
            count => format!(" Upright lines are {count} events, too many to number here."),
        }
    }

    /// Places of events with their numbers, those of one place together; no numbers if they are many.
    fn marks_by_place(&self) -> Vec<(f64, String)> {
        let numbered = self.marks.len() <= MOST_NUMBERED_MARKS;
        let mut places: Vec<(f64, Vec<usize>)> = Vec::new();
        for (number, x) in &self.marks {
            match places.iter_mut().find(|place| place.0 == *x) {
                Some((_, numbers)) => numbers.push(*number),
                None => places.push((*x, vec![*number])),
            }
        }
        let name = |numbers: Vec<usize>| match (numbered, &numbers[..]) {
            (false, _) => String::new(),
            (true, [one]) => one.to_string(),
            (true, [first, .., last]) if last - first + 1 == numbers.len() => {
                format!("{first}–{last}")
            }
            (true, several) => several.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
        };
        places.into_iter().map(|(x, numbers)| (x, name(numbers))).collect()
    }

    fn ranges(&self) -> Ranges {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let of_area = || self.area.iter().flat_map(|area| &area.points);
        let xs = points().map(|point| point.0).chain(of_area().map(|point| point.0));
        let (x_low, x_high) = ends(xs);
        let area_y = || of_area().flat_map(|point| [point.1, point.2]);
        let (low, high) = ends(points().map(|point| point.1));
        let high_of_area = area_y().fold(f64::NEG_INFINITY, f64::max);
        let top = match self.top {
            Top::Highest => usual_top(points().map(|point| point.1).collect()),
            Top::After(share) => {
                let from = x_low + share * (x_high - x_low);
                ends(points().filter(|point| point.0 >= from).map(|point| point.1)).1
            }
        };
        let top = top.max(high_of_area);
        let bottom = if self.from_zero { 0.0 } else { area_y().fold(low, f64::min) };
        let margin = match 0.05 * (top - bottom) {
            margin if margin > 0.0 => margin,
            _ => 0.05 * top.abs().max(1e-9),
        };
        let above = points().filter(|point| point.1 > top + margin).count();
        let bottom = if self.from_zero { 0.0 } else { bottom - margin };
        let x_high = if x_high > x_low { x_high } else { x_low + 1.0 };
        Ranges { x: (x_low, x_high), y: (bottom, top + margin), above, high }
    }

    fn draw(&self, svg: &mut String, ranges: &Ranges) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let ((x0, x1), (y0, y1)) = (ranges.x, ranges.y);
        let mut chart = ChartBuilder::on(&root)
            .margin_top(if self.marks.is_empty() { 8 } else { 20 })
            .margin_right(18)
            .x_label_area_size(48)
            .y_label_area_size(70)
            .build_cartesian_2d(x0..x1, y0..y1)?;
        axes(&mut chart, self.x, self.y, &si, &si)?;
        if let Some(area) = &self.area {
            let upper = area.points.iter().map(|point| (point.0, point.2));
            let lower = area.points.iter().rev().map(|point| (point.0, point.1));
            let outline: Vec<_> = upper.chain(lower).collect();
            chart.draw_series([Polygon::new(outline, Colour::Band.rgb().filled())])?;
        }
        for (x, numbers) in self.marks_by_place() {
            let style = Colour::Mark.rgb().stroke_width(1);
            chart.draw_series([PathElement::new(vec![(x, y0), (x, y1)], style)])?;
            let style = text(Colour::Mark, HPos::Center, VPos::Bottom);
            chart.draw_series([Text::new(numbers, (x, y1), style)])?;
        }
        for line in &self.lines {
            draw_line(&mut chart, line, ranges)?;
        }
        root.present()?;
        Ok(())
    }
}

type Cartesian<'a, 'b> = ChartContext<
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

/// A point that lies above the axis interrupts its curve.
fn draw_line(
    chart: &mut Cartesian<'_, '_>,
    line: &Line,
    ranges: &Ranges,
) -> Result<(), Box<dyn std::error::Error>> {
    let colour = line.colour.rgb();
    let inside = |point: &(f64, f64)| point.1 <= ranges.y.1;
    for piece in line.points.split(|point| !inside(point)).filter(|piece| !piece.is_empty()) {
        let style = match line.style {
            Style::Faint => ShapeStyle { color: colour.mix(0.45), filled: false, stroke_width: 1 },
            Style::Line | Style::Dots => colour.stroke_width(2),
        };
        chart.draw_series(LineSeries::new(piece.iter().copied(), style))?;
        if line.style == Style::Dots || piece.len() == 1 {
            let dot = |point: &(f64, f64)| Circle::new(*point, 3, colour.filled());
            chart.draw_series(piece.iter().map(dot))?;
        }
    }
    Ok(())
}

struct Ranges {
    x: (f64, f64),
    y: (f64, f64),
    /// Points above the axis.
    above: usize,
    high: f64,
}

impl Ranges {
    fn note(&self) -> String {
        match self.above {
            0 => String::new(),
            count => {
                let (top, high) = (si(&self.y.1), si(&self.high));
                format!(
                    " The axis ends at {top}; {count} drawn points lie above, the highest at {high}."
                )
            }
        }
    }
}

/// The highest value, or a little above the usual ones where few are far above.
fn usual_top(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (Some(highest), usual) = (values.last(), values.len() * 49 / 50) else { return 1.0 };
    let usual = values[usual.min(values.len() - 1)];
    if usual > 0.0 && *highest > 4.0 * usual { 2.0 * usual } else { *highest }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
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

/// A title with what is missing and why.
pub(super) fn missing(title: &str, why: &str) -> Markup {
    html! { div.missing { h3 { (title) } p { "Not shown: " (why) } } }
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

    #[test]
    fn one_far_above_all_does_not_flatten_the_others() {
        let mut values = vec![1.0; 200];
        values[7] = 1e6;
        assert_eq!(usual_top(values.clone()), 2.0);
        values[7] = 3.0;
        assert_eq!(usual_top(values), 3.0);
    }

    #[test]
    fn events_of_one_place_share_a_mark() {
        let mut chart = Chart::new("", "", "");
        chart.marks = vec![(1, 5.0), (2, 7.0), (3, 7.0), (4, 7.0), (6, 5.0)];
        let marks = [(5.0, "1,6".to_owned()), (7.0, "2–4".to_owned())];
        assert_eq!(chart.marks_by_place(), marks);
        chart.marks = (1..=100).map(|number| (number, number as f64)).collect();
        assert!(chart.marks_by_place().iter().all(|(_, name)| name.is_empty()));
    }

    #[test]
    fn a_plot_without_points_is_a_note_and_text_is_escaped() {
        let mut chart = Chart::new("<b>", "tokens", "nats");
        let text = chart.clone().figure().expect("a note").into_string();
        assert!(text.contains("Not shown") && text.contains("&lt;b&gt;"), "{text}");
        let points = vec![(0.0, 2.0), (10.0, 1.0)];
        let line = |name: &str| Line {
            name: Some(name.to_owned()),
            colour: Colour::Series(0),
            style: Style::Line,
            points: points.clone(),
        };
        chart.lines = vec![line("<script>alert(1)</script>"), line("two")];
        let text = chart.figure().expect("drawn").into_string();
        assert!(text.contains("<svg") && !text.contains("<script>"), "{text}");
        assert!(text.contains("nats") && text.contains("tokens"));
    }
}
