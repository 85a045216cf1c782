//! What a resumed run takes, passes over and refuses.

use std::collections::BTreeMap;
use std::path::Path;

use fulmar::train::checkpoint::load::Source;
use fulmar::train::checkpoint::{self, Manifest};
use fulmar::train::{RunOptions, run};
use safetensors::SafeTensors;

use crate::process;
use crate::tiny::{Bench, Tiny, config_in, options_in};

/// A run of four steps with checkpoints after two and four.
fn four_steps(tiny: &Tiny, out: &str) -> RunOptions {
    let mut options = tiny.options(out);
    options.stop_after = Some(4);
    run(&tiny.config(&["checkpoint.every=2"]), &options).expect("four steps");
    options.resume = true;
    options
}

#[test]
fn resume_without_a_checkpoint_starts_from_zero_and_says_so() {
    if let Some(folder) = process::handed_over() {
        let mut options = options_in(&folder, "run");
        options.resume = true;
        options.stop_after = Some(2);
        let summary = run(&config_in(&folder, &[]), &options).expect("two steps");
        assert_eq!((summary.steps_taken, summary.state.step), (2, 2));
        return;
    }
    let tiny = Tiny::new();
    let name = "checkpoints::resume_without_a_checkpoint_starts_from_zero_and_says_so";
    let said = process::again(name, &tiny.path(""));
    let expected = format!("no whole checkpoint in {}", tiny.path("run").display());
    assert!(said.contains(&expected) && said.contains("starting from zero"), "{said}");
}

#[test]
fn a_folder_that_holds_a_run_is_refused_without_resume() {
    let tiny = Tiny::new();
    let mut options = four_steps(&tiny, "run");
    options.resume = false;
    let error = run(&tiny.config(&[]), &options).expect_err("another run is there").to_string();
    assert!(error.contains("holds a run at step 4") && error.contains("--resume"), "{error}");

    // Nothing whole is left, and yet it is somebody's run.
    for step in [2, 4] {
        flip_a_byte(&tiny.checkpoint("run", step).join("weights.safetensors"));
    }
    let error = run(&tiny.config(&[]), &options).expect_err("still a run").to_string();
    assert!(error.contains("holds a run") && error.contains("--resume"), "{error}");
}

#[test]
fn a_resumed_run_passes_over_a_damaged_checkpoint_and_says_why() {
    if let Some(folder) = process::handed_over() {
        let mut options = options_in(&folder, "run");
        options.resume = true;
        options.stop_after = Some(5);
        let config = config_in(&folder, &["checkpoint.every=2"]);
        let summary = run(&config, &options).expect("three steps");
        assert_eq!((summary.steps_taken, summary.state.step), (3, 5));
        return;
    }
    let tiny = Tiny::new();
    four_steps(&tiny, "run");
    flip_a_byte(&tiny.checkpoint("run", 4).join("weights.safetensors"));
    let name = "checkpoints::a_resumed_run_passes_over_a_damaged_checkpoint_and_says_why";
    let said = process::again(name, &tiny.path(""));
    assert!(said.contains("passed over: checkpoint"), "{said}");
    assert!(said.contains("step-00000004/weights.safetensors: checksum"), "{said}");
    assert!(said.contains("step-00000002 (step 2)"), "{said}");
    // On its way the run has written step 4 again.
    for step in [4, 5] {
        let folder = tiny.checkpoint("run", step);
        let whole = Manifest::read(&folder).and_then(|manifest| manifest.verify(&folder));
        whole.unwrap_or_else(|error| panic!("{error}"));
    }
}

