//! A run against its forecast.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use fulmar_eval::forecast::{At, Band, NUM_POINTS};
use serde::Serialize;

use super::{Preregistration, RungsError, grad_peak, point_step};
use crate::assemble::RunData;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::history::{History, STARTED};
use crate::operations::{Position, same_past};
use crate::past_run::PastRun;
use crate::recipe;
use crate::telemetry::stitch::Curve;
use crate::telemetry::{Metrics, names};

/// Field of the event of a start: digest of the forecast that the run is watched against.
pub const FORECAST_DIGEST: &str = "forecast_digest";

/// Where a run stands beside its band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within it.
    OnTrack,
    /// Above it, or not a number: worse than forecast.
    Above,
    /// Below it: better than forecast.
    Below,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::OnTrack => "on track",
            Self::Above => "ABOVE the band",
            Self::Below => "below the band",
        }
    }
}

/// An evaluation beside the forecast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Completed updates.
    pub step: u64,
    /// The loss that was measured, in nats.
    pub measured: f64,
    /// What was expected at this progress.
    pub band: Band,
    /// Nats above the forecast; negative below.
    pub deviation: f64,
    /// The FLOPs at which the law of this progress has the measured loss, over those that the forecast
    /// has spent by then: 0.8 is a run that is worth four fifths of its compute. Infinite at or below the
    /// asymptote.
    pub equivalent_compute: f64,
    /// Where it stands.
    pub verdict: Verdict,
    /// Where the gradient norm was largest so far, in percent of the run.
    pub grad_peak: Option<f64>,
}

impl Status {
    fn new(at: &At, band: Band, step: u64, measured: f64, grad_peak: Option<f64>) -> Self {
        let verdict = match measured {
            _ if band.holds(measured) => Verdict::OnTrack,
            better if better < band.low => Verdict::Below,
            _ => Verdict::Above,
        };
        let (deviation, equal) = (measured - band.mid, at.law.flops(measured));
        let equivalent_compute = if measured.is_nan() { f64::NAN } else { equal / at.flops };
        Self { step, measured, band, deviation, equivalent_compute, verdict, grad_peak }
    }

    /// How far above the forecast, in distances from it to the top of its band: above 1 is out.
    pub fn over_forecast(&self) -> f64 {
        self.deviation / (self.band.high - self.band.mid)
    }

    /// Everything by name, for the log.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::new();
        let mut put = |name: &str, value: f64| {
            metrics.insert(format!("forecast/{name}"), names::number(value));
        };
        put("progress", self.band.progress as f64);
        put("predicted", self.band.mid);
        put("low", self.band.low);
        put("high", self.band.high);
        put("deviation", self.deviation);
        put("equivalent_compute", self.equivalent_compute);
        if let Some(peak) = self.grad_peak {
            put("grad_peak_progress", peak);
        }
        let inside = u64::from(self.verdict == Verdict::OnTrack);
        metrics.insert("forecast/inside_band".to_owned(), inside.into());
        metrics
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measured, band: Band { progress, low, mid, high }, .. } = self;
        let words = self.verdict.words();
        write!(f, "forecast at {progress}%: {words}, {measured:.4} where {mid:.4} was expected ")?;
        write!(f, "({low:.4} to {high:.4}); {:+.4} nats, ", self.deviation)?;
        write!(f, "worth {:.2} of its compute", self.equivalent_compute)
    }
}

/// The forecast of a run, and what was seen of the run so far; on its first rank.
#[derive(Debug)]
pub struct Watch {
    /// The forecast.
    pub registration: Preregistration,
    grad_norms: BTreeMap<u64, f64>,
}

impl Watch {
    /// The forecast that the recipe of the run in `folder` names, if it names one.
    ///
    /// # Errors
    /// If the file cannot be read or was altered; if it is of another recipe, or another one than an
    /// earlier start of the run was watched against.
    pub fn open(config: &RunConfig, folder: &Path) -> Result<Option<Self>, TrainError> {
        let Some(path) = &config.forecast else { return Ok(None) };
        let registration = Preregistration::read(path)?;
        let refuse = |problem: String| RungsError::Preregistration { path: path.clone(), problem };
        let target = recipe::parse(&registration.recipe, &path.display().to_string(), &[])?;
        same_past(&target, config, Position::default()).map_err(|(field, there, here)| {
            refuse(format!(
                "is of another run: `{field}` is {there} in the recipe that it is of, and {here} in \
                 this one"
            ))
        })?;
        let events = History::read(folder)?;
        let starts = events.iter().filter(|event| event.what == STARTED);
        let mut earlier = starts.filter_map(|event| event.detail.get(FORECAST_DIGEST)?.as_str());
        if let Some(digest) = earlier.next_back().filter(|digest| **digest != registration.digest) {
            let found = &registration.digest;
            return Err(refuse(format!(
                "another one than this run began with: its digest is {found}, needed {digest}"
            ))
            .into());
        }
        Ok(Some(Self { registration, grad_norms: BTreeMap::new() }))
    }

