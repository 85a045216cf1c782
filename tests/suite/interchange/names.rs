//! Names, shapes and fields against SPEC section 10.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use fulmar::model::role::Roles;
use fulmar::model::{ModelConfig, Preset, Transformer, weights};
use fulmar::train::interchange::{ExportDtype, Names, from_json, to_json};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use super::made::{Made, VARIATIONS};
use crate::tiny::Tiny;

#[test]
fn the_names_are_those_of_the_model_with_its_shapes_and_roles() {
    let tiny = Tiny::new();
    for (what, overrides) in VARIATIONS {
        let config = tiny.config(overrides).model;
        let device = Device::flex();
        let model = Transformer::new(&config, 0, &device).expect("a model");
        let names = Names::of(&config);
        let found: BTreeMap<_, _> =
            names.iter().map(|entry| (entry.path.clone(), entry.shape.clone())).collect();
        assert_eq!(found, weights::shapes(&model), "{what}");
        assert_eq!(found.len(), names.iter().count(), "{what}: a path twice");
        for (path, role) in model.roles().iter() {
            let entry = names.at_path(path).expect("a name");
            assert_eq!(entry.role, role, "{what}: {path}");
            assert_eq!(names.of_name(&entry.name), Some(entry), "{what}: {path}");
        }
    }
    for preset in Preset::ALL {
        let config = preset.config();
        let parameters: u64 =
            Names::of(&config).iter().map(|entry| entry.num_elements() as u64).sum();
        assert_eq!(parameters, config.num_params(), "{}", preset.name());
    }
}

/// SPEC section 10 by hand, for 2 layers of width 32, 4 heads of 16 with 2 and 1 kv heads, 8 experts
/// of inner width 12 in a latent width of 20, 2 shared experts of 24, all convolutions.
fn published(layer: usize) -> Vec<(String, Vec<usize>)> {
    let of_layer: [(&str, &[usize]); 29] = [
        ("input_layernorm.weight", &[32]),
        ("attn_gated_norm.down_proj.weight", &[4, 32]),
        ("attn_gated_norm.up_proj.weight", &[32, 4]),
        ("self_attn.q_proj.weight", &[64, 32]),
        ("self_attn.k_proj.weight", &[32, 32]),
        ("self_attn.v_proj.weight", &[32, 32]),
        ("self_attn.o_proj.weight", &[32, 64]),
        ("self_attn.attn_gate.weight", &[4, 32]),
        ("self_attn.sconv_k.weight", &[4, 32]),
        ("self_attn.sconv_v.weight", &[4, 32]),
        ("sconv_attn.weight", &[4, 32]),
        ("post_attention_layernorm.weight", &[32]),
        ("mlp_gated_norm.down_proj.weight", &[4, 32]),
        ("mlp_gated_norm.up_proj.weight", &[32, 4]),
        ("mlp.router.weight", &[8, 32]),
        ("mlp.router.bias", &[8]),
        ("mlp.experts.gate_proj.weight", &[8, 12, 20]),
        ("mlp.experts.up_proj.weight", &[8, 12, 20]),
        ("mlp.experts.down_proj.weight", &[8, 20, 12]),
        ("mlp.latent_down_proj.weight", &[20, 32]),
        ("mlp.latent_up_proj.weight", &[32, 20]),
        ("mlp.latent_norm.weight", &[20]),
        ("sconv_mlp.weight", &[4, 32]),
        ("shared_experts.0.gate_proj.weight", &[24, 32]),
        ("shared_experts.0.up_proj.weight", &[24, 32]),
        ("shared_experts.0.down_proj.weight", &[32, 24]),
        ("shared_experts.1.gate_proj.weight", &[24, 32]),
        ("shared_experts.1.up_proj.weight", &[24, 32]),
        ("shared_experts.1.down_proj.weight", &[32, 24]),
    ];
    let named = of_layer.into_iter();
    named.map(|(name, shape)| (format!("model.layers.{layer}.{name}"), shape.to_vec())).collect()
}

