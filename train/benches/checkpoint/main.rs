//! Save and restore beside what the disk does in the same minutes, and steps beside a save.
//!
//! ```text
//! cargo bench --workspace --bench checkpoint             # two layers of 96 experts of d768: 1 GiB
//! cargo bench --workspace --bench checkpoint -- full     # d768, 1.59 billion parameters: 12 GiB of
//!                                                        # memory and 25 GiB of disk, minutes
//! cargo bench --workspace --bench checkpoint -- steps    # the miniature's steps beside its saves
//! cargo bench --workspace --bench checkpoint -- --test   # a tiny shape: shows that the bench runs
//! ```
//!
//! Files go below the folder that `FULMAR_BENCH_FOLDER` names, or that of temporary files. The disk
//! writes as many bytes in a plain file, synced, and reads them: past the system's cache, which is the
//! disk alone; through it, with nothing of the file in it, over and over into one buffer; and so into
//! new memory, which a restored state takes as well. Save and restore take turns with it, and the best
//! of each is compared. Targets: 70% of the disk's rate, and
//! steps of at most 1.1 times as long.

mod disk;
mod steps;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{DType, Device, TensorData};
use fulmar_ep::World;
use fulmar_model::{Preset, Role};
use fulmar_train::RunConfig;
use fulmar_train::checkpoint::load::{Restored, restore};
use fulmar_train::checkpoint::{self, Manifest, Run, step_name};
use fulmar_train::plan::grouped;
use fulmar_train::state::TrainState;
use fulmar_train::storage::{LocalStorage, Storage};
use fulmar_train::telemetry::memory::{human, peak_resident_bytes};

fn main() {
    fulmar_kernels::allocator::keep_freed_memory();
    let asked = |what: &str| std::env::args().any(|arg| arg == what);
    let folder = std::env::var_os("FULMAR_BENCH_FOLDER").map(PathBuf::from);
    let folder = folder.unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&folder).expect("a folder for files");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(folder.path().join("checkpoints")));
    if asked("steps") {
        return steps::beside_saves(&storage, 8);
    }
    let (config, rounds) = if asked("--test") {
        (d768(1, 8, 256), 1)
    } else if asked("full") {
        let whole = Preset::D768.config();
        (d768(whole.num_layers, whole.num_experts, whole.vocab_size), 2)
    } else {
        (d768(2, 96, 16_384), 4)
    };
    println!("{} parameters", grouped(config.model.num_params()));
    let whole = Whole { config, storage, plain: folder.path().join("plain") };
    whole.rates(rounds);
    if asked("--test") {
        steps::beside_saves(&whole.storage, 1);
    }
}

/// The d768 rung with so many layers, experts and tokens in its vocabulary.
fn d768(layers: usize, experts: usize, vocabulary: usize) -> RunConfig {
    let mut config = RunConfig::preset(Preset::D768);
    let model = &mut config.model;
    (model.num_layers, model.num_experts, model.vocab_size) = (layers, experts, vocabulary);
    model.num_experts_per_token = model.num_experts_per_token.min(experts - 1);
    config.batch.rows = 1;
    config.validate().expect("a valid shape");
    config
}

/// A state with moments, as after one update.
fn state(config: &RunConfig) -> TrainState {
    let device = Device::flex();
    let mut state = TrainState::new(config, &World::solo(), &device).expect("a state");
    let table = state.optimizer.table().clone();
    let shapes: std::collections::BTreeMap<String, (usize, DType)> = state
        .optimizer
        .state_names()
        .into_iter()
        .map(|(path, name, dtype)| {
            let shape = &table.get(&path).expect("in the table").shape;
            (name, (shape.iter().product(), dtype))
        })
        .collect();
    let moment = |name: &str| {
        let (len, dtype) = shapes[name];
        let values: Vec<f32> = (0..len).map(|i| 1e-4 * (i % 1_009) as f32).collect();
        Some(TensorData::new(values, [len]).convert_dtype(dtype))
    };
    state.optimizer.import(1, &device, moment).expect("all moments");
    state.pending = vec![vec![0.0; config.model.num_experts]; config.model.num_layers];
    (state.step, state.batches) = (1, 1);
    assert!(table.iter().any(|(_, entry)| entry.role == Role::ExpertStack), "experts");
    state
}

struct Whole {
    config: RunConfig,
    storage: Arc<dyn Storage>,
    /// The plain file.
    plain: PathBuf,
}

impl Whole {
    /// Saves and plain writes in turns, then restores and plain reads.
    fn rates(&self, rounds: usize) {
        let world = World::solo();
        let run = Run::new(&self.storage, &self.config, "made up");
        let state = state(&self.config);
        let (mut save, mut write, mut bytes) = (f64::INFINITY, f64::INFINITY, 0);
        for _ in 0..rounds {
            let before = peak_resident_bytes();
            save = save.min(seconds(|| {
                bytes = checkpoint::save(&run, &state, &world).expect("saved").bytes;
            }));
            if let (Some(before), Some(after)) = (before, peak_resident_bytes()) {
                println!("a save has raised the peak of memory by {}", human(after - before));
            }
            write = write.min(seconds(|| disk::write(&self.plain, bytes)));
        }
        say("save", bytes, save, write);
        drop(state);

        let manifest = Manifest::read(&*self.storage, 1).expect("a manifest");
        let place = PathBuf::from(self.storage.locate(&step_name(1)));
        let [mut load, mut read, mut past, mut stay] = [f64::INFINITY; 4];
        for _ in 0..rounds {
            let device = Device::flex();
            let mut fresh = TrainState::new(&self.config, &world, &device).expect("a state");
            manifest.files.keys().for_each(|file| disk::drop_cache(&place.join(file)));
            load = load.min(seconds(|| {
                let restored = restore(&manifest, &run, &world, &device, &mut fresh);
                assert!(matches!(restored, Ok(Restored::Whole(_))), "{restored:?}");
            }));
            drop(fresh);
            disk::drop_cache(&self.plain);
            read = read.min(seconds(|| disk::read(&self.plain)));
            disk::drop_cache(&self.plain);
            past = past.min(seconds(|| disk::read_past_cache(&self.plain)));
            let mut blocks = Vec::new();
            stay = stay.min(seconds(|| blocks = disk::read_to_stay(&self.plain)));
        }
        say("restore, to a read past the cache", bytes, load, past);
        say("restore, to a read into new memory", bytes, load, stay);
        say("restore, to a read into one buffer", bytes, load, read);
    }
}

/// Seconds of one run.
fn seconds(run: impl FnOnce()) -> f64 {
    let started = Instant::now();
    run();
    started.elapsed().as_secs_f64()
}

fn say(what: &str, bytes: u64, secs: f64, disk: f64) {
    let rate = |secs: f64| bytes as f64 / secs / 1e6;
    println!(
        "{what}: {} in {secs:.2} s, {:.0} MB/s; the disk {:.0} MB/s: {:.0}%, target 70%",
        human(bytes),
        rate(secs),
        rate(disk),
        100.0 * disk / secs,
    );
}
