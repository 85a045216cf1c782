//! The file that fixes a forecast before the run.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fulmar_eval::forecast::{Band, Forecast, loss_band};
use serde::{Deserialize, Serialize};

use super::runs::flops;
use super::trajectory::grad_peaks;
use super::{RungRun, RungsError, Trajectories, ladder_of, trajectories};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::past_run::PastRun;
use crate::recipe;

/// The FLOPs that forecasts count: three times the forward pass of SPEC section 7, without the head.
const FLOPS_RULE: &str = "without_head";

/// What a rung was when the forecast was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RungRecord {
    /// Its name.
    pub name: String,
    /// FLOPs of the whole run.
    pub flops: f64,
    /// Updates of the whole run.
    pub steps: u64,
    /// Losses at 5%, 10%, ... as far as it had come.
    pub losses: Vec<f64>,
    /// blake3 of its log.
    pub log_digest: String,
}

/// A forecast with everything that it was made of.
///
/// As a file it is JSON, sealed by the digest in its last field: blake3 of the whole text with that
/// field empty. Whoever reads it checks that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preregistration {
    /// Name of the run that is forecast.
    pub target: String,
    /// Digest of its recipe, every default written out.
    pub target_recipe: String,
    /// That recipe, as TOML.
    pub recipe: String,
    /// FLOPs of that run.
    pub target_flops: f64,
    /// What the losses are.
    pub metric: String,
    /// Which FLOPs are counted.
    pub flops_rule: String,
    /// Loss that no compute gets below, chosen before the fit, in nats.
    pub asymptote: f64,
    /// When it was made, in seconds since 1970 by this machine's clock; for people.
    pub made_unix_secs: u64,
    /// The runs that it is made of.
    pub rungs: Vec<RungRecord>,
    /// Digest of what the rungs were trained on, tokenizer included, if all of them recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Digest of what they were evaluated on, if all of them recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heldout: Option<String>,
    /// The forecast.
    pub forecast: Forecast,
    /// What the run's loss may be at each 5%: see [`loss_band`].
    pub loss_band: Vec<Band>,
    /// What the rungs' training was like.
    pub trajectories: Trajectories,
    /// Where the gradient norm of rungs was largest, from and to, in percent of the run; none without a
    /// rung that came to its end.
    pub grad_peak: Option<[f64; 2]>,
    /// The seal; empty before it is written.
    pub digest: String,
}

/// A digest that all rungs have; they are alike where they have one.
fn of_all(rungs: &[RungRun], digest: fn(&PastRun) -> Option<&str>) -> Option<String> {
    let all: Option<Vec<&str>> = rungs.iter().map(|rung| digest(&rung.run)).collect();
    all?.first().map(|digest| (*digest).to_owned())
}

impl Preregistration {
    /// The forecast of the run of `target` from some rungs, for a law above `asymptote`.
    ///
    /// # Errors
    /// If the rungs are no ladder for that run, or nothing can be forecast from them.
    pub fn new(
        rungs: &[RungRun],
        target: &RunConfig,
        metric: &str,
        asymptote: f64,
    ) -> Result<Self, TrainError> {
        let ladder = ladder_of(rungs, target, metric)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let record = |rung: &RungRun| RungRecord {
            name: rung.name().to_owned(),
            flops: rung.flops(),
            steps: rung.steps(),
            losses: rung.losses.clone(),
            log_digest: rung.log_digest.clone(),
        };
        Ok(Self {
            target: target.name.clone(),
            target_recipe: target.digest(),
            recipe: recipe::to_toml(target),
            target_flops: flops(target),
            metric: metric.to_owned(),
            flops_rule: FLOPS_RULE.to_owned(),
            asymptote,
            made_unix_secs: since.map_or(0, |since| since.as_secs()),
            rungs: rungs.iter().map(record).collect(),
            data: of_all(rungs, PastRun::data_digest),
            heldout: of_all(rungs, PastRun::heldout_digest),
            forecast: Forecast::new(&ladder, &target.name, asymptote)?,
            loss_band: loss_band(&ladder, &target.name, asymptote)?,
            trajectories: trajectories(rungs),
            grad_peak: grad_peaks(rungs),
            digest: String::new(),
        })
    }

