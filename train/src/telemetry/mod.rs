//! What a run says about itself: metrics as JSON lines, progress on the console.

pub mod console;
pub mod jsonl;
pub mod memory;
pub mod names;
mod record;

pub use console::Console;
pub use jsonl::MetricLog;
pub use record::Record;

/// Metrics of one step, in the order they are written.
pub type Metrics = serde_json::Map<String, serde_json::Value>;
