//! What a large run will reach, from small ones: a power law in compute at equal progress.
//!
//! At each twentieth of a run, `L = L0 + A C^-alpha` is fitted through the rungs of a ladder by least
//! squares in logarithms, with the asymptote `L0` chosen beforehand and `C` the FLOPs that each rung has
//! spent by then, without those of the output head. The law at the FLOPs of the large run is its
//! forecast. How far to trust it is shown by leaving one rung out at a time and by other asymptotes.
//!
//! ```
//! use fulmar_eval::forecast::{Forecast, Ladder};
//!
//! let ladder = Ladder::published()?;
//! let forecast = Forecast::new(&ladder, "d6144", 1.5)?;
//! assert_eq!(format!("{:.4}", forecast.end().predicted), "2.0388");
//! # Ok::<(), fulmar_eval::forecast::ForecastError>(())
//! ```

mod band;
mod error;
mod ladder;
mod power_law;
mod predict;
mod rung;

pub use band::{Band, loss_band};
pub use error::ForecastError;
pub use ladder::Ladder;
pub use power_law::PowerLaw;
pub use predict::{At, Forecast, LeftOut, MIN_RUNGS, SWEEP};
pub use rung::{LossAt, NUM_POINTS, Rung};
