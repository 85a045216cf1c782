//! A forecast from the runs of a ladder, fixed before the run that it is of, and that run watched
//! against it.
//!
//! [`read_rung`] takes from a run's folder what a forecast needs, and refuses a log that is not whole;
//! [`ladder_of`] makes a table of several, if they differ only in what a ladder varies
//! ([`require_alike`]); [`Preregistration`] is the file that fixes the forecast, with a digest; [`Watch`] is a
//! live run beside it, [`Watched`] one as its folder tells it.

mod compare;
mod error;
mod preregistration;
mod runs;
mod trajectory;
mod watch;

pub use compare::{Difference, Side, differences, require_alike};
pub use error::RungsError;
pub use preregistration::{Preregistration, RungRecord};
pub(crate) use runs::flops;
pub use runs::{DEFAULT_METRIC, RungRun, ladder_of, point_step, read_rung};
pub use trajectory::{Trajectories, grad_peak, trajectories};
pub use watch::{FORECAST_DIGEST, Status, Verdict, Watch, Watched};
