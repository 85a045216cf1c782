//! What the runs of an experiment logged.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::conclusion::{Evidence, RunEvidence};
use super::link::{SEAL_DIGEST, as_planned};
use super::measure::Measure;
use super::seal::Seal;
use crate::error::TrainError;
use crate::history::HISTORY_FILE;
use crate::past_run::PastRun;
use crate::telemetry::jsonl::LOG_FILE;
use crate::telemetry::names;
use crate::telemetry::stitch::Curve;

/// A run that was made for an experiment.
pub(super) struct MadeRun {
    pub(super) evidence: RunEvidence,
    curves: Vec<Curve>,
}

impl MadeRun {
    /// The run `name` in `folder`, with the curves of `measures`; none if it was never started.
    ///
    /// # Errors
    /// If it was not made for this experiment from its first start on, is not as planned, began with
    /// another state, or its log lacks steps.
    pub(super) fn read(
        name: &str,
        folder: PathBuf,
        experiment: &Path,
        seal: &Seal,
        measures: &[Measure],
    ) -> Result<Option<Self>, TrainError> {
        if !folder.join(HISTORY_FILE).exists() {
            return Ok(None);
        }
        let run = PastRun::open(&folder)?;
        let Some(first) = run.starts().next() else { return Ok(None) };
        let refuse = |problem: String| Err(TrainError::experiment(&folder, problem));
        for start in run.starts() {
            let found = start.detail.get(SEAL_DIGEST).and_then(Value::as_str);
            if found != Some(&seal.digest) {
                let found = found.unwrap_or("of no experiment");
                let (attempt, needed) = (start.attempt, &seal.digest);
                return refuse(format!(
                    "attempt {attempt} began under the seal {found}, not {needed}"
                ));
            }
        }
        if first.step != 0 {
            return refuse(format!("it began at step {}, not with first weights", first.step));
        }
        if run.config.name != name {
            return refuse(format!("it is the run {}, not {name}", run.config.name));
        }
        as_planned(&run.config, experiment)?;
        let metrics: Vec<&str> = std::iter::once(names::LOSS)
            .chain(measures.iter().map(|measure| measure.metric.as_str()))
            .collect();
        let mut curves = run.curves(&metrics)?;
        let loss = curves.remove(0);
        if loss.gaps > 0 {
            return refuse(format!("{} steps are missing in its log", loss.gaps));
        }
        let evidence = RunEvidence {
            name: name.to_owned(),
            folder: folder.display().to_string(),
            started_unix_secs: first.unix_secs,
            attempts: run.starts().count() as u64,
            steps: loss.points.last_key_value().map_or(0, |(step, _)| *step),
            horizon: run.config.schedule.horizon(),
            skipped: loss.skipped,
            log: Evidence::of(&folder.join(LOG_FILE))?,
            history: Evidence::of(&folder.join(HISTORY_FILE))?,
        };
        Ok(Some(Self { evidence, curves }))
    }

    /// The value of the `index`th measure; none of a run that did not come to its end, or of a metric
    /// that it did not log.
    pub(super) fn value(&self, index: usize, measure: &Measure) -> Option<f64> {
        let from = measure.from * self.evidence.horizon as f64;
        let points = self.curves[index].points.iter();
        let values = points.filter(|(step, _)| **step as f64 > from).map(|(_, value)| *value);
        measure.take.of(values).filter(|_| self.evidence.is_finished())
    }
}