    /// Fails unless the run reads what the rungs have read, as far as their records say.
    ///
    /// # Errors
    /// With the digests that differ.
    pub fn require_data(&self, data: &RunData) -> Result<(), TrainError> {
        let of = |digest: &Option<String>| digest.clone();
        for (what, needed, found) in [
            ("data and tokenizer", of(&self.registration.data), &data.digest),
            ("held-out text", of(&self.registration.heldout), &data.heldout_digest),
        ] {
            if let Some(needed) = needed.filter(|needed| needed != found) {
                let rule = format!("{needed}, which the rungs of the forecast have read");
                return Err(TrainError::config(format!("digest of {what}"), found, rule));
            }
        }
        Ok(())
    }

    /// Learns from the log of earlier attempts until `step`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn remember(&mut self, folder: &Path, step: u64) -> Result<(), TrainError> {
        let earlier = Curve::read(folder, names::GRAD_NORM, 0)?;
        self.grad_norms = earlier.points.into_iter().filter(|(at, _)| *at <= step).collect();
        Ok(())
    }

    /// Takes note of a step that led to `step` completed updates.
    pub fn after_step(&mut self, step: u64, grad_norm: f64) {
        self.grad_norms.insert(step, grad_norm);
    }

    /// The status after an evaluation with these `metrics` at step `step` of `horizon`; none between two
    /// points of the forecast, or if the metric was not evaluated.
    pub fn after_evaluation(&self, step: u64, horizon: u64, metrics: &Metrics) -> Option<Status> {
        let measured = metrics.get(&self.registration.metric).and_then(names::value)?;
        status(&self.registration, step, horizon, measured, &self.grad_norms)
    }

    /// The position of the gradient norm's peak beside those of the rungs, for people.
    pub fn say_peak(&self, status: &Status) -> Option<String> {
        Some(say_peak(status.grad_peak?, self.registration.grad_peak?))
    }
}

fn status(
    registration: &Preregistration,
    step: u64,
    horizon: u64,
    measured: f64,
    grad_norms: &BTreeMap<u64, f64>,
) -> Option<Status> {
    let point = (0..NUM_POINTS).find(|point| point_step(*point, horizon) == step)?;
    let (at, band) = (registration.forecast.points.get(point)?, registration.loss_band.get(point)?);
    let until: BTreeMap<u64, f64> =
        grad_norms.range(..=step).map(|(step, norm)| (*step, *norm)).collect();
    Some(Status::new(at, *band, step, measured, grad_peak(&until, horizon)))
}

fn say_peak(peak: f64, [low, high]: [f64; 2]) -> String {
    let beside = if peak < low {
        "earlier than on any"
    } else if peak > high {
        "later than on any"
    } else {
        "as on them"
    };
    format!(
        "gradient norm largest at {peak:.1}% so far, {beside} (rungs of the ladder: {low:.1}% to \
         {high:.1}%)"
    )
}

/// A run that goes on or has ended beside its forecast, as its folder tells it.
#[derive(Debug, Clone, Serialize)]
pub struct Watched {
    /// The run's name.
    pub run: String,
    /// Completed updates.
    pub completed: u64,
    /// Updates of the whole run.
    pub horizon: u64,
    /// Updates that the forecast is of.
    pub forecast_horizon: u64,
    /// Digest of the forecast.
    pub digest: String,
    /// Whether the run's first start recorded that digest: the forecast is then older than the run.
    pub before_the_first_step: bool,
    /// Evaluations at points of the forecast.
    pub points: Vec<Status>,
    /// The expected ones.
    pub expected: Vec<Band>,
    /// Where the gradient norm of the rungs was largest, in percent.
    pub grad_peak_of_rungs: Option<[f64; 2]>,
}

