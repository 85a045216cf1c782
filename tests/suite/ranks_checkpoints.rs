//! Checkpoints of several shards: any number of shards loads them, and none takes half of one.

use std::path::Path;

use burn::tensor::TensorData;
use fulmar::train::checkpoint::load::{Source, restore};
use fulmar::train::checkpoint::save::Run;
use fulmar::train::checkpoint::{self, Manifest};
use fulmar::train::{RunConfig, run};

use crate::checkpoints::{remove, without};
use crate::tiny::{Tiny, steps_from};
use crate::toy::{self, Rank, on_every_rank};

/// Every number of shards that the tiny model's eight experts have, each with another exchange.
const SHARDS: [(&str, &str); 4] = [
    ("parallel.shards=1", "parallel.dispatch={kind=\"local\"}"),
    ("parallel.shards=2", "parallel.dispatch={kind=\"ring\"}"),
    ("parallel.shards=4", "parallel.dispatch={kind=\"fixed_cells\", capacity_factor=8}"),
    (
        "parallel.shards=8",
        "parallel.dispatch={kind=\"pooled_wave\", num_expert_waves=1, capacity_factor=8, \
         transport_capacity_factor=8}",
    ),
];

/// Copies the files of a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("listed").path();
        std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
    }
}

#[test]
fn a_checkpoint_of_four_shards_goes_on_at_any_number_with_any_exchange() {
    let tiny = Tiny::new();
    let base = ["schedule.steps=6", "batch.rows=8"];
    let ragged = ["parallel.shards=4", "parallel.dispatch={kind=\"ragged\"}", "checkpoint.every=3"];
    let config = tiny.config(&[&base[..], &ragged].concat());
    let norms = |out: &str| -> Vec<f64> {
        let of_steps = steps_from(&tiny.path(out), 4).into_iter();
        of_steps.map(|line| line["grad/norm/total"].as_f64().expect("finite")).collect()
    };
    let [needed, needed_later] = [("three", 3), ("four", 5)].map(|(out, steps)| {
        let mut options = tiny.options(out);
        options.stop_after = Some(steps);
        run(&config, &options).expect("some steps").heldout.expect("evaluated").total().loss()
    });
    for (shards, dispatch) in SHARDS {
        copy(&tiny.checkpoint("four", 3), &tiny.checkpoint(shards, 3));
        let config = tiny.config(&[&base[..], &[shards, dispatch]].concat());
        let mut options = tiny.options(shards);
        (options.resume, options.stop_after) = (true, Some(3));
        let summary = run(&config, &options).expect("no step");
        let loss = summary.heldout.as_ref().expect("evaluated").total().loss();
        println!("{shards}: held-out loss {loss}, {:.1e} apart", (loss - needed).abs() / needed);
        assert_eq!(summary.steps_taken, 0);
        assert!((loss - needed).abs() <= 1e-5 * needed, "{shards}: {loss}, needed {needed}");

        // Moments, balance and the position in the data have come along: the next steps are those of
        // the run that was not stopped.
        options.stop_after = Some(5);
        let loss =
            run(&config, &options).expect("two steps").heldout.expect("evaluated").total().loss();
        let apart = (loss - needed_later).abs() / needed_later;
        println!("{shards}: held-out loss after two more steps {apart:.1e} apart");
        assert!(apart <= 1e-4, "{shards}: {loss}, needed {needed_later}");
        let (found, needed) = (norms(shards), norms("four"));
        assert_eq!((found.len(), needed.len()), (2, 2));
        for (found, needed) in found.iter().zip(&needed) {
            assert!((found - needed).abs() <= 1e-4 * needed, "{shards}: {found}, needed {needed}");
        }
    }
}

#[test]
fn a_run_passes_over_a_checkpoint_that_lacks_the_file_of_one_shard() {
    let tiny = Tiny::new();
    let four = ["parallel.shards=4", "parallel.dispatch={kind=\"ragged\"}", "checkpoint.every=2"];
    let mut options = tiny.options("run");
    options.stop_after = Some(4);
    let config = tiny.config(&four);
    run(&config, &options).expect("four steps");
    remove(&tiny.checkpoint("run", 4).join("experts-2-of-4.safetensors"));
    let found = checkpoint::newest(&tiny.path("run")).expect("listed");
    let [refused] = &found.rejected[..] else { panic!("one reason, not {:?}", found.rejected) };
    let refused = refused.to_string();
    assert!(refused.contains("step-00000004/experts-2-of-4.safetensors"), "{refused}");
    options.resume = true;
    let summary = run(&config, &options).expect("two steps");
    assert_eq!((summary.steps_taken, summary.state.step), (2, 4), "on from step 2");
    assert!(checkpoint::newest(&tiny.path("run")).expect("listed").rejected.is_empty());
}

/// Six experts over `shards`, whose weights are 10 + id and whose moments 100 + id.
fn six(shards: usize) -> RunConfig {
    toy::config(
        [1, shards],
        &["model.num_experts=6", "model.num_experts_per_token=2", "batch.rows=6"],
    )
}

fn fill(stack: &mut TensorData, first_expert: usize, from: f32) {
    let of_expert = stack.shape()[1..].iter().product::<usize>();
    let values = stack.as_mut_slice::<f32>().expect("f32").chunks_mut(of_expert);
    for (expert, values) in values.enumerate() {
        values.fill(from + (first_expert + expert) as f32);
    }
}

