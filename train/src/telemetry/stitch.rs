//! One curve from the log of several attempts.
//!
//! A run that was killed at step 57 and resumed from step 40 has logged steps 41 to 57 twice. The
//! rule: for each step the line of the newest attempt that passed it counts. A later attempt takes
//! over where it begins; whatever earlier ones logged beyond is superseded, also where the later one
//! did not come as far. What is missing, doubled or not finite is counted, never hidden.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use super::{Metrics, jsonl, names};
use crate::error::TrainError;

/// The curve of one metric.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Value by step; NaN and infinity where they were logged.
    pub points: BTreeMap<u64, f64>,
    /// Points of attempts that a later one took over from.
    pub superseded: u64,
    /// Points that are missing between the first and the last, if one is due `every` steps.
    pub gaps: u64,
    /// Points of one attempt at a step that it had before; the later one counts.
    pub doubles: u64,
    /// Points that are not finite.
    pub not_finite: u64,
    /// Steps that were left out because they were not finite; no points.
    pub skipped: u64,
    /// Lines of the log that a kill cut short.
    pub cut_short: u64,
}

impl Curve {
    /// The curve of `metric` in the log of the run in `folder`, with a point due at each multiple of
    /// `every`; 0 if none is due.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn read(folder: &Path, metric: &str, every: u64) -> Result<Self, TrainError> {
        let [curve] = Self::read_several(folder, [(metric, every)])?;
        Ok(curve)
    }

    /// As [`read`](Self::read) of several metrics, each with its `every`, in one pass over the log.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn read_several<const N: usize>(
        folder: &Path,
        metrics: [(&str, u64); N],
    ) -> Result<[Self; N], TrainError> {
        let curves = Self::read_all(folder, &metrics)?;
        Ok(curves.try_into().expect("as many curves as metrics"))
    }

    /// As [`read_several`](Self::read_several), of as many metrics as there are, in their order.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn read_all(folder: &Path, metrics: &[(&str, u64)]) -> Result<Vec<Self>, TrainError> {
        let mut of_metrics: Vec<_> = metrics.iter().map(|_| Attempts::default()).collect();
        let cut_short = jsonl::each(folder, |line| {
            for ((metric, _), attempts) in metrics.iter().zip(&mut of_metrics) {
                attempts.add(&line, of(metric));
            }
        })?;
        let curve = |(attempts, (_, every)): (Attempts<f64>, &(&str, u64))| Self {
            cut_short,
            ..Self::new(attempts.stitch(), *every)
        };
        Ok(of_metrics.into_iter().zip(metrics).map(curve).collect())
    }

    /// The same of lines in the order they were written.
    pub fn stitch(lines: &[Metrics], metric: &str, every: u64) -> Self {
        let mut attempts = Attempts::default();
        lines.iter().for_each(|line| attempts.add(line, of(metric)));
        Self::new(attempts.stitch(), every)
    }

    fn new(stitched: Stitched<f64>, every: u64) -> Self {
        let Stitched { points, superseded, doubles, skipped } = stitched;
        let not_finite = points.values().filter(|value| !value.is_finite()).count() as u64;
        let gaps = gaps(&points, every);
        Self { points, superseded, gaps, doubles, not_finite, skipped, cut_short: 0 }
    }
}

/// What takes a metric of a line.
fn of(metric: &str) -> impl Fn(&Metrics) -> Option<f64> {
    move |line| line.get(metric).and_then(names::value)
}

/// The lines of the updates that complete `steps` in the log of the run in `folder`, of the attempt that
/// counts. Of all others nothing is held but that they were there.
///
/// # Errors
/// If the log cannot be read.
pub fn updates_of_run(
    folder: &Path,
    steps: RangeInclusive<u64>,
) -> Result<BTreeMap<u64, Metrics>, TrainError> {
    let wanted =
        |line: &Metrics| count(line, names::STEP).is_some_and(|step| steps.contains(&step));
    let mut attempts = Attempts::default();
    jsonl::each(folder, |line| {
        attempts.add(&line, |line| {
            line.contains_key(names::LOSS).then(|| wanted(line).then(|| line.clone()))
        });
    })?;
    let points = attempts.stitch().points.into_iter();
    Ok(points.filter_map(|(step, line)| Some((step, line?))).collect())
}

/// Something of each step, of the attempt that counts.
struct Stitched<T> {
    points: BTreeMap<u64, T>,
    superseded: u64,
    doubles: u64,
    skipped: u64,
}

/// Something of each step of each attempt, line by line.
struct Attempts<T> {
    attempts: BTreeMap<u64, Attempt<T>>,
    doubles: u64,
    skipped: u64,
}

impl<T> Default for Attempts<T> {
    fn default() -> Self {
        Self { attempts: BTreeMap::new(), doubles: 0, skipped: 0 }
    }
}

impl<T> Attempts<T> {
    /// What `pick` takes of the next line that was written.
    fn add(&mut self, line: &Metrics, pick: impl Fn(&Metrics) -> Option<T>) {
        let [Some(step), Some(attempt)] =
            [names::STEP, names::ATTEMPT].map(|name| count(line, name))
        else {
            return;
        };
        let attempt = self.attempts.entry(attempt).or_insert_with(|| Attempt::begun_by(line, step));
        let Some(value) = pick(line) else { return };
        if is_skipped(line) {
            self.skipped += 1;
        } else if attempt.points.insert(step, value).is_some() {
            self.doubles += 1;
        }
    }

