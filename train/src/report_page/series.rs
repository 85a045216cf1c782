//! Curves made small enough for a page, without hiding what sticks out.

use std::collections::BTreeMap;

/// Stretches of which a long curve keeps the lowest and the highest point.
const STRETCHES: usize = 250;

/// The finite points of a curve with another unit on the axis, and the number of those that are not
/// finite.
pub(super) fn finite(
    points: &BTreeMap<u64, f64>,
    x: impl Fn(u64) -> f64,
    scale: f64,
) -> Vec<(f64, f64)> {
    let finite = points.iter().filter(|(_, value)| value.is_finite());
    finite.map(|(step, value)| (x(*step), scale * value)).collect()
}

/// The lowest and the highest point of each of [`STRETCHES`] stretches, and both ends; all of them
/// where there are no more. Also whether any was left out.
pub(super) fn thin(points: Vec<(f64, f64)>) -> (Vec<(f64, f64)>, bool) {
    if points.len() <= 2 * STRETCHES {
        return (points, false);
    }
    let mut kept = vec![points[0]];
    for stretch in points[1..points.len() - 1].chunks(points.len().div_ceil(STRETCHES)) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [stretch.iter().min_by(by_value), stretch.iter().max_by(by_value)];
        let [Some(low), Some(high)] = ends else { continue };
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        kept.push(*first);
        if first.0 < second.0 {
            kept.push(*second);
        }
    }
    kept.push(points[points.len() - 1]);
    (kept, true)
}

/// What [`thin`] did, for a caption.
pub(super) fn thinned_note(thinned: bool) -> String {
    match thinned {
        true => format!(
            " Long curves are drawn by the lowest and the highest point of each of {STRETCHES} stretches."
        ),
        false => String::new(),
    }
}

/// Points over which [`moving_mean`] averages a curve of `len`.
pub(super) fn window(len: usize) -> usize {
    (len / 100).max(10)
}

/// The mean of each point and those before it, `window` in all where there are as many.
pub(super) fn moving_mean(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    let mut sum = 0.0;
    let mut means = Vec::with_capacity(points.len());
    for (index, (x, value)) in points.iter().enumerate() {
        sum += value;
        if index >= window {
            sum -= points[index - window].1;
        }
        means.push((*x, sum / (index + 1).min(window) as f64));
    }
    means
}

/// The corners of what keeps its value until it changes.
pub(super) fn stairs(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = points.iter().copied().take(1).collect();
    for pair in points.windows(2).filter(|pair| pair[0].1 != pair[1].1) {
        corners.extend([(pair[1].0, pair[0].1), pair[1]]);
    }
    corners.extend(points.last());
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_and_both_ends_of_a_long_curve_stay() {
        let mut points: Vec<(f64, f64)> =
            (0..100_000).map(|step| (f64::from(step), 1.0 / f64::from(step + 1))).collect();
        points[54_321].1 = 9.0;
        points[54_322].1 = -9.0;
        let (kept, thinned) = thin(points.clone());
        assert!(thinned && kept.len() <= 2 * STRETCHES + 2, "{}", kept.len());
        for index in [0, 54_321, 54_322, 99_999] {
            assert!(kept.contains(&points[index]), "{index}");
        }
        assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(thin(points[..500].to_vec()), (points[..500].to_vec(), false));
    }

    #[test]
    fn a_moving_mean_begins_with_what_there_is() {
        let points = [1.0, 3.0, 5.0, 7.0].map(|value| (value, value));
        let means: Vec<f64> = moving_mean(&points, 2).iter().map(|point| point.1).collect();
        assert_eq!(means, [1.0, 2.0, 4.0, 6.0]);
    }

    #[test]
    fn a_change_is_upright() {
        let points = [(1.0, 5.0), (2.0, 5.0), (3.0, 7.0), (4.0, 7.0)];
        assert_eq!(stairs(&points), [(1.0, 5.0), (3.0, 5.0), (3.0, 7.0), (4.0, 7.0)]);
        assert_eq!(stairs(&[]), []);
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        let points = BTreeMap::from([(1, 2.0), (2, f64::NAN), (3, f64::INFINITY), (4, 1.0)]);
        let drawn = finite(&points, |step| 10.0 * step as f64, 100.0);
        assert_eq!(drawn, [(10.0, 200.0), (40.0, 100.0)]);
    }
}
