//! Tables of numbers as coloured fields.

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;

use super::axes::{SIZE, axes, drawing, si};
use super::charts::missing;
use super::colours::Colour;
use crate::error::TrainError;

/// Columns that are drawn one by one; of more, neighbours share a field.
const MOST_COLUMNS: usize = 512;

/// Levels: the value from which each but the first begins, and the colour of each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    from: [f64; 8],
    names: [&'static str; 9],
    colour: fn(usize) -> Colour,
}

/// A load over the mean of its layer.
pub(super) const LOAD: Scale = Scale {
    // The first begins above nothing.
    from: [f64::MIN_POSITIVE, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0, 8.0],
    names: [
        "never",
        "< 0.25",
        "0.25 –",
        "0.5 –",
        "0.8 – 1.25",
        "1.25 –",
        "2 –",
        "4 –",
        "8 and more",
    ],
    colour: Colour::Load,
};

/// A share that was lost.
pub(super) const LOST: Scale = Scale {
    from: [f64::MIN_POSITIVE, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32],
    names: ["none", "< 0.5%", "0.5% –", "1% –", "2% –", "4% –", "8% –", "16% –", "32% and more"],
    colour: Colour::Lost,
};

impl Scale {
    fn level(&self, value: f64) -> usize {
        self.from.iter().filter(|from| value >= **from).count()
    }
}

/// A table with what explains it.
pub(super) struct Heat<'a> {
    pub(super) title: String,
    pub(super) caption: String,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// Where the first column begins, and where each ends.
    pub(super) edges: Vec<f64>,
    /// `[row][column]`; NaN where there is nothing.
    pub(super) rows: Vec<Vec<f64>>,
    pub(super) scale: Scale,
    /// Places of upright lines.
    pub(super) borders: Vec<f64>,
}

impl Heat<'_> {
    /// The figure.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(super) fn figure(mut self) -> Result<Markup, TrainError> {
        if self.edges.len() < 2 || self.rows.is_empty() {
            return Ok(missing(&self.title, "The logs have nothing of it."));
        }
        let joined = self.join_columns();
        let mut svg = String::new();
        self.draw(&mut svg).map_err(drawing(&self.title))?;
        Ok(html! {
            figure {
                h3 { (self.title) }
                ul.legend.scale {
                    @for (level, name) in self.scale.names.iter().enumerate() {
                        li { i style={ "background:" ((self.scale.colour)(level).css()) } {} (name) }
                    }
                }
                div.plot role="img" aria-label=(self.title) { (PreEscaped(svg)) }
                figcaption {
                    (self.caption)
                    @if joined > 1 {
                        " A field stands for " (joined) " columns, by the highest of them."
                    }
                }
            }
        })
    }

    /// Joins neighbours until there are few enough columns; returns how many a field stands for.
    fn join_columns(&mut self) -> usize {
        let columns = self.edges.len() - 1;
        let each = columns.div_ceil(MOST_COLUMNS);
        if each > 1 {
            for row in &mut self.rows {
                *row = row
                    .chunks(each)
                    .map(|some| some.iter().copied().fold(f64::NAN, f64::max))
                    .collect();
            }
            let last = self.edges[columns];
            self.edges =
                self.edges[..columns].iter().copied().step_by(each).chain([last]).collect();
        }
        each
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let num_rows = self.rows.len();
        let height = (90 + 26 * num_rows as u32).clamp(160, 460);
        let root = SVGBackend::with_string(svg, (SIZE.0, height)).into_drawing_area();
        let (first, last) = (self.edges[0], self.edges[self.edges.len() - 1]);
        let (bottom, top) = (-0.5, num_rows as f64 - 0.5);
        let mut chart = ChartBuilder::on(&root)
            .margin_top(8)
            .margin_right(18)
            .x_label_area_size(48)
            .y_label_area_size(56)
            .build_cartesian_2d(first..last, bottom..top)?;
        let whole = |value: &f64| {
            if value.fract() == 0.0 { format!("{value}") } else { String::new() }
        };
        axes(&mut chart, self.x, self.y, &si, &whole)?;
        for (row, values) in self.rows.iter().enumerate() {
            let (low, high) = (row as f64 - 0.5, row as f64 + 0.5);
            for (begin, end, level) in self.fields(values) {
                let colour = (self.scale.colour)(level).rgb().filled();
                chart.draw_series([Rectangle::new([(begin, high), (end, low)], colour)])?;
            }
        }
        for border in &self.borders {
            let line = vec![(*border, bottom), (*border, top)];
            chart.draw_series([PathElement::new(line, Colour::Ink.rgb().stroke_width(1))])?;
        }
        root.present()?;
        Ok(())
    }

    /// Neighbours of one level as one field: begin, end, level.
    fn fields(&self, values: &[f64]) -> Vec<(f64, f64, usize)> {
        let mut fields: Vec<(f64, f64, usize)> = Vec::new();
        for (column, value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            let (begin, end, level) =
                (self.edges[column], self.edges[column + 1], self.scale.level(*value));
            match fields.last_mut() {
                Some(last) if last.2 == level && last.1 == begin => last.1 = end,
                _ => fields.push((begin, end, level)),
            }
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat(rows: Vec<Vec<f64>>) -> Heat<'static> {
        let edges = (0..=rows[0].len()).map(|column| column as f64).collect();
        let (title, caption) = (String::new(), String::new());
        Heat { title, caption, x: "", y: "", edges, rows, scale: LOAD, borders: Vec::new() }
    }

    #[test]
    fn nothing_has_a_level_of_its_own_and_neighbours_of_one_level_are_one_field() {
        assert_eq!([0.0, 0.1, 1.0, 1.25, 100.0].map(|value| LOAD.level(value)), [0, 1, 4, 5, 8]);
        let heat = heat(vec![vec![0.0, 1.0, 1.1, f64::NAN, 1.0]]);
        assert_eq!(heat.fields(&heat.rows[0]), [(0.0, 1.0, 0), (1.0, 3.0, 4), (4.0, 5.0, 4)]);
    }

    #[test]
    fn the_highest_of_joined_columns_stays() {
        let mut values = vec![1.0; 1_100];
        values[1_099] = 9.0;
        let mut heat = heat(vec![values]);
        assert_eq!(heat.join_columns(), 3);
        assert_eq!((heat.edges.len(), heat.rows[0].len()), (368, 367));
        assert_eq!((heat.edges[367], heat.rows[0][366]), (1_100.0, 9.0));
    }
}
