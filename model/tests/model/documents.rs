//! What a document must not see.

use burn::tensor::Device;
use fulmar_ep::Local;
use fulmar_model::moe::quantile::QuantileBalancing;
use fulmar_model::{ModelConfig, ModelInput, Preset, Transformer};
use fulmar_tests::compare::assert_same_bits;

fn small() -> ModelConfig {
    ModelConfig {
        vocab_size: 64,
        num_layers: 4,
        num_experts: 12,
        num_experts_per_token: 3,
        max_seq_len: 24,
        sliding_window: 8,
        ..Preset::MiniD96.config()
    }
}

fn logits(config: &ModelConfig, tokens: &[i32], cut: usize) -> Vec<f32> {
    let model = Transformer::new(config, 3, &Device::flex()).expect("valid");
    let segments = (0..tokens.len()).map(|i| i32::from(i >= cut)).collect();
    let valid = vec![true; tokens.len()];
    let input =
        ModelInput::new(tokens.to_vec(), segments, valid, [1, tokens.len()], &Device::flex());
    let no_balancing: Option<&QuantileBalancing> = None;
    let local = Local::new(config.num_experts);
    let output = model.forward(&input, &local, no_balancing).expect("forward");
    model.logits(output.hidden).into_data().iter::<f32>().collect()
}

#[test]
fn a_packed_document_does_not_see_the_one_before_it() {
    let config = small();
    let (cut, len) = (9, 24);
    let first: Vec<i32> = (0..len).map(|i| (i * 7 + 3) % 64).collect();
    let mut other = first.clone();
    other[..cut].iter_mut().for_each(|token| *token = (*token * 5 + 11) % 64);
    let (a, b) = (logits(&config, &first, cut), logits(&config, &other, cut));
    let of_second = cut * config.vocab_size..;
    assert_same_bits("logits of B", &a[of_second.clone()], &b[of_second]);
    assert_ne!(a[..config.vocab_size], b[..config.vocab_size]);
}
