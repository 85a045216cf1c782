//! Held-out text, suites and the weights of checkpoints or exports, outside of a run.

mod as_trained;
mod evaluation;
mod names;
mod options;
mod record;
mod texts;
mod weights;

pub use evaluation::{Evaluation, Exchange, Figures, SuiteFigures};
pub use names::{AS_TRAINED, DROPLESS, metrics, place};
pub use options::EvaluateOptions;
pub use record::{EVALUATIONS_FILE, record};
pub use weights::evaluate;

pub(crate) use as_trained::score_as_trained;
