//! What a run says about itself: metrics as JSON lines, which are the truth, the same for
//! TensorBoard, and progress on the console.

mod config;
pub mod console;
pub mod jsonl;
pub mod loads;
pub mod memory;
pub mod names;
mod outbox;
mod record;
mod step_line;
pub mod stitch;
mod tensorboard;
pub(crate) mod throughput;

pub use config::LogConfig;
pub use console::Console;
pub use jsonl::MetricLog;
pub use record::Record;
pub use step_line::StepLine;
pub use tensorboard::TensorBoard;
pub use throughput::{Peak, PeakSource};

/// Metrics of one step, in the order they are written.
pub type Metrics = serde_json::Map<String, serde_json::Value>;
