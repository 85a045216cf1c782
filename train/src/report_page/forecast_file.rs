//! A preregistered forecast, as the page draws it.

use std::path::Path;

use serde::Deserialize;

use crate::error::TrainError;

/// What a figure may be at some progress.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Band {
    /// Percent of the run.
    pub(super) progress: f64,
    pub(super) low: f64,
    pub(super) mid: f64,
    pub(super) high: f64,
}

/// What training of the rungs was like, by progress.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Trajectories {
    #[serde(default)]
    pub(super) grad_norm: Vec<Band>,
}

/// A rung by its name.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Rung {
    pub(super) name: String,
}

/// What the page reads of a file; the file has more.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ForecastFile {
    /// Name of the run that is forecast.
    pub(super) target: String,
    /// The metric that is forecast.
    pub(super) metric: String,
    /// Loss that no compute gets below, in nats.
    pub(super) asymptote: f64,
    pub(super) made_unix_secs: u64,
    pub(super) rungs: Vec<Rung>,
    pub(super) loss_band: Vec<Band>,
    #[serde(default)]
    pub(super) trajectories: Trajectories,
    /// BLAKE3 of the file's text with this field empty, hexadecimal.
    pub(super) digest: String,
}

impl ForecastFile {
    /// The forecast in a file, which must be as it was sealed.
    ///
    /// # Errors
    /// If it cannot be read, is no forecast, or was altered.
    pub(super) fn read(path: &Path) -> Result<Self, TrainError> {
        let text = std::fs::read_to_string(path).map_err(TrainError::io("read", path))?;
        let refuse = |field: &str, problem: String| {
            let origin = path.display().to_string();
            TrainError::Recipe { origin, field: field.to_owned(), problem }
        };
        let own: Self = serde_json::from_str(&text).map_err(|error| {
            refuse("(whole file)", format!("no preregistered forecast: {error}"))
        })?;
        let (seal, unsealed) = (format!("\"{}\"", own.digest), "\"\"");
        let text = match text.rfind(&seal) {
            Some(at) => format!("{}{unsealed}{}", &text[..at], &text[at + seal.len()..]),
            None => text,
        };
        let found = blake3::hash(text.as_bytes()).to_hex().to_string();
        if found != own.digest {
            let problem = format!("altered: the text has digest {found}, needed {}", own.digest);
            return Err(refuse("digest", problem));
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_that_was_altered_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("forecast.json");
        let unsealed = "{\"target\": \"d128\", \"metric\": \"eval/heldout/macro_loss\", \
            \"asymptote\": 2.0, \"made_unix_secs\": 7, \"rungs\": [{\"name\": \"d48\", \"flops\": 1e15}], \
            \"loss_band\": [{\"progress\": 5, \"low\": 5.0, \"mid\": 5.5, \"high\": 6.0}], \
            \"digest\": \"\"}\n";
        let digest = blake3::hash(unsealed.as_bytes()).to_hex().to_string();
        let sealed = unsealed.replace("\"digest\": \"\"", &format!("\"digest\": \"{digest}\""));
        std::fs::write(&path, &sealed).expect("written");
        assert_eq!(ForecastFile::read(&path).expect("sealed").loss_band[0].mid, 5.5);
        std::fs::write(&path, sealed.replace("5.5", "5.6")).expect("written");
        let error = ForecastFile::read(&path).expect_err("altered").to_string();
        assert!(error.contains("altered") && error.contains(&digest), "{error}");
    }
}
