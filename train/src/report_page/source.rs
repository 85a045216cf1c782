//! Everything that a run's folder says, read once for the page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::evaluate::EVALUATIONS_FILE;
use crate::history::{ENDED, Event, STARTED};
use crate::json_lines;
use crate::past_run::PastRun;
use crate::plan::Plan;
use crate::telemetry::loads::Loads;
use crate::telemetry::stitch::Curve;
use crate::telemetry::{Metrics, jsonl, names};

/// Metrics of a whole step that the page shows.
const OF_STEPS: [&str; 13] = [
    names::LOSS,
    GRAD_NORM,
    RATE_MUONH,
    RATE_ADAM,
    SENDER_DROPS,
    RECEIVER_DROPS,
    VALID,
    ENTROPY,
    names::TOKENS_PER_SECOND,
    MFU,
    SEQ_LEN,
    MIXTURE_STAGE,
    names::DURATION,
];

pub(super) const GRAD_NORM: &str = "grad/norm/total";
pub(super) const RATE_MUONH: &str = "optim/learning_rate";
pub(super) const RATE_ADAM: &str = "optim/adam_learning_rate";
pub(super) const SENDER_DROPS: &str = "moe/sender_drop_fraction";
pub(super) const RECEIVER_DROPS: &str = "moe/receiver_drop_fraction";
pub(super) const VALID: &str = "moe/valid_assignments";
pub(super) const ENTROPY: &str = "train/router/routing_entropy_mean";
pub(super) const MFU: &str = "throughput/mfu";
pub(super) const SEQ_LEN: &str = "data/seq_len";
pub(super) const MIXTURE_STAGE: &str = "mixture/stage";
/// What follows the place of evaluations in the log, also of those as trained.
const EVALUATIONS: [&str; 2] = ["eval/", "eval_as_trained/"];
/// Where seconds of a step by phase stand.
const TIME: (&str, &str) = ("throughput/", "_time");

/// One start of a run.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u64,
    /// Completed updates when it began.
    pub from: u64,
    /// Completed updates after its last logged step.
    pub to: u64,
    /// Seconds since 1970 when it began.
    pub unix_secs: u64,
    /// From where it began, for people.
    pub text: String,
    /// The release and the device.
    pub on: String,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has no logged step.
    NotBegun,
    /// It has come to its horizon, and was evaluated there.
    Finished,
    /// Its newest attempt came to the step that it was to end at, before the horizon.
    Ended,
    /// It was asked to stop.
    Stopped,
    /// It goes on, or was killed: a log cannot tell.
    Open,
}

/// A run as the page shows it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Folder, plan in force and history.
    pub run: PastRun,
    /// What follows from the plan alone.
    pub plan: Plan,
    /// Curves by metric; those that the log has.
    pub curves: BTreeMap<String, Curve>,
    /// Choices of experts by evaluation, of the attempts that count.
    pub loads: Vec<Loads>,
    /// Evaluations that were made and recorded after the steps.
    pub recorded: Vec<Metrics>,
    /// Its starts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Lines of its log that a kill cut short.
    pub cut_short: u64,
    /// BLAKE3 of its log, hexadecimal; none without a log.
    pub log_digest: Option<String>,
}

impl Source {
    /// Reads the run in `folder`.
    ///
    /// # Errors
    /// If it holds no run, or a file of it cannot be read.
    pub fn read(folder: &Path) -> Result<Self, TrainError> {
        let run = PastRun::open(folder)?;
        let log = Log::scan(folder)?;
        let metrics: Vec<&str> = log.metrics.iter().map(String::as_str).collect();
        let curves = log.metrics.iter().cloned().zip(run.curves(&metrics)?);
        let curves = curves.filter(|(_, curve)| !curve.points.is_empty()).collect();
        let attempts = attempts(&run, &log.last_steps);
        let loads = of_counting_attempts(Loads::read(folder)?, &attempts);
        let plan = Plan::new(&run.config);
        let (recorded, cut_short) = (recorded(folder)?, log.cut_short);
        let log_digest = digest(&folder.join(jsonl::LOG_FILE))?;
        Ok(Self { run, plan, curves, loads, recorded, attempts, cut_short, log_digest })
    }

