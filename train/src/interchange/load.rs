//! A model from weights that come one at a time.

use std::ops::Range;

use burn::tensor::{Device, TensorData};
use fulmar_model::{ModelConfig, Role, Transformer, weights};

use super::{Exchanged, Names};
use crate::error::TrainError;

/// Every weight of a model, wherever they lie.
pub trait Weights: Sync {
    /// The model's shape.
    fn model(&self) -> &ModelConfig;

    /// Reads a parameter whole, every expert of it, in our layout and f32.
    ///
    /// # Errors
    /// If it is missing, of another shape or type, or cannot be read.
    fn read(&self, parameter: &Exchanged) -> Result<TensorData, TrainError>;
}

/// The model with these weights and the routed experts with the global ids `experts`.
///
/// # Errors
/// If the model breaks a rule or a weight cannot be read.
pub fn load(
    source: &dyn Weights,
    experts: Range<usize>,
    device: &Device,
) -> Result<Transformer, TrainError> {
    let model = Transformer::of_shard(source.model(), 0, experts.clone(), device)?;
    filled(model, source, experts)
}

/// A model that holds `experts`, with these weights in the place of its own; a tensor at a time.
///
/// # Errors
/// As [`load`].
pub(super) fn filled(
    model: Transformer,
    source: &dyn Weights,
    experts: Range<usize>,
) -> Result<Transformer, TrainError> {
    let names = Names::of(source.model());
    let mut problem = None;
    let model = weights::import(model, |path| {
        let parameter = names.at_path(path)?;
        match source.read(parameter) {
            Ok(data) if parameter.role == Role::ExpertStack => Some(part(data, &experts)),
            Ok(data) => Some(data),
            Err(error) => {
                problem.get_or_insert(error);
                None
            }
        }
    });
    match problem {
        Some(problem) => Err(problem),
        None => Ok(model?),
    }
}

/// Some experts of a stack.
fn part(stack: TensorData, experts: &Range<usize>) -> TensorData {
    let mut shape = stack.shape().to_vec();
    if shape[0] == experts.len() {
        return stack;
    }
    let (bytes, dtype) = (stack.as_bytes(), stack.dtype());
    let of_expert = bytes.len() / shape[0];
    shape[0] = experts.len();
    let bytes = bytes[experts.start * of_expert..experts.end * of_expert].to_vec();
    TensorData::from_bytes_vec(bytes, shape, dtype)
}