    /// Writes it to a file that is not there yet, with its seal, which is returned.
    ///
    /// # Errors
    /// If there is such a file, or it cannot be written.
    pub fn write(&self, path: &Path) -> Result<String, TrainError> {
        let unsealed = Self { digest: String::new(), ..self.clone() };
        let text = serde_json::to_string_pretty(&unsealed).expect("plain values") + "\n";
        let digest = blake3::hash(text.as_bytes()).to_hex().to_string();
        let end = text.rfind("\"\"").expect("the empty digest is the last value");
        let sealed = format!("{}\"{digest}\"{}", &text[..end], &text[end + 2..]);
        let mut file =
            std::fs::File::create_new(path).map_err(TrainError::io("make the new file", path))?;
        let written = file.write_all(sealed.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(TrainError::io("write", path))?;
        Ok(digest)
    }

    /// The forecast in a file, which must be as it was sealed.
    ///
    /// # Errors
    /// If it cannot be read, is no forecast, or was altered.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let text = std::fs::read_to_string(path).map_err(TrainError::io("read", path))?;
        let refuse = |problem: String| RungsError::Preregistration { path: path.into(), problem };
        let own: Self = serde_json::from_str(&text)
            .map_err(|error| refuse(format!("no preregistered forecast: {error}")))?;
        let seal = format!("\"{}\"", own.digest);
        let unsealed = match text.rfind(&seal) {
            Some(at) => format!("{}\"\"{}", &text[..at], &text[at + seal.len()..]),
            None => text,
        };
        let found = blake3::hash(unsealed.as_bytes()).to_hex().to_string();
        if found != own.digest {
            let needed = &own.digest;
            let problem =
                format!("altered: its digest is {found}, needed {needed}, with which it was made");
            return Err(refuse(problem).into());
        }
        Ok(own)
    }
}

impl fmt::Display for Preregistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, from {} runs", self.metric, self.rungs.len())?;
        for RungRecord { name, flops, steps, losses, .. } in &self.rungs {
            let last = losses.last().map_or(String::new(), |loss| format!("{loss:.4} at the last"));
            let points = losses.len();
            writeln!(f, "  {name}: {flops:.5e} FLOPs, {steps} steps, {points} points, {last}")?;
        }
        write!(f, "{}", self.forecast)?;
        writeln!(f, "what to expect by progress; training as the rungs had it")?;
        writeln!(
            f,
            "progress   lowest  forecast   highest    training loss    gradient norm        drops"
        )?;
        for (point, band) in self.loss_band.iter().enumerate() {
            let Band { progress, low, mid, high } = band;
            let range = |bands: &[Band], scale: f64, digits: usize| {
                bands.get(point).map_or("-".to_owned(), |band| {
                    let [low, high] = [band.low, band.high].map(|value| scale * value);
                    format!("{low:.digits$} to {high:.digits$}")
                })
            };
            let Trajectories { train_loss, grad_norm, drop_fraction } = &self.trajectories;
            writeln!(
                f,
                "{progress:>7}%  {low:>7.4}  {mid:>8.4}  {high:>8.4}  {:>15}  {:>15}  {:>10}%",
                range(train_loss, 1.0, 3),
                range(grad_norm, 1.0, 3),
                range(drop_fraction, 100.0, 1),
            )?;
        }
        match self.grad_peak {
            Some([low, high]) => {
                writeln!(f, "gradient norm largest at {low:.1}% to {high:.1}% of a rung's run")
            }
            None => writeln!(f, "gradient norm: no rung has come to its end"),
        }
    }
}