fn is_stack(name: &str) -> bool {
    name.contains(".experts.")
}

/// Saves the filled experts over three shards.
fn save_six(folder: &Path) -> Manifest {
    let config = six(3);
    let batch = toy::batch(&config, 1);
    on_every_rank(&config, |mut rank| {
        rank.step(&batch)?;
        let first = rank.world.experts(6).start;
        rank.change_weights(|path, data| {
            if is_stack(path) {
                fill(data, first, 10.0);
            }
        });
        let mut moments = rank.state.optimizer.export();
        for (name, data) in &mut moments {
            if is_stack(name) {
                fill(data, first, 100.0);
            }
        }
        let device = rank.device.clone().inner();
        rank.state.optimizer.import(1, &device, |name| moments.remove(name))?;
        let of_run = Run { folder, config: &config, data: "made up" };
        checkpoint::save(&of_run, &rank.state, rank.world)
    });
    Manifest::read(&checkpoint::step_folder(folder, 1)).expect("a manifest")
}

/// Restores a rank; true, or the error's text.
fn restored(rank: &mut Rank<'_>, path: &Path, manifest: &Manifest) -> Result<(), String> {
    let experts = rank.world.experts(rank.config.model.num_experts);
    let from = Source { path, manifest, experts };
    let device = rank.device.clone();
    let done = restore(&from, rank.config, "made up", &device, &mut rank.state);
    done.map_err(|error| error.to_string())
}

#[test]
fn six_experts_saved_by_three_shards_are_each_found_once_by_any_number() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = save_six(folder.path());
    let path = checkpoint::step_folder(folder.path(), 1);
    let files = manifest.files.keys().filter(|name| name.starts_with("experts-"));
    assert_eq!(files.count(), 3);
    for shards in [1, 2, 3, 6] {
        on_every_rank(&six(shards), |mut rank| {
            restored(&mut rank, &path, &manifest).expect("whole");
            let tensors = fulmar::model::weights::export(&rank.state.model).into_iter();
            let tensors = tensors.chain(rank.state.optimizer.export());
            let mut stacks = 0;
            for (name, data) in tensors.filter(|(name, _)| is_stack(name)) {
                let from = if name.ends_with(".momentum") { 100.0 } else { 10.0 };
                let of_expert = data.shape()[1..].iter().product::<usize>();
                let values: Vec<f32> = data.iter::<f32>().collect();
                let experts = rank.world.experts(6);
                assert_eq!(values.len(), experts.len() * of_expert, "{name}");
                for (expert, values) in experts.zip(values.chunks(of_expert)) {
                    let needed = from + expert as f32;
                    assert!(values.iter().all(|value| *value == needed), "{name}, expert {expert}");
                }
                stacks += 1;
            }
            // Three stacks in each of two layers, with a moment each.
            assert_eq!(stacks, 12);
            Ok(())
        });
    }
}

#[test]
fn a_shard_or_a_slice_that_is_missing_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifest = save_six(folder.path());
    let path = checkpoint::step_folder(folder.path(), 1);
    let file = path.join("experts-1-of-3.safetensors");
    let sound = std::fs::read(&file).expect("read");
    let refusals = |shards: usize, manifest: &Manifest| -> Vec<Result<(), String>> {
        on_every_rank(&six(shards), |mut rank| Ok(restored(&mut rank, &path, manifest)))
    };
    let assert_refused = |shards: usize, manifest: &Manifest, needed: &[Option<&str>]| {
        for (rank, (found, needed)) in refusals(shards, manifest).iter().zip(needed).enumerate() {
            match (found, needed) {
                (Ok(()), None) => {}
                (Err(error), Some(needed)) if error.contains(needed) => {}
                _ => panic!("rank {rank} of {shards}: {found:?}, needed {needed:?}"),
            }
        }
    };

    // Sealed without a slice, as a writer that forgot it would have left it.
    for stack in ["layers.1.moe.experts.w_up", "layers.0.moe.experts.w_gate.momentum"] {
        without(&file, &format!("{stack}@2..4"));
        let named = |range: &str| format!("`{stack}`: experts {range} are missing");
        let (two, front, back) = (named("2..4"), named("2..3"), named("3..4"));
        assert_refused(1, &manifest, &[Some(&two)]);
        assert_refused(2, &manifest, &[Some(&front), Some(&back)]);
        assert_refused(3, &manifest, &[None, Some(&two), None]);
        assert_refused(6, &manifest, &[None, None, Some(&front), Some(&back), None, None]);
        std::fs::write(&file, &sound).expect("restored");
    }

    // Without the whole file: by its name if the manifest has it, by its experts if not.
    remove(&file);
    let found = checkpoint::newest(folder.path()).expect("listed");
    let refused = found.rejected.iter().map(ToString::to_string).collect::<Vec<_>>().concat();
    assert!(found.newest.is_none() && refused.contains("experts-1-of-3.safetensors"), "{refused}");
    assert_refused(1, &manifest, &[Some("experts-1-of-3.safetensors")]);
    let mut forgotten = manifest.clone();
    forgotten.files.remove("experts-1-of-3.safetensors");
    assert_refused(
        2,
        &forgotten,
        &[Some("experts 2..3 are missing"), Some("experts 3..4 are missing")],
    );
    assert_refused(3, &forgotten, &[None, Some("experts 2..4 are missing"), None]);
}
