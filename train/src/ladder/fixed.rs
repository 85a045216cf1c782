//! The forecast of a ladder's target, fixed before its first step.

use std::path::{Path, PathBuf};

use super::status::RungStatus;
use super::{Ladder, Rung, Standing};
use crate::error::TrainError;
use crate::forecast::{DEFAULT_METRIC, Preregistration, RungRun, read_rung};
use crate::past_run::PastRun;

impl Ladder {
    /// The file of the target's forecast, beside the runs.
    pub fn forecast_file(&self) -> PathBuf {
        self.out.join(format!("{}.forecast.json", self.target))
    }

    /// What the target's run is watched against: the forecast from the rungs below it, which is made
    /// and written where there is none yet; of a run that was begun, what it was begun with. None of
    /// any other rung.
    ///
    /// # Errors
    /// If a rung below is not done, or its log is not whole; if the file cannot be written.
    pub fn fix_forecast(
        &self,
        rung: &Rung,
        status: &RungStatus,
    ) -> Result<Option<PathBuf>, TrainError> {
        if rung.name() != self.target {
            return Ok(None);
        }
        if status.standing != Standing::NotBegun {
            return Ok(PastRun::open(&rung.folder)?.config.forecast);
        }
        let file = self.forecast_file();
        if !file.exists() {
            self.forecast(rung, &file)?;
        }
        Ok(Some(file))
    }

    fn forecast(&self, target: &Rung, file: &Path) -> Result<(), TrainError> {
        let mut rungs: Vec<RungRun> = Vec::new();
        for rung in self.below_target() {
            let status = RungStatus::of(rung)?;
            if status.standing != Standing::Done {
                let found =
                    format!("`{}` at update {} of {}", rung.name(), status.step, status.steps);
                let rule = format!("done before `{}`, which is forecast from it", target.name());
                return Err(TrainError::config("rungs", found, rule));
            }
            rungs.push(read_rung(&rung.folder, DEFAULT_METRIC)?);
        }
        let made = Preregistration::new(&rungs, &target.config, DEFAULT_METRIC, self.asymptote)?;
        std::fs::create_dir_all(&self.out).map_err(TrainError::io("create", &self.out))?;
        let digest = made.write(file)?;
        let end = made.loss_band.last().expect("a band of twenty points");
        println!(
            "{} is forecast to end at {:.4}, {:.4} to {:.4}; fixed in {}, digest {digest}",
            target.name(),
            end.mid,
            end.low,
            end.high,
            file.display(),
        );
        Ok(())
    }
}
