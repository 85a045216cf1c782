//! Folders that are not whole, or not what they say.

use std::collections::BTreeMap;
use std::path::Path;

use fulmar::train::interchange::{ExportDtype, import};
use fulmar::train::{TrainError, exit};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use super::made::Made;

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const UP: &str = "model.layers.1.mlp.experts.up_proj.weight";

/// An export in one file and in several.
fn exported() -> Made {
    let made = Made::new(&[]);
    made.export("whole", ExportDtype::F32, u64::MAX);
    made.export("parts", ExportDtype::F32, 100_000);
    made
}

/// Fails unless a copy of the export `of` is refused after `damage`, with all that is `needed` in the
/// message, the folder named, and no run left behind.
fn refused(made: &Made, of: &str, damage: impl FnOnce(&Path), needed: &[&str]) {
    let folder = made.tiny.path("damaged");
    let _ = std::fs::remove_dir_all(&folder);
    copy(&made.tiny.path(of), &folder);
    damage(&folder);
    let error = import(&made.import_options("damaged", "tuned")).expect_err("damaged");
    let text = error.to_string();
    for needed in needed {
        assert!(text.contains(needed), "{text} (needed {needed})");
    }
    assert!(text.contains(&*folder.display().to_string()), "{text}");
    let status = exit::status_of(&error);
    assert!(matches!(error, TrainError::Io { .. }) || status == exit::CHECKPOINT, "{text}");
    assert!(!made.tiny.path("tuned").exists(), "a run's folder appeared: {text}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("listed");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

fn remove(path: &Path) {
    std::fs::remove_file(path).expect("removed");
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&std::fs::read(path).expect("read")).expect("JSON");
    change(&mut value);
    std::fs::write(path, serde_json::to_vec(&value).expect("JSON")).expect("written");
}

/// Tensors of a file: type, shape and bytes by name.
type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn rewrite_tensors(path: &Path, change: impl FnOnce(&mut Tensors)) {
    let bytes = std::fs::read(path).expect("read");
    let tensors = SafeTensors::deserialize(&bytes).expect("whole");
    let owned = |view: TensorView<'_>| (view.dtype(), view.shape().to_vec(), view.data().to_vec());
    let mut tensors: Tensors =
        tensors.iter().map(|(name, view)| (name.to_owned(), owned(view))).collect();
    change(&mut tensors);
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("bytes of the shape"))
    });
    std::fs::write(path, safetensors::serialize(views, None).expect("bytes")).expect("written");
}

#[test]
fn damaged_weights_are_named() {
    let made = exported();
    let whole = |damage: &dyn Fn(&Path), needed: &[&str]| refused(&made, "whole", damage, needed);
    whole(&|folder| remove(&folder.join(WEIGHTS)), &["neither `model.safetensors` nor"]);
    let cut_short = |folder: &Path| {
        let bytes = std::fs::read(folder.join(WEIGHTS)).expect("read");
        std::fs::write(folder.join(WEIGHTS), &bytes[..bytes.len() - 1]).expect("written");
    };
    whole(&cut_short, &[WEIGHTS, "bytes, needed"]);
    let no_header = |folder: &Path| std::fs::write(folder.join(WEIGHTS), [7; 40]).expect("written");
    whole(&no_header, &[WEIGHTS, "a header of"]);
    let changed = |change: &dyn Fn(&mut Tensors), needed: &[&str]| {
        whole(&|folder| rewrite_tensors(&folder.join(WEIGHTS), change), needed);
    };
    changed(&|tensors| drop(tensors.remove(UP)), &[UP, "is missing"]);
    let one_more = |tensors: &mut Tensors| {
        let copy = tensors[UP].clone();
        tensors.insert("model.layers.2.mlp.experts.up_proj.weight".to_owned(), copy);
    };
    let named = "`model.layers.2.mlp.experts.up_proj.weight` is no part of the model";
    changed(&one_more, &[named]);
    let as_ours = |tensors: &mut Tensors| {
        tensors.get_mut("lm_head.weight").expect("there").1.swap(0, 1);
    };
    changed(&as_ours, &["`lm_head.weight` has shape [32, 4096], needed [4096, 32]"]);
    let integers = |tensors: &mut Tensors| {
        tensors.get_mut("model.norm.weight").expect("there").0 = Dtype::I32;
    };
    changed(&integers, &["`model.norm.weight` is I32, needed F32 or BF16"]);
}

