//! How far the axes of a plot go, so that few points do not flatten all others.

use super::axes::si;
use super::charts::{Chart, Top};

/// From where to where the axes of a plot go.
pub(super) struct Ranges {
    pub(super) x: (f64, f64),
    pub(super) y: (f64, f64),
    /// Points above the axis.
    above: usize,
    high: f64,
}

impl Ranges {
    /// What the caption says of points above the axis.
    pub(super) fn note(&self) -> String {
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

impl Chart {
    pub(super) fn ranges(&self) -> Ranges {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_far_above_all_does_not_flatten_the_others() {
        let mut values = vec![1.0; 200];
        values[7] = 1e6;
        assert_eq!(usual_top(values.clone()), 2.0);
        values[7] = 3.0;
        assert_eq!(usual_top(values), 3.0);
    }
}