    /// The recipe.
    pub fn config(&self) -> &RunConfig {
        &self.run.config
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.run.config.name
    }

    /// A curve, if there is a point of it.
    pub fn curve(&self, metric: &str) -> Option<&Curve> {
        self.curves.get(metric)
    }

    /// The last value of a metric.
    pub fn last(&self, metric: &str) -> Option<f64> {
        Some(*self.curve(metric)?.points.last_key_value()?.1)
    }

    /// Completed updates, of the attempts that count.
    pub fn steps(&self) -> u64 {
        let last = |curve: &Curve| curve.points.last_key_value().map(|(step, _)| *step);
        self.curve(names::LOSS).and_then(last).unwrap_or(0)
    }

    /// Tokens trained on after `step` updates.
    pub fn tokens(&self, step: u64) -> f64 {
        step as f64 * self.config().tokens_per_step() as f64
    }

    /// How far it is.
    pub fn state(&self) -> State {
        let steps = self.steps();
        let newest = self.attempts.last().map_or(0, |attempt| attempt.number);
        let has = |what: &str| {
            self.run.history.iter().any(|event| event.what == what && event.attempt == newest)
        };
        // Runs of before there was an event of the end have an evaluation there.
        let is_evaluated = || {
            let heldout = self.curve(names::HELDOUT_LOSS);
            heldout.is_some_and(|curve| curve.points.contains_key(&steps))
        };
        let came_to_its_end = steps >= self.config().schedule.horizon();
        if steps == 0 {
            State::NotBegun
        } else if came_to_its_end && (has(ENDED) || is_evaluated()) {
            State::Finished
        } else if has(ENDED) {
            State::Ended
        } else if has("stopped") {
            State::Stopped
        } else {
            State::Open
        }
    }

    /// Events that are worth a mark: everything but first start, saves, their pruning and the end.
    pub fn marks(&self) -> Vec<&Event> {
        let quiet = ["saved", "save_skipped", "pruned", ENDED];
        let first_start = |event: &Event| event.what == STARTED && event.attempt == 1;
        let history = self.run.history.iter();
        history
            .filter(|event| !quiet.contains(&event.what.as_str()) && !first_start(event))
            .collect()
    }

    /// Places of evaluations in the log and their metrics, such as `eval/heldout` and `macro_loss`.
    pub fn evaluations(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for metric in self.curves.keys() {
            if let Some((place, rest)) = place_of(metric) {
                places.entry(place).or_default().push(rest);
            }
        }
        places
    }
}

/// `eval/heldout/a/loss` as `eval/heldout` and `a/loss`; none of other metrics.
pub(super) fn place_of(metric: &str) -> Option<(&str, &str)> {
    let begin = EVALUATIONS.iter().find(|begin| metric.starts_with(**begin))?.len();
    let end = begin + metric[begin..].find('/')?;
    Some((&metric[..end], &metric[end + 1..]))
}

/// What one pass over the log finds out.
#[derive(Default)]
struct Log {
    /// Metrics of it that the page shows.
    metrics: BTreeSet<String>,
    /// The last step of each attempt.
    last_steps: BTreeMap<u64, u64>,
    cut_short: u64,
}

impl Log {
    fn scan(folder: &Path) -> Result<Self, TrainError> {
        let mut log = Self::default();
        log.cut_short = jsonl::each(folder, |line| log.take(&line))?;
        Ok(log)
    }

    fn take(&mut self, line: &Metrics) {
        for metric in line.keys().filter(|metric| is_shown(metric)) {
            if !self.metrics.contains(metric) {
                self.metrics.insert(metric.clone());
            }
        }
        let number = |name: &str| line.get(name).and_then(serde_json::Value::as_u64);
        if let (Some(step), Some(attempt)) = (number(names::STEP), number(names::ATTEMPT)) {
            let last = self.last_steps.entry(attempt).or_default();
            *last = step.max(*last);
        }
    }
}