#[test]
fn a_file_has_the_published_names_shapes_and_orientation() {
    let made = Made::new(&[
        "model.num_heads=4",
        "model.local_kv_heads=2",
        "model.short_conv_sites=[\"k\",\"v\",\"attn\",\"mlp\"]",
        "model.latent_dim=20",
        "model.intermediate_dim=12",
        "model.num_shared_experts=2",
        "model.shared_intermediate_dim=24",
    ]);
    made.export("hf", ExportDtype::F32, u64::MAX);
    let bytes = std::fs::read(made.tiny.path("hf/model.safetensors")).expect("read");
    // Not by our own reader.
    let tensors = SafeTensors::deserialize(&bytes).expect("whole");
    let mut needed: BTreeMap<String, Vec<usize>> = (0..2).flat_map(published).collect();
    for (name, shape) in [
        ("model.embed_tokens.weight", vec![4096, 32]),
        ("model.embed_norm.weight", vec![32]),
        ("model.embed_gated_norm.down_proj.weight", vec![4, 32]),
        ("model.embed_gated_norm.up_proj.weight", vec![32, 4]),
        ("model.norm.weight", vec![32]),
        ("model.final_gated_norm.down_proj.weight", vec![4, 32]),
        ("model.final_gated_norm.up_proj.weight", vec![32, 4]),
        ("lm_head.weight", vec![4096, 32]),
    ] {
        needed.insert(name.to_owned(), shape);
    }
    let found: BTreeMap<String, Vec<usize>> =
        tensors.iter().map(|(name, view)| (name.to_owned(), view.shape().to_vec())).collect();
    assert_eq!(found, needed);

    let there = |name: &str| -> Vec<f32> {
        let view = tensors.tensor(name).expect("there");
        assert_eq!(view.dtype(), Dtype::F32);
        view.data().chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect()
    };
    let ours = |path: &str| made.values[path].iter::<f32>().collect::<Vec<_>>();
    // (in, out) here, (out, in) there.
    let (q, w_q) =
        (there("model.layers.1.self_attn.q_proj.weight"), ours("layers.1.attention.w_q"));
    let (head, w_head) = (there("lm_head.weight"), ours("head.weight"));
    let (router, w_router) =
        (there("model.layers.0.mlp.router.weight"), ours("layers.0.moe.router.weight"));
    for input in 0..32 {
        assert!((0..64).all(|out| q[out * 32 + input] == w_q[input * 64 + out]));
        assert!((0..4096).all(|out| head[out * 32 + input] == w_head[input * 4096 + out]));
        assert!((0..8).all(|out| router[out * 32 + input] == w_router[input * 8 + out]));
    }
    let down = there("model.layers.0.mlp.experts.down_proj.weight");
    let w_down = ours("layers.0.moe.experts.w_down");
    for (expert, input) in (0..8).flat_map(|e| (0..12).map(move |i| (e, i))) {
        let same = |out: usize| {
            down[(expert * 20 + out) * 12 + input] == w_down[(expert * 12 + input) * 20 + out]
        };
        assert!((0..20).all(same), "expert {expert}, input {input}");
    }
    // Rows of tokens, taps of channels and vectors lie alike on both sides.
    for (name, path) in [
        ("model.embed_tokens.weight", "embedding.weight"),
        ("model.layers.0.self_attn.sconv_v.weight", "layers.0.attention.conv_v.weight"),
        ("model.layers.1.mlp.latent_norm.weight", "layers.1.moe.latent.gain"),
    ] {
        assert_eq!(there(name), ours(path), "{name}");
    }
}

#[test]
fn config_json_says_what_the_published_one_says_and_comes_back() {
    let config = Preset::D6144.config();
    let text = to_json(&config, ExportDtype::Bf16, [128_000, 128_001]).expect("written");
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let needed = json!({
        "architectures": ["GrugMoeForCausalLM"], "model_type": "grug_moe", "torch_dtype": "bfloat16",
        "bos_token_id": 128_000, "eos_token_id": 128_001,
        "vocab_size": 128_256, "hidden_size": 6_144, "num_hidden_layers": 48,
        "num_attention_heads": 48, "num_key_value_heads": 12, "head_dim": 128,
        "max_position_embeddings": 4_096, "sliding_window": 2_048, "rms_norm_eps": 1e-5,
        "initializer_range": 0.5 / 6_144f64.sqrt(), "rope_theta": 10_000.0,
        "tie_word_embeddings": false, "num_experts": 384, "num_experts_per_tok": 8,
        "moe_intermediate_size": 3_072, "shared_expert_intermediate_size": 3_072,
        "num_shared_experts": 2, "latent_dim": 3_072, "qk_mult": 1.3, "local_kv_heads": 12,
        "global_kv_heads": 6, "global_every": 4, "rope_fused": true, "sconv": true,
        "sconv_kernel": 4, "sconv_sites": ["k", "attn", "mlp"],
        "grugmoe_artifact_schema_version": 2,
    });
    assert_eq!(found, needed);
    for preset in Preset::ALL {
        let config = preset.config();
        let text = to_json(&config, ExportDtype::F32, [0, 1]).expect("written");
        let back = from_json(&text, Path::new("config.json"), config.gated_norm_rank);
        assert_eq!(back.expect("read"), config, "{}", preset.name());
    }
    let other = ModelConfig { routing_sum: 1.0, ..config };
    let error = to_json(&other, ExportDtype::F32, [0, 1]).expect_err("no field for it").to_string();
    assert!(error.contains("`model.routing_sum` is 1, needed 2.5"), "{error}");
}
