//! Out and in again: bits, logits, files.

use std::path::PathBuf;

use burn::tensor::Device;
use fulmar::ep::World;
use fulmar::train::checkpoint;
use fulmar::train::interchange::{ExportDtype, Folder, Weights, load};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::made::{Made, VARIATIONS, assert_same_weights};
use crate::tiny::Bench;

#[test]
fn every_variation_comes_back_with_its_bits_and_its_logits() {
    for (what, overrides) in VARIATIONS {
        let made = Made::new(overrides);
        let exported = made.export("hf", ExportDtype::F32, u64::MAX);
        let check = exported.check.expect("checked");
        assert_eq!((check.prompts.len(), check.allowed), (3, 0.0), "{what}");
        for prompt in &check.prompts {
            assert_eq!((prompt.other_bits, prompt.largest_difference), (0, 0.0), "{what}");
            assert!(prompt.largest > 0.0 && prompt.logits >= 4_096, "{what}: {prompt:?}");
        }
        let longest = check.prompts[2].tokens;
        assert!(longest > made.config.model.sliding_window, "{what}: {longest} tokens");

        let folder = Folder::open(&made.tiny.path("hf")).expect("whole");
        assert_eq!(folder.model(), &made.config.model, "{what}");
        let experts = 0..made.config.model.num_experts;
        let model = load(&folder, experts, &Device::flex()).expect("a model");
        assert_same_weights(what, &model, &made.values);
    }
}

#[test]
fn router_biases_of_an_export_are_the_pending_balance() {
    let made = Made::new(&[]);
    made.export("hf", ExportDtype::Bf16, u64::MAX);
    let bytes = std::fs::read(made.tiny.path("hf/model.safetensors")).expect("read");
    let tensors = SafeTensors::deserialize(&bytes).expect("whole");
    let bench = Bench::new(made.config.clone());
    let storage = made.tiny.storage("run");
    let manifest = checkpoint::Manifest::read(&*storage, made.saved.step()).expect("whole");
    let mut state = bench.state;
    let run = checkpoint::Run::new(&storage, &made.config, &bench.data.digest);
    let world = World::solo();
    checkpoint::load::restore(&manifest, &run, &world, &bench.device, &mut state).expect("whole");
    for (layer, pending) in state.pending.iter().enumerate() {
        let view = tensors.tensor(&format!("model.layers.{layer}.mlp.router.bias")).expect("there");
        // Also where all else is bf16.
        assert_eq!(view.dtype(), Dtype::F32);
        let found: Vec<f32> = view
            .data()
            .chunks(4)
            .map(|b| f32::from_le_bytes(b.try_into().expect("four")))
            .collect();
        let mean = pending.iter().sum::<f32>() / pending.len() as f32;
        for (bias, beta) in found.iter().zip(pending) {
            assert!((bias - (mean - beta)).abs() < 1e-6, "{bias} is not {mean} - {beta}");
        }
        assert!(found.iter().any(|bias| bias.abs() > 1e-4), "no balance at all: {found:?}");
    }
}

#[test]
fn bf16_has_the_bits_of_rounded_weights_and_differs_little_from_the_others() {
    for (what, overrides) in VARIATIONS {
        let made = Made::new(overrides);
        let check = made.export("hf", ExportDtype::Bf16, u64::MAX).check.expect("checked");
        println!("{what}\n{}", check.table());
        for prompt in &check.prompts {
            assert_eq!(prompt.other_bits, 0, "{what}");
            assert!(prompt.largest_difference > 0.0, "{what}: nothing was rounded");
            assert!(prompt.relative_difference <= check.allowed, "{what}: {prompt:?}");
        }
    }
}

#[test]
fn small_files_hold_the_same_tensors_and_the_index_says_where() {
    let made = Made::new(&[]);
    let limit = 40_000;
    let exported = made.export("hf", ExportDtype::F32, limit);
    assert!(exported.files > 3, "{exported:?}");
    let read = |path: PathBuf| std::fs::read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let index: Value =
        serde_json::from_slice(&read(made.tiny.path("hf/model.safetensors.index.json")))
            .expect("JSON");
    assert_eq!(index["metadata"]["total_size"], exported.bytes);
    let map = index["weight_map"].as_object().expect("a map");
    assert_eq!(map.len(), exported.tensors);
    for number in 1..=exported.files {
        let name = format!("model-{number:05}-of-{:05}.safetensors", exported.files);
        let bytes = read(made.tiny.path("hf").join(&name));
        let tensors = SafeTensors::deserialize(&bytes).expect("whole");
        let size: usize = tensors.iter().map(|(_, view)| view.data().len()).sum();
        assert!(size as u64 <= limit || tensors.len() == 1, "{name}: {size} bytes");
        assert!(tensors.iter().all(|(tensor, _)| map[tensor] == name.as_str()), "{name}");
    }
    let folder = Folder::open(&made.tiny.path("hf")).expect("whole");
    assert_eq!(folder.num_files(), exported.files);
    let model = load(&folder, 0..8, &Device::flex()).expect("a model");
    assert_same_weights("small files", &model, &made.values);
}