#[test]
fn a_config_that_is_wrong_is_named_with_its_field() {
    let made = exported();
    refused(&made, "whole", |folder| remove(&folder.join("config.json")), &["config.json"]);
    let missing = |folder: &Path| {
        rewrite(&folder.join("config.json"), |config| {
            config.as_object_mut().expect("an object").remove("latent_dim").expect("there");
        });
    };
    refused(&made, "whole", missing, &["config.json", "missing field `latent_dim`"]);
    let both_global = json!(["full_attention", "full_attention"]);
    let cases = [
        ("head_dims", json!(3), "`head_dims` is unknown"),
        ("qk_mult", json!("1.3"), "`qk_mult`"),
        ("model_type", json!("llama"), "`model_type` is \"llama\", needed \"grug_moe\""),
        ("tie_word_embeddings", json!(true), "`tie_word_embeddings` is true, needed false"),
        ("rope_fused", json!(false), "`rope_fused` is false, needed true"),
        ("rope_scaling", json!({"factor": 2}), "`rope_scaling` is {\"factor\":2}, needed null"),
        ("grugmoe_artifact_schema_version", json!(1), "version` is 1, needed 2"),
        ("num_key_value_heads", json!(2), "`num_key_value_heads` is 2, needed 1"),
        ("sconv_sites", json!([]), "`sconv` is true, needed false"),
        ("layer_types", both_global, "`layer_types` is"),
        ("num_experts_per_tok", json!(8), "num_experts_per_token"),
        ("hidden_size", json!(1_u64 << 40), "`hidden_size` is 1099511627776, needed below 2^32"),
        ("num_hidden_layers", json!(4_000_000_000_u32), "`num_hidden_layers` is 4000000000, for"),
    ];
    for (field, value, needed) in cases {
        let damage = |folder: &Path| rewrite(&folder.join("config.json"), |c| c[field] = value);
        refused(&made, "whole", damage, &["config.json", needed]);
    }
    // Fields that are sound in themselves and not what the weights are of.
    let cases = [
        ("num_experts", json!(16), "has shape [8, 32], needed [16, 32]"),
        ("num_hidden_layers", json!(3), "`model.layers.2.input_layernorm.weight`"),
        ("sconv", json!(false), "sconv_k.weight`"),
    ];
    for (field, value, needed) in cases {
        let damage = |folder: &Path| rewrite(&folder.join("config.json"), |c| c[field] = value);
        refused(&made, "whole", damage, &[needed]);
    }
}

#[test]
fn an_index_that_is_wrong_is_named_with_what_it_says() {
    let made = exported();
    let part = "model-00002-of-";
    let first_part = |folder: &Path| -> String {
        let names = std::fs::read_dir(folder).expect("listed");
        let names = names.map(|e| e.expect("listed").file_name().to_string_lossy().into_owned());
        names.into_iter().find(|name| name.starts_with(part)).expect("a second file")
    };
    let parts = |damage: &dyn Fn(&Path), needed: &[&str]| refused(&made, "parts", damage, needed);
    let both = |folder: &Path| std::fs::write(folder.join(WEIGHTS), []).expect("written");
    parts(&both, &["both `model.safetensors` and"]);
    parts(&|folder| remove(&folder.join(first_part(folder))), &[part]);
    let index = |change: &dyn Fn(&mut Value, String), needed: &[&str]| {
        let damage = |folder: &Path| {
            rewrite(&folder.join(INDEX), |index| change(index, first_part(folder)));
        };
        parts(&damage, needed);
    };
    index(&|index, _| index["metadata"] = json!({}), &[INDEX, "total_size"]);
    index(&|index, _| index["metadata"]["total_size"] = json!(1), &["`total_size` is 1, needed"]);
    index(
        &|index, file| index["weight_map"]["model.norm.weight"] = json!(file),
        &["`model.norm.weight` is in", "the index says"],
    );
    index(
        &|index, _| {
            index["weight_map"].as_object_mut().expect("a map").remove("model.norm.weight");
        },
        &["`model.norm.weight` of", "is not in the index"],
    );
    index(
        &|index, file| index["weight_map"]["model.more.weight"] = json!(file),
        &["`model.more.weight` is not in"],
    );
    index(
        &|index, _| index["weight_map"]["model.norm.weight"] = json!("../whole/model.safetensors"),
        &["names the file", "needed one beside it"],
    );
}

#[test]
fn another_tokenizer_than_the_weights_were_trained_with_is_refused() {
    let made = exported();
    rewrite(&made.tiny.path("whole/tokenizer.json"), |tokenizer| {
        // It joins one pair less.
        let merges = tokenizer["model"]["merges"].as_array_mut().expect("pairs");
        merges.pop().expect("a pair");
    });
    let mut options = made.import_options("whole", "tuned");
    options.recipe = Some(made.saved.folder().join("recipe.toml"));
    options.set.clear();
    let error = import(&options).expect_err("another tokenizer").to_string();
    assert!(error.contains("tokenizer.json") && error.contains("`data.tokenizer`"), "{error}");
    assert!(!made.tiny.path("tuned").exists(), "a run's folder appeared");
}
