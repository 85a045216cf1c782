//! Curves over an axis, as SVG within a figure of the page.

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axes::{Cartesian, SIZE, axes, drawing, si, text};
use super::colours::Colour;
use super::ranges::Ranges;
use super::series;
use crate::error::TrainError;

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

/// A title with what is missing and why.
pub(super) fn missing(title: &str, why: &str) -> Markup {
    html! { div.missing { h3 { (title) } p { "Not shown: " (why) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

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
