//! Checkpoints of several shards: any number of shards loads them, and none takes half of one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::tensor::TensorData;
use fulmar::ep::Layout;
use fulmar::train::checkpoint::load::Restored;
use fulmar::train::checkpoint::reshard::reshard;
use fulmar::train::checkpoint::resume::resume;
use fulmar::train::checkpoint::{Manifest, Run, newest, step_name};
use fulmar::train::operations::Position;
use fulmar::train::storage::Storage;
use fulmar::train::{RunConfig, run};

use crate::checkpoints::{remove, without};
use crate::storages::Watched;
use crate::tiny::{Tiny, assert_same_files, steps_from};
use crate::toy::{self, on_every_rank, storage_in};

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
    remove(&tiny.checkpoint("run", 4).join("shard-2-of-4.safetensors"));
    let storage = tiny.storage("run");
    let found = newest(&*storage, None).expect("listed");
    let [refused] = &found.rejected[..] else { panic!("one reason, not {:?}", found.rejected) };
    let refused = refused.to_string();
    assert!(refused.contains("step-00000004/shard-2-of-4.safetensors"), "{refused}");
    options.resume = true;
    let summary = run(&config, &options).expect("two steps");
    assert_eq!((summary.steps_taken, summary.state.step), (2, 4), "on from step 2");
    assert!(newest(&*storage, None).expect("listed").rejected.is_empty());
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
fn save_six(storage: &Arc<dyn Storage>) -> Manifest {
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
        rank.save(storage)
    });
    Manifest::read(&**storage, 1).expect("a manifest")
}

