//! What is read of runs, and the acceptance rule in numbers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// One number of each run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Its name in criteria and tables.
    pub name: String,
    /// A metric of the log.
    pub metric: String,
    /// Which of its values.
    #[serde(default)]
    pub take: Take,
    /// Share of the run's horizon, 0 to 1, beyond which values count.
    #[serde(default)]
    pub from: f64,
}

/// Which of the values of a metric is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// The last one.
    #[default]
    Last,
    /// Their mean.
    Mean,
    /// The smallest.
    Least,
    /// The largest.
    Most,
}

impl Take {
    /// The value; none of no values. What is not finite makes the value so.
    pub fn of(self, values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
        let count = values.clone().count();
        let extreme = |pick: fn(f64, f64) -> f64| {
            values
                .clone()
                .reduce(|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) })
        };
        match self {
            Self::Last => values.last(),
            Self::Mean => (count > 0).then(|| values.sum::<f64>() / count as f64),
            Self::Least => extreme(f64::min),
            Self::Most => extreme(f64::max),
        }
    }

    /// Its name in a protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Mean => "mean",
            Self::Least => "least",
            Self::Most => "most",
        }
    }
}

impl Measure {
    pub(super) fn validate(&self) -> Result<(), TrainError> {
        if self.metric.trim().is_empty() {
            return self.refuse("metric", "empty", "a metric of the log");
        }
        if !(0.0..1.0).contains(&self.from) {
            return self.refuse("from", self.from, "0 or more and below 1");
        }
        Ok(())
    }

    fn refuse(&self, field: &str, found: impl ToString, rule: &str) -> Result<(), TrainError> {
        let field = format!("{field} of the experiment's measure {:?}", self.name);
        Err(TrainError::config(field, found, rule))
    }
}

/// One condition on a measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// What it says.
    pub text: String,
    /// The measure.
    pub measure: String,
    /// Runs over which its mean is taken.
    pub of: Vec<String>,
    /// Runs with whose mean that is compared; with none it stands for itself.
    #[serde(default)]
    pub against: Vec<String>,
    /// How they are compared.
    #[serde(default)]
    pub by: By,
    /// The least that meets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The most that meets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

/// How two means are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The one less the other.
    #[default]
    Difference,
    /// The one divided by the other.
    Ratio,
}

impl Criterion {
    /// The value, of the measure in each run; none where one of them has none.
    pub fn value(&self, of_run: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let mean = |runs: &[String]| {
            let values: Option<Vec<f64>> = runs.iter().map(|run| of_run(run)).collect();
            Take::Mean.of(values?.into_iter())
        };
        let of = mean(&self.of)?;
        if self.against.is_empty() {
            return Some(of);
        }
        let against = mean(&self.against)?;
        Some(match self.by {
            By::Difference => of - against,
            By::Ratio => of / against,
        })
    }

    /// Whether `value` meets it; what is missing or no number does not.
    pub fn is_met(&self, value: Option<f64>) -> bool {
        value.is_some_and(|value| {
            !value.is_nan()
                && self.at_least.is_none_or(|least| value >= least)
                && self.at_most.is_none_or(|most| value <= most)
        })
    }

    pub(super) fn validate(
        &self,
        runs: &BTreeSet<&str>,
        measures: &BTreeSet<&str>,
    ) -> Result<(), TrainError> {
        let field = |field: &str| format!("{field} of the experiment's criterion {:?}", self.text);
        let refuse = |name: &str, found: String, rule: &str| {
            Err(TrainError::config(field(name), found, rule))
        };
        if !measures.contains(self.measure.as_str()) {
            return refuse("measure", format!("{:?}", self.measure), "the name of a measure");
        }
        let unknown = self.of.iter().chain(&self.against).find(|run| !runs.contains(run.as_str()));
        if let Some(run) = unknown {
            return refuse("of and against", format!("{run:?}"), "names of runs");
        }
        if self.of.is_empty() {
            return refuse("of", "empty".to_owned(), "a run or more");
        }
        let limits = [self.at_least, self.at_most];
        if limits == [None; 2] || limits.iter().flatten().any(|limit| !limit.is_finite()) {
            return refuse("at_least and at_most", format!("{limits:?}"), "one number or two");
        }
        Ok(())
    }
}
