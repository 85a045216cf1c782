//! Exit statuses of the `train` binary.
//!
//! | status | meaning | what helps |
//! |---|---|---|
//! | 0 | done, or stopped by SIGTERM or SIGINT after a save | |
//! | 1 | anything else: a panic of a rank, a file that is no checkpoint and no data | the message |
//! | 2 | usage: flags, recipe, a broken rule of it | correct the recipe |
//! | 3 | data: corpus, tokenizer, store, mixture, suite, runs of a ladder, experiment | correct the data |
//! | 4 | steps that are not finite: more than `guard` allows, or a batch again | see the batch named |
//! | 5 | a peer lost: dead, silent beyond the deadline, in another collective; no progress | start again |
//! | 6 | a checkpoint or exported weights that cannot be written, read or used | the file named |
//! | 7 | a device that is missing or does not compute what it should | `train doctor` |
//!
//! Of several ranks, the status is that of the rank that failed first; the others only lost it.

use fulmar_ep::EpError;
use fulmar_eval::{EvalError, SuiteError};
use fulmar_model::ModelError;

use crate::error::TrainError;

/// Anything without a status of its own.
pub const OTHER: u8 = 1;
/// Flags or recipe; also what the parser of flags exits with.
pub const USAGE: u8 = 2;
/// Corpus, tokenizer, store or mixture.
pub const DATA: u8 = 3;
/// Loss or gradient that is not finite.
pub const NOT_FINITE: u8 = 4;
/// A peer that is dead or silent.
pub const PEER_LOST: u8 = 5;
/// A checkpoint.
pub const CHECKPOINT: u8 = 6;
/// A device.
pub const DEVICE: u8 = 7;

/// The exit status of a process that `error` ended.
pub fn status_of(error: &TrainError) -> u8 {
    match error {
        TrainError::Rank { source, .. } => status_of(source),
        TrainError::Suite(SuiteError::Field { .. })
        | TrainError::Recipe { .. }
        | TrainError::Config { .. }
        | TrainError::Dispatch { .. }
        | TrainError::UnknownOperation { .. } => USAGE,
        TrainError::Data(_)
        | TrainError::Suite(_)
        | TrainError::Forecast(_)
        | TrainError::Rungs(_)
        | TrainError::Experiment { .. } => DATA,
        TrainError::NotFinite { .. } | TrainError::NotFiniteAgain { .. } => NOT_FINITE,
        TrainError::Transport(_)
        | TrainError::Ep(EpError::Transport(_))
        | TrainError::Eval(EvalError::Transport(_)) => PEER_LOST,
        TrainError::Model(error) | TrainError::Eval(EvalError::Model(error))
            if lost_a_peer(error) =>
        {
            PEER_LOST
        }
        TrainError::Checkpoint { .. }
        | TrainError::Interchange { .. }
        | TrainError::Storage { .. }
        | TrainError::Unproved { .. }
        | TrainError::NotSaved { .. }
        | TrainError::Damaged { .. }
        | TrainError::NoneWhole { .. }
        | TrainError::MissingState { .. }
        | TrainError::StateType { .. } => CHECKPOINT,
        TrainError::Device { .. } | TrainError::Unhealthy { .. } => DEVICE,
        _ => OTHER,
    }
}

/// Whether an exchange failed within a forward pass.
fn lost_a_peer(error: &ModelError) -> bool {
    let (ModelError::Demand(source) | ModelError::Dispatch { source, .. }) = error else {
        return false;
    };
    matches!(source, EpError::Transport(_))
}