impl Watched {
    /// The run in `folder` against the forecast in `file`, or else the one that its recipe names.
    ///
    /// # Errors
    /// If it names none, or run or forecast cannot be read.
    pub fn read(folder: &Path, file: Option<&Path>) -> Result<Self, TrainError> {
        let run = PastRun::open(folder)?;
        let Some(file) = file.or(run.config.forecast.as_deref()) else {
            let rule = "a forecast: name the file with `--against`";
            return Err(TrainError::config(
                "forecast",
                format!("none of {}", run.config.name),
                rule,
            ));
        };
        let registration = Preregistration::read(file)?;
        let target = recipe::parse(&registration.recipe, &file.display().to_string(), &[])?;
        let curves = run.curves(&[names::LOSS, names::GRAD_NORM, &registration.metric])?;
        let [losses, grad_norms, evaluations] = &curves[..] else {
            unreachable!("one curve for each metric")
        };
        let horizon = run.config.schedule.horizon();
        let first = run.starts().next();
        let recorded = first.and_then(|event| event.detail.get(FORECAST_DIGEST)?.as_str());
        let points = evaluations.points.iter().filter_map(|(step, measured)| {
            status(&registration, *step, horizon, *measured, &grad_norms.points)
        });
        Ok(Self {
            run: run.config.name.clone(),
            completed: losses.points.last_key_value().map_or(0, |(step, _)| *step),
            horizon,
            forecast_horizon: target.schedule.horizon(),
            before_the_first_step: recorded == Some(&registration.digest),
            points: points.collect(),
            expected: registration.loss_band,
            grad_peak_of_rungs: registration.grad_peak,
            digest: registration.digest,
        })
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, completed, horizon, forecast_horizon, .. } = self;
        writeln!(f, "{run}, step {completed} of {horizon}")?;
        let since = match self.before_the_first_step {
            true => "which the run's first start has recorded",
            false => "which the run's first start has NOT recorded: it may be younger than the run",
        };
        writeln!(f, "forecast {}, {since}", self.digest)?;
        if horizon != forecast_horizon {
            writeln!(f, "compared at equal progress: the forecast is of {forecast_horizon} steps")?;
        }
        writeln!(f, "progress   lowest  expected   highest  measured     nats  compute")?;
        for Band { progress, low, mid, high } in &self.expected {
            write!(f, "{progress:>7}%  {low:>7.4}  {mid:>8.4}  {high:>8.4}")?;
            match self.points.iter().find(|status| status.band.progress == *progress) {
                Some(Status { measured, deviation, equivalent_compute, verdict, .. }) => writeln!(
                    f,
                    "  {measured:>8.4}  {deviation:>+7.4}  {equivalent_compute:>6.2}x  {}",
                    verdict.words()
                )?,
                None => writeln!(f)?,
            }
        }
        match (self.points.last().and_then(|status| status.grad_peak), self.grad_peak_of_rungs) {
            (Some(peak), Some(rungs)) => writeln!(f, "{}", say_peak(peak, rungs)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fulmar_eval::forecast::PowerLaw;

    use super::*;

    #[test]
    fn a_status_by_hand() {
        // L = 2 + 10 C^-0.1 is 3 at 1e10 FLOPs, and 3.1 at (1.1/10)^-10 = 3.855e9.
        let law = PowerLaw { asymptote: 2.0, amplitude: 10.0, exponent: 0.1 };
        let at = At { progress: 35, flops: 1e10, law, predicted: 3.0, extrapolated: Vec::new() };
        let band = Band { progress: 35, low: 2.9, mid: 3.0, high: 3.2 };
        let status = |measured| Status::new(&at, band, 70, measured, Some(12.0));
        let behind = status(3.1);
        assert_eq!(behind.verdict, Verdict::OnTrack);
        assert!((behind.deviation - 0.1).abs() < 1e-12, "{behind:?}");
        assert!((behind.over_forecast() - 0.5).abs() < 1e-12, "{behind:?}");
        let equal = (0.11f64).powi(-10) / 1e10;
        assert!((behind.equivalent_compute / equal - 1.0).abs() < 1e-9, "{behind:?}");
        let said = "forecast at 35%: on track, 3.1000 where 3.0000 was expected (2.9000 to 3.2000); \
                    +0.1000 nats, worth 0.39 of its compute";
        assert_eq!(behind.to_string(), said);
        assert_eq!(behind.metrics()["forecast/inside_band"], 1);
        assert_eq!(status(3.21).verdict, Verdict::Above);
        assert_eq!(status(3.21).metrics()["forecast/inside_band"], 0);
        assert_eq!(status(2.89).verdict, Verdict::Below);
        assert_eq!(status(f64::NAN).verdict, Verdict::Above);
        assert!(status(2.0).equivalent_compute.is_infinite());
        assert!(status(f64::NAN).equivalent_compute.is_nan());
    }

    #[test]
    fn the_peak_is_said_beside_those_of_the_ladder() {
        for (peak, word) in [(5.0, "earlier"), (10.0, "as on them"), (20.1, "later")] {
            assert!(say_peak(peak, [10.0, 20.0]).contains(word), "{peak}");
        }
    }
}
