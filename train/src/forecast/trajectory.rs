//! How training went on the rungs, by progress.

use std::collections::BTreeMap;

use fulmar_eval::forecast::{Band, NUM_POINTS};
use serde::{Deserialize, Serialize};

use super::{RungRun, point_step};

/// A moving mean over this share of a run has a peak that no single step decides.
const PEAK_WINDOW: u64 = 20;

/// What the rungs had at each 5%: means over the twentieth of the run until then, the least, the mean
/// and the largest of the rungs that have come so far.
///
/// Nothing is carried on to the size of another run: these are what was seen, and no forecast.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trajectories {
    /// Training loss, in nats.
    pub train_loss: Vec<Band>,
    /// Norm of the whole gradient.
    pub grad_norm: Vec<Band>,
    /// Share of dropped assignments.
    pub drop_fraction: Vec<Band>,
}

/// The trajectories of some rungs.
pub fn trajectories(rungs: &[RungRun]) -> Trajectories {
    let of = |metric: usize| {
        let means: Vec<Vec<f64>> =
            rungs.iter().map(|rung| means(&rung.curves[metric].points, rung.steps())).collect();
        let band = |point: usize| {
            let values: Vec<f64> = means.iter().filter_map(|m| m.get(point).copied()).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (!values.is_empty()).then(|| Band::over(5 * (point + 1), mean, values))
        };
        (0..NUM_POINTS).map_while(band).collect()
    };
    let [train_loss, grad_norm, drop_fraction] = [0, 1, 2].map(of);
    Trajectories { train_loss, grad_norm, drop_fraction }
}

/// Means over the twentieths of a run of `horizon` steps that are whole.
pub(super) fn means(points: &BTreeMap<u64, f64>, horizon: u64) -> Vec<f64> {
    let mean = |point: usize| {
        let first = point.checked_sub(1).map_or(0, |before| point_step(before, horizon)) + 1;
        let last = point_step(point, horizon);
        points.contains_key(&last).then_some(())?;
        let values: Vec<f64> = points.range(first..=last).map(|(_, value)| *value).collect();
        Some(values.iter().sum::<f64>() / values.len() as f64)
    };
    (0..NUM_POINTS).map_while(mean).collect()
}

/// Where the gradient norm of a run of `horizon` steps was largest so far, in percent of the run: the
/// middle of the twentieth of the run with the largest mean. None before the first whole one.
pub fn grad_peak(points: &BTreeMap<u64, f64>, horizon: u64) -> Option<f64> {
    let window = (horizon / PEAK_WINDOW).max(1) as usize;
    let steps: Vec<u64> = points.keys().copied().collect();
    // Sums until each step, so that each window is one difference.
    let sums = points.values().scan(0.0, |sum, value| {
        *sum += value;
        Some(*sum)
    });
    let sums: Vec<f64> = std::iter::once(0.0).chain(sums).collect();
    let of_window = |first: usize| sums[first + window] - sums[first];
    let firsts = 0..(steps.len() + 1).checked_sub(window)?;
    let first = firsts.max_by(|a, b| of_window(*a).total_cmp(&of_window(*b)))?;
    let middle = (steps[first] + steps[first + window - 1]) as f64 / 2.0;
    Some(100.0 * middle / horizon as f64)
}

/// The least and the largest position of the peak over rungs that have come to their end.
pub(super) fn grad_peaks(rungs: &[RungRun]) -> Option<[f64; 2]> {
    let whole = rungs.iter().filter(|rung| rung.completed == rung.steps());
    let peaks = whole.filter_map(|rung| grad_peak(&rung.curves[1].points, rung.steps()));
    peaks.fold(None, |range, peak| {
        let [low, high] = range.unwrap_or([peak, peak]);
        Some([f64::min(low, peak), f64::max(high, peak)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_middle_of_the_highest_twentieth() {
        // 100 steps, windows of 5: a single high step at 30 is less than five of half its height.
        let norm = |step: u64| match step {
            30 => 2.0,
            61..=65 => 1.0,
            _ => 0.1,
        };
        let points: BTreeMap<u64, f64> = (1..=100).map(|step| (step, norm(step))).collect();
        assert_eq!(grad_peak(&points, 100), Some(63.0));
        let until: BTreeMap<u64, f64> = points.range(..=40).map(|(s, v)| (*s, *v)).collect();
        assert!((28.0..=32.0).contains(&grad_peak(&until, 100).expect("a window")));
        assert_eq!(grad_peak(&points.range(..5).map(|(s, v)| (*s, *v)).collect(), 100), None);
    }

    #[test]
    fn means_are_of_whole_twentieths() {
        // Horizon 50: points at 3, 5, 8, 10, ...; step 9 is no whole twentieth yet.
        let points: BTreeMap<u64, f64> = (1..=9).map(|step| (step, step as f64)).collect();
        assert_eq!(means(&points, 50), [2.0, 4.5, 7.0]);
    }
}
