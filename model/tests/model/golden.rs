//! Logits, losses, routing and every gradient of the golden model cases.

use burn::tensor::Tensor;
use fulmar_ep::Local;
use fulmar_ep::transport::Group;
use fulmar_model::moe::balance::Balancing as _;
use fulmar_model::moe::quantile::{MarginRange, QuantileBalancing};
use fulmar_model::moe::router::Router as _;
use fulmar_model::{ModelConfig, ModelInput, Transformer, weights};
use fulmar_tests::compare::{assert_close, assert_within};
use fulmar_tests::golden::{GoldenFile, cases};
use fulmar_tests::model::config_of;
use fulmar_tests::names::golden_name;

use crate::case;

/// Of the largest entry (README of the golden files).
const VALUES: f32 = 2e-5;
const GRADIENTS: f32 = 1e-4;
/// Absolute, about one bin of the histogram.
const BETA: f32 = 5e-3;

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.inner().into_data().iter::<f32>().collect()
}

/// The parameters that belong to a forward or gradient file.
fn with_params(file: &std::path::Path) -> (GoldenFile, GoldenFile) {
    let params = file.with_file_name("model_params.safetensors");
    (GoldenFile::read(file), GoldenFile::read(&params))
}

fn balancing(config: &ModelConfig) -> QuantileBalancing {
    QuantileBalancing { bins: config.quantile_bins, range: MarginRange::OnePass }
}

#[test]
fn golden_forward_values_and_losses_agree() {
    for path in cases("model_forward") {
        let (file, params) = with_params(&path);
        let config = config_of(&file);
        let model = case::model(&config, &params, "");
        let local = Local::new(config.num_experts);
        let input = case::input(&file);
        let output = model.forward(&input, &local, Some(&balancing(&config))).expect("forward");
        assert_close(
            "logits",
            &floats(model.logits(output.hidden.clone())),
            file.floats("logits"),
            VALUES,
        );
        let (targets, weight, scored) = case::targets(&file);
        let loss = model.loss(output.hidden.clone(), targets, weight, config.z_loss);
        let mean = |sum: Tensor<1>| floats(sum)[0] / scored;
        assert_close("loss", &[mean(loss.total)], file.floats("loss"), VALUES);
        if file.names().any(|name| name == "hidden") {
            assert_close("hidden", &floats(output.hidden), file.floats("hidden"), VALUES);
            assert_close("ce", &[mean(loss.cross_entropy_sum)], file.floats("ce"), VALUES);
            assert_close("z", &[mean(loss.z_sum)], file.floats("z"), VALUES);
            let betas = output.layers.into_iter().map(|layer| {
                let (_, margins) = layer.training.expect("statistics");
                balancing(&config).pending(&[], &margins, &Group::solo()).expect("a single rank")
            });
            for (layer, beta) in betas.enumerate() {
                let name = format!("layers.{layer}.qb_beta");
                assert_within(&name, &beta, file.floats(&name), BETA);
            }
            routing_agrees(&model, &input, &file);
        }
    }
}

/// Router logits, chosen experts and weights of each layer, from the input that reaches it.
fn routing_agrees(model: &Transformer, input: &ModelInput, file: &GoldenFile) {
    let local = Local::new(model.layers[0].moe.router.bias().expect("a bias").dims()[0]);
    let no_balancing: Option<&QuantileBalancing> = None;
    let trace = model.router_inputs(input, &local, no_balancing).expect("forward");
    for (layer, (block, u)) in model.layers.iter().zip(trace).enumerate() {
        let routing = block.moe.router.route(u);
        let name = |part: &str| format!("layers.{layer}.{part}");
        let logits = floats(routing.logits);
        assert_close(&name("router_logits"), &logits, file.floats(&name("router_logits")), VALUES);
        let selected: Vec<i32> = routing.selected.into_data().iter::<i32>().collect();
        assert_eq!(selected, file.integers(&name("selected")), "layer {layer}: chosen experts");
        let combine = floats(routing.combine_weights);
        assert_close(&name("combine"), &combine, file.floats(&name("combine")), VALUES);
    }
}

#[test]
fn golden_gradients_agree_for_every_parameter() {
    for path in cases("model_grads") {
        let (grads_file, params) = with_params(&path);
        let file = GoldenFile::read(&path.with_file_name("model_forward.safetensors"));
        let config = config_of(&file);
        let model = case::model(&config, &params, "");
        let local = Local::new(config.num_experts);
        let input = case::input(&file);
        let output = model.forward(&input, &local, Some(&balancing(&config))).expect("forward");
        let (targets, weight, scored) = case::targets(&file);
        let loss = model.loss(output.hidden, targets, weight, config.z_loss);
        let mut grads = loss.total.div_scalar(scored).backward();
        let mut compared = 0;
        for (path, found) in weights::gradients(&model, &mut grads) {
            let name = golden_name(&path);
            let found: Vec<f32> = found.iter::<f32>().collect();
            assert_close(&name, &found, grads_file.floats(&name), GRADIENTS);
            compared += 1;
        }
        // All but the router biases, which have none.
        assert_eq!(compared, grads_file.names().count() - config.num_layers);
    }
}
