//! The optional loss that balances the experts of each row.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_ep::Local;
use fulmar_kernels::sequence_balance::reference;
use fulmar_model::moe::quantile::{MarginRange, QuantileBalancing};
use fulmar_model::moe::router::Router as _;
use fulmar_model::transformer::ForwardOutput;
use fulmar_model::{ModelConfig, ModelInput, Preset, Transformer, weights};
use fulmar_tests::compare::{assert_close, assert_same_bits};

const ROWS: usize = 3;
const SEQ_LEN: usize = 24;

fn small(sequence_balance_loss: f64) -> ModelConfig {
    ModelConfig {
        vocab_size: 64,
        num_layers: 2,
        num_experts: 12,
        num_experts_per_token: 3,
        max_seq_len: SEQ_LEN,
        sliding_window: 8,
        sequence_balance_loss,
        ..Preset::MiniD96.config()
    }
}

fn model(config: &ModelConfig) -> Transformer {
    Transformer::new(config, 3, &Device::flex().autodiff()).expect("valid")
}

/// Which tokens are real: all, the first ten, none.
fn valid() -> Vec<bool> {
    (0..ROWS * SEQ_LEN).map(|t| t < SEQ_LEN + 10).collect()
}

fn input() -> ModelInput {
    let tokens = (0..(ROWS * SEQ_LEN) as i32).map(|i| (i * 7 + 3) % 64).collect();
    let segments = vec![0; ROWS * SEQ_LEN];
    ModelInput::new(tokens, segments, valid(), [ROWS, SEQ_LEN], &Device::flex())
}

fn forward(
    model: &Transformer,
    training: bool,
) -> ForwardOutput<fulmar_model::moe::quantile::MarginStats> {
    let balancing = QuantileBalancing { bins: 100, range: MarginRange::OnePass };
    let output = model.forward(&input(), &Local::new(12), training.then_some(&balancing));
    output.expect("forward")
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.inner().into_data().iter::<f32>().collect()
}

#[test]
fn the_losses_of_rows_are_those_of_all_layers_over_valid_tokens() {
    let model = model(&small(0.01));
    let found = floats(forward(&model, true).sequence_balance.expect("a weight above 0"));
    let no_balancing: Option<&QuantileBalancing> = None;
    let inputs = model.router_inputs(&input(), &Local::new(12), no_balancing).expect("forward");
    let valid: Vec<i32> = valid().into_iter().map(i32::from).collect();
    let mut expected = vec![0.0; ROWS];
    for (block, u) in model.layers.iter().zip(inputs) {
        let routing = block.moe.router.route(u);
        let valid = Tensor::<1, Int>::from_data(TensorData::from(&valid[..]), &Device::flex());
        let losses = floats(reference(routing.logits, routing.selected, valid, SEQ_LEN));
        expected.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
    }
    assert_close("losses", &found, &expected, 1e-6);
    assert!(found[0] > 1.9 && found[1] > 1.9 && found[2] == 0.0, "{found:?}");
}

#[test]
fn its_gradient_reaches_every_router_and_nothing_behind_the_last() {
    let model = model(&small(0.01));
    let losses = forward(&model, true).sequence_balance.expect("a weight above 0");
    let mut grads = losses.sum().backward();
    let grads = weights::gradients(&model, &mut grads);
    for path in ["embedding.weight", "layers.0.moe.router.weight", "layers.1.moe.router.weight"] {
        let moved = grads[path].iter::<f32>().any(|v| v != 0.0);
        assert!(moved && grads[path].iter::<f32>().all(f32::is_finite), "{path}");
    }
    assert!(grads.contains_key("layers.0.moe.experts.w_up"));
    assert!(!grads.contains_key("layers.1.moe.experts.w_up") && !grads.contains_key("head.weight"));
}

#[test]
fn evaluation_and_a_weight_of_zero_do_without_and_compute_the_same() {
    let with = model(&small(0.01));
    assert!(forward(&with, false).sequence_balance.is_none());
    let without = forward(&model(&small(0.0)), true);
    assert!(without.sequence_balance.is_none());
    assert_same_bits("hidden", &floats(without.hidden), &floats(forward(&with, true).hidden));
}

#[test]
fn a_weight_that_is_negative_is_refused() {
    let message = small(-0.5).validate().expect_err("refused").to_string();
    assert_eq!(
        message,
        "model field `sequence_balance_loss` is -0.5, needed a finite number, 0 or more"
    );
}