fn is_shown(metric: &str) -> bool {
    let in_parts = |name: &str, begins: &[&str], ends: &[&str]| {
        begins.iter().any(|begin| name.starts_with(begin))
            && ends.iter().any(|end| name.ends_with(end))
    };
    let drops = ["sender_dropped_assignments", "receiver_dropped_assignments"];
    OF_STEPS.contains(&metric)
        || in_parts(metric, &["moe/layer_", "moe/rank_"], &drops)
        || in_parts(metric, &[TIME.0], &[TIME.1])
        || place_of(metric).is_some_and(|(_, rest)| rest.ends_with("loss") || rest.ends_with("bpb"))
}

/// Phases of steps with the metric of each, those that the log has.
pub(super) fn phases(source: &Source) -> impl Iterator<Item = (&str, &Curve)> {
    source.curves.iter().filter_map(|(metric, curve)| {
        let phase = metric.strip_prefix(TIME.0)?.strip_suffix(TIME.1)?;
        (phase != "iteration").then_some((phase, curve))
    })
}

fn attempts(run: &PastRun, last_steps: &BTreeMap<u64, u64>) -> Vec<Attempt> {
    let of_event = |event: &Event| {
        let text = |field: &str| event.detail.get(field).and_then(|value| value.as_str());
        let release = text("release").unwrap_or("unknown");
        Attempt {
            number: event.attempt,
            from: event.step,
            to: last_steps.get(&event.attempt).copied().unwrap_or(event.step).max(event.step),
            unix_secs: event.unix_secs,
            text: event.text.clone(),
            on: format!("{}, release {release}", text("device").unwrap_or("unknown device")),
        }
    };
    run.starts().map(of_event).collect()
}

/// Without what a later attempt took over from, as curves are.
fn of_counting_attempts(mut loads: Vec<Loads>, attempts: &[Attempt]) -> Vec<Loads> {
    loads.retain(|loads| {
        let later = attempts.iter().filter(|attempt| attempt.number > loads.attempt);
        later.into_iter().all(|attempt| attempt.from >= loads.step)
    });
    loads.sort_by_key(|loads| loads.step);
    loads.dedup_by_key(|loads| loads.step);
    loads
}

fn recorded(folder: &Path) -> Result<Vec<Metrics>, TrainError> {
    let mut lines = Vec::new();
    json_lines::each_line(&folder.join(EVALUATIONS_FILE), |_, line| {
        lines.extend(serde_json::from_slice::<Metrics>(line).ok());
        Ok(())
    })?;
    Ok(lines)
}

fn digest(path: &Path) -> Result<Option<String>, TrainError> {
    if !path.exists() {
        return Ok(None);
    }
    let mut hasher = blake3::Hasher::new();
    let read = std::fs::File::open(path).and_then(|file| hasher.update_reader(file).map(drop));
    read.map_err(TrainError::io("read", path))?;
    Ok(Some(hasher.finalize().to_hex().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_evaluations_ends_before_the_figure() {
        assert_eq!(place_of("eval/heldout/macro_loss"), Some(("eval/heldout", "macro_loss")));
        assert_eq!(
            place_of("eval_as_trained/paloma/c4/bpb"),
            Some(("eval_as_trained/paloma", "c4/bpb"))
        );
        assert_eq!(place_of("evaluation/loss"), None);
        assert!(
            is_shown("moe/layer_3/sender_dropped_assignments") && is_shown("throughput/hook_time")
        );
        assert!(!is_shown("eval/heldout/partial_documents") && !is_shown("params/norm/total"));
    }

    #[test]
    fn loads_that_a_later_attempt_took_over_from_do_not_count() {
        let loads = |step: u64, attempt: u64| Loads { step, attempt, ..Loads::default() };
        let attempt = |number: u64, from: u64| Attempt {
            number,
            from,
            to: from,
            unix_secs: 0,
            text: String::new(),
            on: String::new(),
        };
        let all = vec![loads(10, 1), loads(20, 1), loads(15, 2), loads(20, 2)];
        let kept = of_counting_attempts(all, &[attempt(1, 0), attempt(2, 10)]);
        let kept: Vec<_> = kept.iter().map(|loads| (loads.step, loads.attempt)).collect();
        assert_eq!(kept, [(10, 1), (15, 2), (20, 2)]);
    }
}
