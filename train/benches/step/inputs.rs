//! Inputs of a shape, the same in every run.

use burn::tensor::{Device, Tensor};
use fulmar_data::Batch;
use fulmar_model::Initializer;
use fulmar_model::config::ModelConfig;

/// Rows of random tokens.
pub(crate) fn batch(model: &ModelConfig, rows: usize) -> Batch {
    let (s, v) = (model.max_seq_len, model.vocab_size as u64);
    let len = rows * s;
    let token = |i: usize| (i as u64 * 2_654_435_761 % v) as i32;
    Batch {
        num_rows: rows,
        seq_len: s,
        first_row: 0,
        tokens: (0..len).map(token).collect(),
        targets: (0..len).map(|i| token(i + 1)).collect(),
        loss_weight: (0..len).map(|i| if (i + 1) % s == 0 { 0.0 } else { 1.0 }).collect(),
        segment_ids: vec![0; len],
        token_valid: vec![true; len],
        cells: vec![0; rows],
    }
}

/// A leaf of random values.
pub(crate) fn leaf<const D: usize>(name: &str, shape: [usize; D]) -> Tensor<D> {
    let device = Device::flex();
    let init = Initializer::new(1, 0.07, &device);
    let flat = init.matrix(name, [1, shape.iter().product()]).val().inner();
    Tensor::from_inner(flat.reshape(shape)).require_grad()
}