#[test]
fn six_experts_saved_by_three_shards_are_each_found_once_by_any_number() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage = storage_in(folder.path());
    let manifest = save_six(&storage);
    let files = manifest.files.keys().filter(|name| name.starts_with("shard-"));
    assert_eq!(files.count(), 3);
    for shards in [1, 2, 3, 6] {
        on_every_rank(&six(shards), |mut rank| {
            rank.restore_whole(&storage, &manifest)?;
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

/// Why each rank refuses a checkpoint.
fn refusals(shards: usize, storage: &Arc<dyn Storage>, manifest: &Manifest) -> Vec<String> {
    on_every_rank(&six(shards), |mut rank| match rank.restore(storage, manifest)? {
        Restored::Damaged(error) => Ok(error.to_string()),
        Restored::Whole(census) => panic!("rank {} found {census}", rank.world.rank()),
    })
}

#[test]
fn a_shard_or_a_slice_that_is_missing_is_refused_by_name_on_every_rank() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage = storage_in(folder.path());
    let sound = save_six(&storage);
    let all_say = |manifest: &Manifest, needed: &str| {
        for shards in [1, 2, 3, 6] {
            for refusal in refusals(shards, &storage, manifest) {
                assert!(refusal.contains(needed), "{shards} shards: {refusal}, needed {needed}");
            }
        }
    };

    // Sealed without a slice, as a writer that forgot it would have left it.
    for stack in ["layers.1.moe.experts.w_up", "layers.0.moe.experts.w_gate.momentum"] {
        without(&*storage, 1, &format!("{stack}@2..4"));
        let forgotten = Manifest::read(&*storage, 1).expect("a manifest");
        all_say(&forgotten, &format!("`{stack}`: experts 2..4 are missing; found "));
    }
    // With a slice that another shard has too.
    let mut twice = sound.clone();
    let first = &sound.files["shard-0-of-3.safetensors"].tensors;
    let second = &mut twice.files.get_mut("shard-1-of-3.safetensors").expect("a file").tensors;
    let stack = "layers.0.moe.experts.w_down@0..2";
    second.insert(stack.to_owned(), first[stack].clone());
    all_say(&twice, "`layers.0.moe.experts.w_down`: experts 0..2 are held twice");

    // Without the whole file: by its name if the manifest has it, by its experts if not.
    sound.clone().write(&*storage).expect("restored");
    remove(&folder.path().join(step_name(1)).join("shard-1-of-3.safetensors"));
    let found = newest(&*storage, None).expect("listed");
    let refused = found.rejected.iter().map(ToString::to_string).collect::<Vec<_>>().concat();
    assert!(found.newest.is_none() && refused.contains("shard-1-of-3.safetensors"), "{refused}");
    all_say(&sound, "shard-1-of-3.safetensors");
    let mut forgotten = sound;
    forgotten.files.remove("shard-1-of-3.safetensors");
    for refusal in refusals(2, &storage, &forgotten) {
        assert!(
            refusal.contains("is missing") || refusal.contains("2..4 are missing"),
            "{refusal}"
        );
    }
}

/// Megabytes of state, beside which a manifest is small.
fn of_layout(layout: [usize; 2]) -> RunConfig {
    toy::config(layout, &["batch.rows=8", "model.latent_dim=32", "model.intermediate_dim=64"])
}

const LAYOUTS: [[usize; 2]; 6] = [[1, 1], [2, 1], [1, 2], [2, 2], [4, 1], [1, 4]];

/// One step at a layout, saved below `folder`.
fn save_at(layout: [usize; 2], storage: &Arc<dyn Storage>) -> Manifest {
    let config = of_layout(layout);
    let batch = toy::batch(&config, 1);
    on_every_rank(&config, |mut rank| {
        rank.step(&batch)?;
        rank.save(storage)
    });
    Manifest::read(&**storage, 1).expect("a manifest")
}

#[test]
fn every_rank_writes_its_share_of_the_state() {
    for layout in LAYOUTS {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manifest = save_at(layout, &storage_in(folder.path()));
        let parts = manifest.files.iter().filter(|(name, _)| name.starts_with("shard-"));
        let bytes: Vec<u64> = parts.map(|(_, file)| file.bytes - file.header.bytes).collect();
        assert_eq!(bytes.len(), layout[0] * layout[1]);
        let even = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
        let most = *bytes.iter().max().expect("a part") as f64;
        assert!(most <= 1.1 * even, "{layout:?}: {bytes:?}");
    }
}

#[test]
fn a_restore_at_any_layout_reads_each_byte_once_and_gives_the_same_bits() {
    for saved in [[1, 1], [2, 2], [1, 4]] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage = storage_in(folder.path());
        let manifest = save_at(saved, &storage);
        let state_bytes: u64 =
            manifest.files.values().map(|file| file.bytes - file.header.bytes).sum();
        for layout in LAYOUTS {
            let watched = Watched::counting(storage.clone());
            let counted: Arc<dyn Storage> = watched.clone();
            let again = tempfile::tempdir().expect("a temporary folder");
            let to = storage_in(again.path());
            on_every_rank(&of_layout(layout), |mut rank| {
                // As a run does it: the choice of a checkpoint, its manifest, all that is in it.
                let run = Run::new(&counted, rank.config, "made up");
                let (folder, device) = (folder.path(), rank.device.clone());
                let uncounted = |_: Position, _: &[u64]| Ok((rank.config.clone(), BTreeMap::new()));
                rank.state = resume(&run, &uncounted, folder, rank.world, &device)?.state;
                rank.save(&to)
            });
            let read = watched.read.load(Ordering::Relaxed);
            let amplification = read as f64 / state_bytes as f64;
            println!("{saved:?} -> {layout:?}: {amplification:.4}");
            assert!(amplification <= 1.1, "{saved:?} -> {layout:?}: {amplification}");
            let found = Manifest::read(&*to, 1).expect("a manifest");
            assert_eq!(
                (found.weights, found.state),
                (manifest.weights.clone(), manifest.state.clone())
            );
        }
    }
}

#[test]
fn a_checkpoint_written_for_another_layout_is_what_its_ranks_would_have_saved() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let manifest = save_at([2, 2], &storage_in(&from));
    for [replicas, shards] in LAYOUTS {
        let layout = Layout::new(replicas, shards);
        let (offline, online) = (to.join(format!("{layout:?}")), to.join(format!("on{layout:?}")));
        let written = reshard(&*storage_in(&from), &manifest, layout, &*storage_in(&offline));
        let written = written.expect("written");
        let storage = storage_in(&from);
        on_every_rank(&of_layout([replicas, shards]), |mut rank| {
            rank.restore_whole(&storage, &manifest)?;
            rank.save(&storage_in(&online))
        });
        let [offline, online] = [offline, online].map(|root| root.join(step_name(1)));
        assert_same_files(&offline, &online);
        assert_eq!((written.layout.replicas, written.layout.shards), (replicas, shards));
        assert_eq!(written.state, manifest.state);
    }
    let error = reshard(
        &*storage_in(&from),
        &manifest,
        Layout::new(1, 3),
        &*storage_in(&to.join("thirds")),
    );
    assert!(error.expect_err("16 experts").to_string().contains("divisor of 16"));
    let same = reshard(&*storage_in(&from), &manifest, Layout::solo(), &*storage_in(&from));
    assert!(same.expect_err("it is there").to_string().contains("something is there"));
}
