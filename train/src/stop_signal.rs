//! SIGTERM and SIGINT: the run saves and ends well after the step at hand.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::TrainError;

/// Whether this process was asked to stop.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// Listens from now on; a second signal ends the process at once, as it would without us.
    ///
    /// # Errors
    /// [`TrainError::Io`] if the system refuses.
    pub fn listen() -> Result<Self, TrainError> {
        Self::register().map_err(TrainError::io("listen for", Path::new("SIGTERM and SIGINT")))
    }

    fn register() -> io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag down, and raises it after.
            flag::register_conditional_default(signal, stop.0.clone())?;
            flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    /// Asks to stop, as a signal does.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a signal came.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
