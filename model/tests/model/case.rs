//! A golden model case as our configuration, weights and input.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_model::{ModelConfig, ModelInput, Transformer, weights};
use fulmar_tests::golden::GoldenFile;

/// The model with the weights of `file`, whose names begin with `prefix`.
pub(crate) fn model(config: &ModelConfig, file: &GoldenFile, prefix: &str) -> Transformer {
    let device = Device::flex().autodiff();
    let model = Transformer::new(config, 0, &device).expect("valid");
    let source = |path: &str| {
        let name = format!("{prefix}{}", fulmar_tests::names::golden_name(path));
        let values = file.floats(&name).to_vec();
        Some(TensorData::new(values, file.shape(&name)))
    };
    weights::import(model, source).expect("every weight")
}

/// The rows of a case; one document a row where it names no segments.
pub(crate) fn input(file: &GoldenFile) -> ModelInput {
    let shape: [usize; 2] = file.shape("ids").try_into().expect("[b, s]");
    let len = shape[0] * shape[1];
    let segments = if file.names().any(|name| name == "segments") {
        file.integers("segments").to_vec()
    } else {
        vec![0; len]
    };
    ModelInput::new(
        file.integers("ids").to_vec(),
        segments,
        vec![true; len],
        shape,
        &Device::flex(),
    )
}

/// Next-token targets and weights of a case.
pub(crate) fn targets(file: &GoldenFile) -> (Tensor<1, Int>, Tensor<1>, f32) {
    let s = file.shape("ids")[1];
    let ids = file.integers("ids");
    let next = |i: usize| if (i + 1).is_multiple_of(s) { 0 } else { ids[i + 1] };
    let targets: Vec<i32> = (0..ids.len()).map(next).collect();
    let weight = file.floats("weight").to_vec();
    let (len, scored) = (weight.len(), weight.iter().sum());
    let device = Device::flex();
    let targets = Tensor::from_data(TensorData::new(targets, [len]), &device);
    (targets, Tensor::from_data(TensorData::new(weight, [len]), &device), scored)
}
