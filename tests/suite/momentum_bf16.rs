//! Momentum that is stored as bf16: half the memory, also in files, and exact through a restart.

use std::path::Path;

use fulmar::train::checkpoint::Manifest;
use fulmar::train::run;
use fulmar_tests::compare::assert_close;
use safetensors::{Dtype, SafeTensors};

use crate::tiny::{Bench, Tiny, assert_same_files, steps_from};
use crate::toy::{self, on_every_rank};

const BF16: &str = "optimizer.momentum_dtype=\"bf16\"";

/// Type and bytes of every moment in the files of a checkpoint's folder, by name.
fn moments(folder: &Path) -> Vec<(String, Dtype, usize)> {
    let mut moments = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("listed").path();
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            continue;
        }
        let bytes = std::fs::read(&path).expect("read");
        for (name, view) in SafeTensors::deserialize(&bytes).expect("tensors").tensors() {
            let stack = name.split('@').next().expect("a name");
            if [".momentum", ".m", ".v"].iter().any(|moment| stack.ends_with(moment)) {
                moments.push((name, view.dtype(), view.data().len()));
            }
        }
    }
    moments.sort_by(|left, right| left.0.cmp(&right.0));
    moments
}

#[test]
fn momentum_takes_half_the_bytes_of_a_checkpoint_and_moments_of_adam_stay() {
    let tiny = Tiny::new();
    tiny.run("f32", &[]).expect("a run");
    tiny.run("bf16", &[BF16]).expect("a run");
    let (wide, narrow) =
        (moments(&tiny.checkpoint("f32", 10)), moments(&tiny.checkpoint("bf16", 10)));
    assert_eq!(wide.len(), narrow.len());
    let mut stacks = 0;
    for ((name, of_wide, bytes), (same, of_narrow, half)) in wide.iter().zip(&narrow) {
        assert_eq!((name, *of_wide), (same, Dtype::F32));
        let (dtype, share) =
            if name.contains(".momentum") { (Dtype::BF16, 2) } else { (Dtype::F32, 1) };
        assert_eq!((*of_narrow, share * half), (dtype, *bytes), "{name}");
        stacks += usize::from(name.contains(".experts."));
    }
    assert_eq!(stacks, 6, "three stacks in each of two layers");
}

#[test]
fn training_differs_by_roundings_only() {
    let tiny = Tiny::new();
    let losses = |overrides: &[&str]| -> Vec<f64> {
        let mut bench = Bench::new(tiny.config(overrides));
        (0..10).map(|_| bench.step().loss).collect()
    };
    let (wide, narrow) = (losses(&[]), losses(&[BF16]));
    // Before the second update no momentum has been read back.
    assert_eq!(wide[..2], narrow[..2]);
    assert_ne!(wide[9], narrow[9]);
    for (step, (wide, narrow)) in wide.iter().zip(&narrow).enumerate() {
        assert!((wide - narrow).abs() <= 2e-3 * wide, "step {step}: {narrow}, in f32 {wide}");
    }
}

#[test]
fn ten_steps_are_four_steps_and_six_more() {
    let tiny = Tiny::new();
    tiny.run("whole", &[BF16]).expect("ten steps");
    let mut options = tiny.options("halves");
    options.stop_after = Some(4);
    run(&tiny.config(&[BF16]), &options).expect("the first half");
    (options.resume, options.stop_after) = (true, None);
    assert_eq!(run(&tiny.config(&[BF16]), &options).expect("the second half").steps_taken, 6);
    assert_same_files(&tiny.checkpoint("whole", 10), &tiny.checkpoint("halves", 10));
    assert_eq!(steps_from(&tiny.path("whole"), 5), steps_from(&tiny.path("halves"), 5));
}

#[test]
fn a_run_of_the_other_type_is_refused() {
    let tiny = Tiny::new();
    let mut options = tiny.options("run");
    options.stop_after = Some(2);
    run(&tiny.config(&[BF16]), &options).expect("two steps");
    options.resume = true;
    let error = run(&tiny.config(&[]), &options).expect_err("another type").to_string();
    let expected = "field `optimizer.momentum_dtype` is \"bf16\" there and \"f32\" in this run";
    assert!(error.contains(expected), "{error}");

    // A file that does not hold what its recipe says.
    let mut narrow = Bench::new(tiny.config(&[BF16]));
    narrow.step();
    let mut exported = narrow.state.optimizer.export();
    let mut wide = Bench::new(tiny.config(&[]));
    let device = burn::tensor::Device::flex();
    let imported = wide.state.optimizer.import(1, &device, |name| exported.remove(name));
    let error = imported.expect_err("another type").to_string();
    assert!(
        error.contains(".momentum` is BF16, needed F32 (`optimizer.momentum_dtype`)"),
        "{error}"
    );
}

#[test]
fn momentum_of_two_shards_is_found_bit_for_bit_by_one_and_by_four() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = |shards: usize| toy::config([1, shards], &[BF16, "batch.rows=8"]);
    let saved = config(2);
    let batch = toy::batch(&saved, 1);
    let storage = toy::storage_in(folder.path());
    on_every_rank(&saved, |mut rank| {
        rank.step(&batch)?;
        rank.save(&storage)
    });
    let manifest = Manifest::read(&*storage, 1).expect("a manifest");
    let stack = "layers.1.moe.experts.w_up.momentum";
    let of_shards = |shards: usize| -> Vec<u8> {
        let parts = on_every_rank(&config(shards), |mut rank| {
            rank.restore_whole(&storage, &manifest)?;
            let data = rank.state.optimizer.export().remove(stack).expect("a moment");
            assert_eq!(data.dtype(), burn::tensor::DType::BF16);
            Ok(data.as_bytes().to_vec())
        });
        parts.concat()
    };
    let saved = of_shards(2);
    // Sixteen experts of 16 x 16, two bytes each.
    assert_eq!(saved.len(), 16 * 16 * 16 * 2);
    assert!(saved.iter().any(|byte| *byte != 0));
    for shards in [1, 4] {
        assert!(of_shards(shards) == saved, "{shards} shards");
    }
}

#[test]
fn a_joint_norm_over_shards_takes_it_too() {
    let stack = "layers.1.moe.experts.w_up.momentum";
    let after_two_steps = |shards: usize| -> (Vec<f32>, Vec<f32>) {
        let overrides = [BF16, "optimizer.muonh_norm=joint", "batch.rows=8"];
        let config = toy::config([1, shards], &overrides);
        let parts = on_every_rank(&config, |mut rank| {
            for seed in 0..2 {
                rank.step(&toy::batch(&config, seed))?;
            }
            let data = rank.state.optimizer.export().remove(stack).expect("a moment");
            assert_eq!(data.dtype(), burn::tensor::DType::BF16);
            let weights = rank.weights().remove("layers.1.moe.experts.w_up").expect("a stack");
            Ok((data.iter::<f32>().collect::<Vec<_>>(), weights))
        });
        let (momentum, weights): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        (momentum.concat(), weights.concat())
    };
    let (one, two) = (after_two_steps(1), after_two_steps(2));
    // A sum in another order may be stored as the neighbouring bf16.
    assert_close("momentum", &two.0, &one.0, 1.0 / 128.0);
    assert_close("weights", &two.1, &one.1, 1e-3);
}
