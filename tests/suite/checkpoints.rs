//! What a resumed run takes, passes over and refuses.

use std::path::Path;

use fulmar::ep::World;
use fulmar::train::checkpoint::load::{Restored, restore};
use fulmar::train::checkpoint::resume::{Resumed, resume};
use fulmar::train::checkpoint::verify::verify;
use fulmar::train::checkpoint::{Manifest, Run};
use fulmar::train::operations::Position;
use fulmar::train::storage::Storage;
use fulmar::train::{RunOptions, TrainError, exit, run};

use crate::process;
use crate::tiny::{Bench, Tiny, config_in, options_in};

/// The one part of a single rank.
const PART: &str = "shard-0-of-1.safetensors";

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
        flip_a_byte(&tiny.checkpoint("run", step).join(PART));
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
    flip_a_byte(&tiny.checkpoint("run", 4).join(PART));
    let name = "checkpoints::a_resumed_run_passes_over_a_damaged_checkpoint_and_says_why";
    let said = process::again(name, &tiny.path(""));
    assert!(said.contains("passed over: checkpoint"), "{said}");
    assert!(said.contains("step-00000004/shard-0-of-1.safetensors: checksum"), "{said}");
    assert!(said.contains("step-00000002 (step 2)"), "{said}");
    // On its way the run has written step 4 again.
    for step in [4, 5] {
        assert_whole(&*tiny.storage("run"), step);
    }
}