fn flip_a_byte(path: &Path) {
    let mut bytes = std::fs::read(path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

fn cut_short(path: &Path) {
    let bytes = std::fs::read(path).expect("read");
    std::fs::write(path, &bytes[..bytes.len() - 1]).expect("written");
}

pub(crate) fn remove(path: &Path) {
    std::fs::remove_file(path).expect("removed");
}

/// What is done to a file.
type Damage = fn(&Path);

#[test]
fn every_kind_of_damage_is_found_and_the_older_checkpoint_taken() {
    let tiny = Tiny::new();
    four_steps(&tiny, "run");
    let damages: [(&str, Damage, &str); 6] = [
        ("weights.safetensors", flip_a_byte, "checksum"),
        ("recipe.toml", flip_a_byte, "checksum"),
        ("experts-0-of-1.safetensors", cut_short, "bytes, needed"),
        ("optimizer.safetensors", remove, "optimizer.safetensors"),
        ("manifest.json", remove, "no manifest"),
        ("manifest.json", cut_short, "manifest cannot be read"),
    ];
    let newest = tiny.checkpoint("run", 4);
    for (file, damage, reason) in damages {
        let path = newest.join(file);
        let sound = std::fs::read(&path).expect("read");
        damage(&path);
        let found = checkpoint::newest(&tiny.path("run")).expect("listed");
        let (folder, manifest) = found.newest.expect("the older one is whole");
        assert!(folder.ends_with("step-00000002") && manifest.step == 2, "{}", folder.display());
        let [error] = &found.rejected[..] else { panic!("one reason, not {:?}", found.rejected) };
        let error = error.to_string();
        assert!(error.contains(reason) && error.contains("step-00000004"), "{error}");
        std::fs::write(&path, sound).expect("restored");
    }
    let found = checkpoint::newest(&tiny.path("run")).expect("listed");
    assert_eq!((found.newest.expect("whole again").1.step, found.rejected.len()), (4, 0));
}

/// Writes the file again without the tensors that `leave_out` names.
pub(crate) fn without(path: &Path, leave_out: &str) {
    let bytes = std::fs::read(path).expect("read");
    let tensors = SafeTensors::deserialize(&bytes).expect("whole");
    let kept: BTreeMap<String, _> =
        tensors.iter().map(|(name, view)| (name.to_owned(), view)).collect();
    assert!(kept.contains_key(leave_out), "no {leave_out} in {:?}", kept.keys());
    let kept = kept.into_iter().filter(|(name, _)| name != leave_out);
    std::fs::write(path, safetensors::serialize(kept, None).expect("serialized")).expect("written");
}

#[test]
fn a_checkpoint_without_one_tensor_is_refused_by_its_name() {
    let tiny = Tiny::new();
    four_steps(&tiny, "run");
    let folder = tiny.checkpoint("run", 4);
    let cases = [
        ("weights", "final_norm.gain", "`final_norm.gain`"),
        ("experts-0-of-1", "layers.1.moe.experts.w_up@0..8", "`layers.1.moe.experts.w_up`"),
        ("optimizer", "layers.0.attention.w_q.momentum", "`layers.0.attention.w_q.momentum`"),
        ("optimizer", "head.weight.v", "`head.weight.v`"),
        ("balance", "1", "layer 1"),
    ];
    for (file, tensor, named) in cases {
        let path = folder.join(format!("{file}.safetensors"));
        let sound = std::fs::read(&path).expect("read");
        without(&path, tensor);
        // As a writer that forgot the tensor would have left it: sealed, so not found as damage.
        let manifest = Manifest::read(&folder).expect("a manifest");
        let Bench { config, data, mut state, device } = Bench::new(tiny.config(&[]));
        let from = Source { path: &folder, manifest: &manifest, experts: 0..8 };
        let restored = checkpoint::load::restore(&from, &config, &data.digest, &device, &mut state);
        let error = restored.expect_err(tensor).to_string();
        assert!(error.contains(named), "{tensor}: {error}");
        assert_eq!(state.step, 0, "{tensor}: the state counts as restored");
        std::fs::write(&path, sound).expect("restored");
    }
}

#[test]
fn a_checkpoint_of_another_run_names_the_field_that_differs() {
    let tiny = Tiny::new();
    let options = four_steps(&tiny, "run");
    let fields = [
        ("model.routing_sum=2.0", "`model.routing_sum` is 2.5 there and 2.0 in this run"),
        ("optimizer.momentum=0.9", "`optimizer.momentum` is 0.95 there and 0.9 in this run"),
        ("data.block_rows=8", "`data.block_rows` is 16 there and 8 in this run"),
        ("seed=4", "`seed` is 3 there and 4 in this run"),
    ];
    for (field, needed) in fields {
        let error = run(&tiny.config(&[field]), &options).expect_err(field).to_string();
        assert!(error.contains(needed) && error.contains("step-00000004"), "{error}");
    }
}

#[test]
fn a_checkpoint_of_other_data_is_refused() {
    let tiny = Tiny::new();
    let options = four_steps(&tiny, "run");
    let other = "{\"text\":\"one two three four five six seven eight nine ten \"}\n".repeat(40);
    std::fs::write(tiny.path("other.jsonl"), other).expect("written");
    let mut config = tiny.config(&[]);
    config.data.sources = vec![tiny.path("other.jsonl")];
    let error = run(&config, &options).expect_err("other data").to_string();
    assert!(error.contains("was trained on data"), "{error}");
}
