//! Counts and FLOPs of SPEC sections 1 and 7, to the last digit.

use burn::tensor::Device;
use fulmar_model::role::Roles as _;
use fulmar_model::{Preset, Transformer, weights};

#[test]
fn parameter_counts_are_the_published_ones() {
    for (preset, total, active) in [
        (Preset::D768, 1_591_848_448, 60_555_264),
        (Preset::D1024, 3_980_116_480, 162_004_992),
        (Preset::D1536, 11_534_398_464, 481_296_384),
        (Preset::D2048, 27_742_902_528, 1_170_735_104),
        (Preset::D6144, 535_477_106_688, 22_762_487_808),
    ] {
        let config = preset.config();
        assert_eq!(config.num_params(), total, "{preset:?}");
        assert_eq!(config.num_active_params(), active, "{preset:?}");
    }
    let mut with_v = Preset::D6144.config();
    with_v.short_conv_sites.push(fulmar_model::config::ConvSite::V);
    assert_eq!(with_v.num_params(), 535_477_401_600);
}

#[test]
fn step_flops_are_the_published_ones() {
    for (preset, without_head) in [
        (Preset::D768, 2.320210052775936e15),
        (Preset::D1024, 1.129954355970048e16),
        (Preset::D1536, 9.130921800656486e16),
        (Preset::D2048, 3.857022193930076e17),
        (Preset::D6144, 6.690294608796058e18),
    ] {
        let tokens = preset.batch_rows() * 4_096;
        assert_eq!(preset.config().step_flops_without_head(tokens), without_head, "{preset:?}");
    }
    let with_head = |preset: Preset| preset.config().step_flops(preset.batch_rows() * 4_096);
    assert_eq!(with_head(Preset::D768), 4.799059017596928e15);
    assert_eq!(with_head(Preset::D6144), 6.908433317700305e18);
    let hero_run = with_head(Preset::D6144) * Preset::D6144.steps() as f64;
    assert_eq!(format!("{hero_run:.6e}"), "2.696023e24");
}

#[test]
fn steps_are_the_published_ones() {
    let steps = Preset::ALL.map(Preset::steps);
    assert_eq!(steps[4..], [11_420, 15_276, 15_128, 20_072, 390_251]);
    // 1.2 tokens for each of 190,464, 454,656, 1,204,224 and 3,047,424 active parameters.
    assert_eq!(steps[..4], [223, 266, 706, 893]);
}

#[test]
fn the_model_has_the_parameters_that_are_counted_and_each_has_one_role() {
    let config = fulmar_model::ModelConfig { num_experts: 16, ..Preset::MiniD96.config() };
    let model = Transformer::new(&config, 1, &Device::flex()).expect("valid");
    let shapes = weights::shapes(&model);
    let total: usize = shapes.values().map(|shape| shape.iter().product::<usize>()).sum();
    assert_eq!(total as u64, config.num_params());
    let roles = model.roles();
    assert!(roles.iter().map(|(path, _)| path).eq(shapes.keys().map(String::as_str)));
}

#[test]
fn a_field_that_breaks_a_rule_is_named_with_its_value_and_the_rule() {
    let mut config = Preset::D768.config();
    config.num_experts_per_token = 384;
    let message = config.validate().expect_err("refused").to_string();
    assert_eq!(
        message,
        "model field `num_experts_per_token` is 384, needed below `num_experts` = 384: the \
         balancing margin is taken against the next expert"
    );
    let unknown = serde_json::from_str::<fulmar_model::ModelConfig>(r#"{"hiden_dim": 3}"#);
    assert!(unknown.expect_err("refused").to_string().contains("hiden_dim"));
}
