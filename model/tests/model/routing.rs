//! Routings whose margins a test chooses.

use burn::tensor::{Device, Tensor, TensorData};
use fulmar_model::moe::router::Routing;

/// Margins [t, e] as the scores of tokens whose next best score is 0; `k` experts per token.
pub(crate) fn routing_of(margins: &[f32], e: usize, k: usize) -> Routing {
    let (device, t) = (Device::flex(), margins.len() / e);
    Routing {
        logits: Tensor::from_data(TensorData::new(margins.to_vec(), [t, e]), &device),
        selected: Tensor::zeros([t, k], &device),
        combine_weights: Tensor::ones([t, k], &device),
        alpha: Tensor::zeros([t], &device),
    }
}