    /// By the rule above.
    fn stitch(self) -> Stitched<T> {
        let Self { attempts, doubles, skipped } = self;
        let mut stitched = Stitched { points: BTreeMap::new(), superseded: 0, doubles, skipped };
        for attempt in attempts.into_values() {
            let superseded = stitched.points.split_off(&(attempt.from + 1));
            stitched.superseded += superseded.len() as u64;
            for (step, value) in attempt.points {
                stitched.superseded += u64::from(stitched.points.insert(step, value).is_some());
            }
        }
        stitched
    }
}

struct Attempt<T> {
    /// Completed updates when it took over.
    from: u64,
    points: BTreeMap<u64, T>,
}

impl<T> Attempt<T> {
    /// A line of a step is written after its update, any other one between updates.
    fn begun_by(line: &Metrics, step: u64) -> Self {
        let updated = line.contains_key(names::LOSS) && !is_skipped(line);
        Self { from: if updated { step.saturating_sub(1) } else { step }, points: BTreeMap::new() }
    }
}

fn count(line: &Metrics, name: &str) -> Option<u64> {
    line.get(name)?.as_u64()
}

fn is_skipped(line: &Metrics) -> bool {
    count(line, names::SKIPPED) == Some(1)
}

fn gaps(points: &BTreeMap<u64, f64>, every: u64) -> u64 {
    let [Some((first, _)), Some((last, _))] = [points.first_key_value(), points.last_key_value()]
    else {
        return 0;
    };
    if every == 0 {
        return 0;
    }
    let due = (first.div_ceil(every)..=last / every).map(|n| n * every);
    due.filter(|step| !points.contains_key(step)).count() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(attempt: u64, step: u64, loss: Value) -> Metrics {
        let skipped = u64::from(loss == json!("skipped"));
        let loss = if skipped == 1 { json!("NaN") } else { loss };
        let line = json!({
            "step": step, "attempt": attempt, "train/loss": loss, "optim/skipped_step": skipped,
        });
        line.as_object().expect("an object").clone()
    }

    fn steps(attempt: u64, steps: std::ops::RangeInclusive<u64>) -> Vec<Metrics> {
        steps.map(|step| line(attempt, step, json!(attempt as f64 + 0.001 * step as f64))).collect()
    }

    #[test]
    fn of_three_attempts_the_newest_that_passed_a_step_counts() {
        // Killed at 10, resumed from 4; killed at 7, before it came as far; resumed from 6.
        let lines = [steps(1, 1..=10), steps(2, 5..=7), steps(3, 7..=12)].concat();
        let curve = Curve::stitch(&lines, "train/loss", 1);
        let attempts: Vec<u64> = curve.points.values().map(|value| *value as u64).collect();
        assert_eq!(attempts, [1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3]);
        assert_eq!(curve.points.keys().copied().collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
        // Steps 5 to 10 of the first, step 7 of the second.
        assert_eq!((curve.superseded, curve.gaps, curve.doubles), (7, 0, 0));
        // Where the last attempt did not come as far, the earlier ones do not come back.
        let curve = Curve::stitch(&lines[..12], "train/loss", 1);
        assert_eq!(curve.points.keys().max(), Some(&6));
        assert_eq!(curve.superseded, 6);
    }

    #[test]
    fn an_attempt_that_begins_with_an_evaluation_or_a_skipped_step_takes_over_there() {
        let evaluation = json!({"step": 4, "attempt": 2, "eval/heldout/loss": 3.0});
        let evaluation = evaluation.as_object().expect("an object").clone();
        let lines = [steps(1, 1..=6), vec![evaluation]].concat();
        assert_eq!(Curve::stitch(&lines, "train/loss", 1).points.len(), 4);
        assert_eq!(Curve::stitch(&lines, "eval/heldout/loss", 0).points.len(), 1);
        let lines = [steps(1, 1..=6), vec![line(2, 4, json!("skipped"))], steps(2, 5..=5)].concat();
        let curve = Curve::stitch(&lines, "train/loss", 1);
        assert_eq!((curve.points.len(), curve.superseded, curve.skipped), (5, 2, 1));
        assert_eq!(curve.points[&5], 2.005);
    }

    #[test]
    fn gaps_doubles_and_what_is_not_finite_are_counted() {
        let mut lines = steps(1, 1..=9);
        lines.remove(4);
        lines.remove(2);
        lines.push(line(1, 9, json!("NaN")));
        lines.push(line(1, 10, json!("inf")));
        let curve = Curve::stitch(&lines, "train/loss", 1);
        assert_eq!((curve.gaps, curve.doubles, curve.not_finite), (2, 1, 2));
        assert!(curve.points[&9].is_nan() && curve.points[&10] == f64::INFINITY);
        assert_eq!(Curve::stitch(&lines, "train/loss", 5).gaps, 1, "step 5 is due, 10 is there");
        assert_eq!(Curve::stitch(&[], "train/loss", 1), Curve::default());
    }

    #[test]
    fn lines_that_a_kill_cut_short_are_counted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut text: String = steps(1, 1..=3)
            .into_iter()
            .map(|line| Value::Object(line).to_string() + "\n")
            .collect();
        text += "{\"step\":4,\"att";
        std::fs::write(folder.path().join(jsonl::LOG_FILE), text).expect("written");
        let curve = Curve::read(folder.path(), "train/loss", 1).expect("read");
        assert_eq!((curve.points.len(), curve.cut_short), (3, 1));
    }
}
