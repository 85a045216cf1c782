//! Whether a device computes what the recipe means, asked before a run trusts it.
//!
//! Every operation's kernel on the device is compared with its reference on the CPU at awkward
//! shapes, and both are timed on the device. Each operation is examined in a process of its own: a
//! kernel that does not compile takes its process down, and is named instead of ending the report.

mod child;
mod examine;
mod table;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use examine::{examine, operations};

use crate::device::{self, DeviceChoice, OpenDevice};
use crate::error::TrainError;

/// What was found on a device.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// The device a run would open by this choice.
    pub device: String,
    /// The kernels that a run there uses.
    pub kernels: String,
    /// One entry an operation.
    pub operations: Vec<Examined>,
}

/// What became of the examination of one operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examined {
    /// The operation.
    pub op: String,
    /// What was found, or why nothing was.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The end of an examination.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its kernels ran.
    Ran(Findings),
    /// Its process ended without findings.
    Died {
        /// What the process said last.
        cause: String,
    },
}

/// The findings of one operation on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Shapes that were tried.
    pub shapes: usize,
    /// The output that is furthest from what is expected, against what is allowed.
    pub worst: Worst,
    /// Every shape with an output beyond what is allowed.
    pub failures: Vec<Worst>,
    /// Milliseconds of the kernels, forward and backward, summed over shapes.
    pub kernel_ms: f64,
    /// Milliseconds of the references on the same device.
    pub reference_ms: f64,
}

/// An output that is some way from what is expected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// The shape.
    pub shape: String,
    /// The output.
    pub output: String,
    /// Largest deviation over largest expected value; none where there is no bound to it.
    pub relative: Option<f64>,
    /// The largest deviation allowed.
    pub allowed: f64,
}

impl Outcome {
    /// Whether the operation can be trusted.
    pub fn is_healthy(&self) -> bool {
        matches!(self, Self::Ran(findings) if findings.failures.is_empty())
    }
}

impl Diagnosis {
    /// Examines every operation on a device, each in a process that `program`, the `train` binary,
    /// runs; `examined` hears of each as it ends.
    ///
    /// # Errors
    /// If the device cannot be opened or `program` not be run.
    pub fn new(
        program: &Path,
        choice: DeviceChoice,
        mut heading: impl FnMut(&Self),
        mut examined: impl FnMut(&Examined),
    ) -> Result<Self, TrainError> {
        let open = device::open(choice)?;
        let (device, kernels) = (described(&open), open.kernels());
        let mut diagnosis = Self { device, kernels, operations: Vec::new() };
        heading(&diagnosis);
        for op in operations() {
            let outcome = child::examine(&mut child::command(program, choice, op))?;
            let of_op = Examined { op: op.to_owned(), outcome };
            examined(&of_op);
            diagnosis.operations.push(of_op);
        }
        Ok(diagnosis)
    }

    /// The operations that cannot be trusted.
    pub fn unhealthy(&self) -> Vec<&str> {
        let sick = self.operations.iter().filter(|of_op| !of_op.outcome.is_healthy());
        sick.map(|of_op| of_op.op.as_str()).collect()
    }

    /// The diagnosis as JSON.
    ///
    /// # Panics
    /// Never: it holds plain values only.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values")
    }
}

fn described(open: &OpenDevice) -> String {
    let software = !open.accelerator && !open.is_cpu();
    let note = if software { ", a software adapter, which `auto` passes over" } else { "" };
    format!("{}{note}", open.name)
}
