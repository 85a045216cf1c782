//! `train doctor`.

use clap::Args;

use crate::device::{self, DeviceChoice};
use crate::doctor::{self, Diagnosis};
use crate::error::TrainError;

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// auto, cpu, wgpu or cuda.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub device: DeviceChoice,
    /// Examine one operation in this very process and print the findings as JSON.
    #[arg(long, value_name = "NAME", requires = "json")]
    pub op: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl DoctorArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        if let Some(op) = &self.op {
            return self.examine(op);
        }
        let doing = |source| TrainError::Io { doing: "find", path: "train".into(), source };
        let program = std::env::current_exe().map_err(doing)?;
        let (text, json) = (!self.json, self.json);
        let heading = |diagnosis: &Diagnosis| {
            if text {
                println!("{}", diagnosis.heading());
            }
        };
        let examined = |of_op: &doctor::Examined| {
            if text {
                println!("{of_op}");
            }
        };
        let diagnosis = Diagnosis::new(&program, self.device, heading, examined)?;
        if json {
            println!("{}", diagnosis.to_json());
        } else {
            println!("{}", diagnosis.verdict());
        }
        let operations: Vec<String> =
            diagnosis.unhealthy().into_iter().map(str::to_owned).collect();
        if operations.is_empty() {
            return Ok(());
        }
        Err(TrainError::Unhealthy { device: diagnosis.device, operations })
    }

    /// Examines one operation in this very process.
    fn examine(&self, op: &str) -> Result<(), TrainError> {
        let open = device::open(self.device)?;
        let Some(findings) = doctor::examine(op, &open.device) else {
            let (found, known) = (op.to_owned(), doctor::operations());
            return Err(TrainError::UnknownOperation { found, known });
        };
        println!("{}", serde_json::to_string(&findings).expect("plain values"));
        Ok(())
    }
}