fn assert_whole(storage: &dyn Storage, step: u64) {
    let (_, problems) = verify(storage, step).unwrap_or_else(|error| panic!("{error}"));
    assert!(problems.is_empty(), "step {step}: {problems:?}");
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

/// What a single rank resumes in `out`, without running on.
fn resumed(tiny: &Tiny, out: &str) -> Result<Resumed, TrainError> {
    let Bench { config, data, device, .. } = Bench::new(tiny.config(&[]));
    let storage = tiny.storage(out);
    let of_run = Run::new(&storage, &config, &data.digest);
    let plan_at = |at: Position, _: &[u64]| {
        Ok((config.clone(), data.consumed(at.batches * config.batch.rows)))
    };
    resume(&of_run, &plan_at, &tiny.path(out), &World::solo(), &device)
}

#[test]
fn every_kind_of_damage_is_found_and_the_older_checkpoint_taken() {
    let tiny = Tiny::new();
    four_steps(&tiny, "run");
    let damages: [(&str, Damage, &str); 8] = [
        (PART, flip_a_byte, "shard-0-of-1.safetensors: checksum of `"),
        (PART, flip_in_the_header, "shard-0-of-1.safetensors: checksum of the header"),
        ("recipe.toml", flip_a_byte, "recipe.toml: checksum"),
        (PART, cut_short, "bytes, needed"),
        ("balance.safetensors", remove, "balance.safetensors: missing"),
        ("manifest.json", remove, "no manifest"),
        ("manifest.json", flip_a_byte, "manifest"),
        ("manifest.json", cut_short, "manifest cannot be read"),
    ];
    let newest = tiny.checkpoint("run", 4);
    for (file, damage, reason) in damages {
        let path = newest.join(file);
        let sound = std::fs::read(&path).expect("read");
        damage(&path);
        let found = resumed(&tiny, "run").expect("the older one is whole");
        let from = found.from.expect("a checkpoint");
        assert_eq!((from.step, found.state.step), (2, 2), "{file}");
        let [error] = &found.passed_over[..] else { panic!("not one: {:?}", found.passed_over) };
        assert!(error.contains(reason) && error.contains("step-00000004"), "{error}");
        std::fs::write(&path, sound).expect("restored");
    }
    let found = resumed(&tiny, "run").expect("whole again");
    assert_eq!((found.state.step, found.passed_over.len()), (4, 0));
}

fn flip_in_the_header(path: &Path) {
    flip_a_bit(path, 20);
}

/// Flips bit `bit` of a file, counted from its beginning.
fn flip_a_bit(path: &Path, bit: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[bit / 8] ^= 1 << (bit % 8);
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let tiny = Tiny::new();
    four_steps(&tiny, "run");
    let (storage, newest) = (tiny.storage("run"), tiny.checkpoint("run", 4));
    for file in [PART, "balance.safetensors", "recipe.toml", "manifest.json"] {
        let path = newest.join(file);
        let bits = 8 * std::fs::metadata(&path).expect("there").len() as usize;
        // Another bit of the byte at each place.
        for place in 0..33 {
            let bit = ((bits / 8 - 1) * place / 32) * 8 + place % 8;
            flip_a_bit(&path, bit);
            let problems = match verify(&*storage, 4) {
                Ok((_, problems)) => problems,
                Err(problem) => vec![problem],
            };
            let [problem] = &problems[..] else { panic!("{file}, bit {bit}: {problems:?}") };
            assert!(problem.to_string().contains(&*path.to_string_lossy()), "{bit}: {problem}");
            flip_a_bit(&path, bit);
        }
    }
    assert_whole(&*storage, 4);
}

#[test]
fn a_run_that_saved_never_starts_from_zero_by_itself() {
    let tiny = Tiny::new();
    four_steps(&tiny, "run");
    for step in [2, 4] {
        flip_a_byte(&tiny.checkpoint("run", step).join(PART));
    }
    let error = resumed(&tiny, "run").expect_err("nothing is whole");
    assert_eq!(exit::status_of(&error), exit::CHECKPOINT);
    let error = error.to_string();
    assert!(error.contains("step-00000004/") && error.contains("step-00000002/"), "{error}");

    // The history knows of them when no trace is left.
    std::fs::remove_dir_all(tiny.path("run").join("checkpoints")).expect("removed");
    let error = resumed(&tiny, "run").expect_err("nothing is there");
    assert_eq!(exit::status_of(&error), exit::CHECKPOINT);
    assert!(error.to_string().contains("there is none"), "{error}");
}

#[test]
fn a_save_that_was_interrupted_before_the_first_checkpoint_does_not_stop_a_run() {
    let tiny = Tiny::new();
    four_steps(&tiny, "other");
    for file in [PART, "recipe.toml"] {
        let (from, to) = (tiny.checkpoint("other", 2), tiny.checkpoint("run", 2));
        std::fs::create_dir_all(&to).expect("a folder");
        std::fs::copy(from.join(file), to.join(file)).expect("copied");
    }
    let found = resumed(&tiny, "run").expect("nothing was ever whole");
    assert!(found.from.is_none() && found.state.step == 0);
    assert!(found.passed_over[0].contains("no manifest"), "{:?}", found.passed_over);
}

#[test]
fn another_version_of_the_format_is_refused_by_its_number() {
    let tiny = Tiny::new();
    four_steps(&tiny, "run");
    let text = r#"{"manifest":{"format_version":2,"step":4,"files":{}},"blake3":"00"}"#;
    std::fs::write(tiny.checkpoint("run", 4).join("manifest.json"), text).expect("written");
    let found = resumed(&tiny, "run").expect("the older one");
    assert_eq!(found.state.step, 2);
    assert!(found.passed_over[0].contains("format version 2, needed 3"), "{:?}", found.passed_over);
}

/// Seals the manifest of a step without a tensor, as a writer that forgot it would have left it.
pub(crate) fn without(storage: &dyn Storage, step: u64, tensor: &str) {
    let mut manifest = Manifest::read(storage, step).expect("a manifest");
    let removed = manifest.files.values_mut().filter_map(|file| file.tensors.remove(tensor));
    assert_eq!(removed.count(), 1, "no {tensor}");
    manifest.write(storage).expect("written");
}

#[test]
fn a_checkpoint_without_one_tensor_is_refused_by_its_name() {
    let tiny = Tiny::new();
    four_steps(&tiny, "run");
    let storage = tiny.storage("run");
    let cases = [
        ("final_norm.gain", "`final_norm.gain` is missing; found 1"),
        ("layers.1.moe.experts.w_up@0..8", "`layers.1.moe.experts.w_up`: experts 0..8 are missing"),
        ("layers.0.attention.w_q.momentum", "`layers.0.attention.w_q.momentum` is missing"),
        ("head.weight.v", "`head.weight.v` is missing"),
        ("balance.1", "`balance.1` is missing"),
    ];
    let sound = Manifest::read(&*storage, 4).expect("a manifest");
    for (tensor, named) in cases {
        without(&*storage, 4, tensor);
        let manifest = Manifest::read(&*storage, 4).expect("a manifest");
        let Bench { config, data, mut state, device } = Bench::new(tiny.config(&[]));
        let consumed = data.consumed(manifest.batches * config.batch.rows);
        let of_run = Run { consumed, ..Run::new(&storage, &config, &data.digest) };
        let restored = restore(&manifest, &of_run, &World::solo(), &device, &mut state);
        let Ok(Restored::Damaged(error)) = restored else { panic!("{tensor}: {restored:?}") };
        let error = error.to_string();
        assert!(error.contains(named), "{tensor}: {error}");
        assert_eq!(state.step, 0, "{tensor}: the state counts as restored");
        sound.clone().write(&*storage).expect("restored");
    }
}

#[test]
fn rows_and_generators_of_a_checkpoint_are_compared_with_the_recomputed_ones() {
    let tiny = Tiny::new();
    let options = four_steps(&tiny, "run");
    let storage = tiny.storage("run");
    let sound = Manifest::read(&*storage, 4).expect("a manifest");
    assert_eq!(sound.consumed.values().sum::<u64>(), 16);
    let (cell, rows) = sound.consumed.iter().next().expect("two cells");
    let mut moved = sound.clone();
    moved.consumed.insert(cell.clone(), rows + 1);
    let mut drawn = sound.clone();
    drawn.generators[1].position += 4;
    let cases = [
        (moved, format!("rows taken from `{cell}`: {}, needed {rows}", rows + 1)),
        (drawn, "generator of order of rows at 20".to_owned()),
    ];
    for (manifest, needed) in cases {
        manifest.write(&*storage).expect("written");
        let error = run(&tiny.config(&[]), &options).expect_err(&needed);
        assert_eq!(exit::status_of(&error), exit::CHECKPOINT);
        assert!(error.to_string().contains(&needed), "{error}");
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
