//! What updates, saves and loads allocate.

use std::sync::Arc;

use burn::tensor::Device;
use fulmar_ep::transport::Group;
use fulmar_ep::{Local, World};
use fulmar_model::Preset;
use fulmar_tests::made_up::batch;
use fulmar_tests::memory::count;
use fulmar_train::RunConfig;
use fulmar_train::background::Pace;
use fulmar_train::checkpoint::load::{Restored, restore};
use fulmar_train::checkpoint::{self, Manifest, Run, Snapshot};
use fulmar_train::optim::{Gradients, MomentumDtype, Schedule};
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;
use fulmar_train::storage::{LocalStorage, Storage};
use fulmar_train::telemetry::memory::Sizes;

use super::turn;

/// Stacks of 96 experts of 64 x 48 and an embedding of 4,096 x 64: all much larger than what one
/// matrix of a stack needs.
fn config(momentum_dtype: MomentumDtype) -> RunConfig {
    let mut config = RunConfig::preset(Preset::MiniD96);
    let model = &mut config.model;
    (model.hidden_dim, model.num_layers, model.num_heads) = (64, 2, 2);
    (model.num_experts, model.num_experts_per_token) = (96, 4);
    (model.latent_dim, model.intermediate_dim) = (64, 48);
    (model.shared_intermediate_dim, model.max_seq_len) = (32, 32);
    config.batch.rows = 2;
    config.schedule.steps = 100;
    config.optimizer.momentum_dtype = momentum_dtype;
    config.validate().expect("a valid shape");
    config
}

const STACK_BYTES: usize = 96 * 64 * 48 * 4;
const EMBEDDING_BYTES: usize = 4096 * 64 * 4;

fn step(config: &RunConfig, state: &mut TrainState) {
    let (device, world) = (Device::flex(), World::solo());
    let (dispatcher, balancing) = (Local::new(config.model.num_experts), balancing(config));
    let context = StepContext::new(config, &world, &dispatcher, &balancing, &device);
    let rates = state.optimizer.rates(&Schedule::new(2), 1);
    assert!(
        state
            .step(&batch(&config.model, config.batch.rows as usize), rates, &context)
            .expect("a step")
            .updated
    );
}

/// What `run` returns on two threads: each has the scratch of one matrix.
fn on_two_threads<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
    pool.install(run)
}

#[test]
fn an_update_allocates_less_than_a_fifth_of_the_largest_parameter() {
    let _turn = turn();
    for momentum_dtype in [MomentumDtype::F32, MomentumDtype::Bf16] {
        let config = config(momentum_dtype);
        let mut state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
        // The first update makes the moments.
        step(&config, &mut state);
        let gradients = Gradients::of_weights(&state.model);
        let held = Sizes::of(&state).gradients.total() as isize;
        let rates = state.optimizer.rates(&Schedule::new(2), 1);
        let (_, counted) = on_two_threads(|| {
            let shards = Group::solo();
            count(0, || state.optimizer.step(&mut state.model, gradients, rates, &shards))
        });
        println!("{momentum_dtype:?}: {counted:?}; the largest parameter {STACK_BYTES} bytes");
        let bound = STACK_BYTES / 5;
        assert!(counted.largest < bound, "{momentum_dtype:?}: {counted:?}, needed below {bound}");
        assert!(counted.growth < bound, "{momentum_dtype:?}: {counted:?}, needed below {bound}");
        // Gradients are gone; the threads keep their room for products.
        let slack = bound as isize;
        assert!(counted.kept < slack - held, "{momentum_dtype:?}: {counted:?}, held {held}");
    }
}

#[test]
fn the_norm_of_gradients_is_taken_without_a_copy_of_one() {
    let _turn = turn();
    let config = config(MomentumDtype::F32);
    let state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
    let gradients = Gradients::of_weights(&state.model);
    let table = state.optimizer.table();
    let (norm, counted) = count(0, || gradients.norms_over_ranks(table, &World::solo()));
    assert!(norm.expect("one rank").total.is_finite());
    assert!(counted.growth < EMBEDDING_BYTES / 2, "{counted:?}");
}

#[test]
fn a_whole_step_copies_no_stack_and_keeps_nothing() {
    let _turn = turn();
    for momentum_dtype in [MomentumDtype::F32, MomentumDtype::Bf16] {
        let config = config(momentum_dtype);
        let mut state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
        for _ in 0..2 {
            step(&config, &mut state);
        }
        let (_, counted) = count(STACK_BYTES, || step(&config, &mut state));
        // Three stacks in each of two layers, and a gradient for each.
        assert_eq!(counted.of_size, 6, "{momentum_dtype:?}: {counted:?}");
        assert!(counted.kept.unsigned_abs() < 100_000, "{momentum_dtype:?}: {counted:?}");
    }
}

#[test]
fn sizes_by_owner_are_those_of_what_is_exported() {
    let _turn = turn();
    for momentum_dtype in [MomentumDtype::F32, MomentumDtype::Bf16] {
        let config = config(momentum_dtype);
        let mut state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
        let sizes = Sizes::of(&state);
        step(&config, &mut state);
        assert_eq!(Sizes::of(&state), sizes, "known before the first update");
        let weights = fulmar_model::weights::export(&state.model);
        let bytes = |tensors: &std::collections::BTreeMap<String, burn::tensor::TensorData>| {
            tensors.values().map(|data| data.as_bytes().len() as u64).sum::<u64>()
        };
        assert_eq!(sizes.weights.total(), bytes(&weights));
        assert_eq!(sizes.weights.total(), 4 * config.model.num_params());
        assert_eq!(sizes.optimizer.total(), bytes(&state.optimizer.export()));
        assert_eq!(sizes.weights.expert_stacks, 6 * STACK_BYTES as u64);
        assert_eq!(sizes.weights.embedding_and_head, 2 * EMBEDDING_BYTES as u64);
        let momentum = if momentum_dtype == MomentumDtype::F32 { 6 } else { 3 };
        assert_eq!(sizes.optimizer.expert_stacks, momentum * STACK_BYTES as u64);
        assert_eq!(sizes.optimizer.embedding_and_head, 4 * EMBEDDING_BYTES as u64);
        let biases = 4 * (config.model.num_layers * config.model.num_experts) as u64;
        assert_eq!(sizes.weights.total() - sizes.gradients.total(), biases);
    }
}

#[test]
fn a_save_takes_less_than_a_tenth_of_the_state() {
    let _turn = turn();
    // Wider, so that a tenth is more than the pieces of a tensor.
    let mut config = config(MomentumDtype::F32);
    config.model.num_experts = 768;
    let mut state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
    step(&config, &mut state);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(folder.path()));
    let run = Run::new(&storage, &config, "made up");
    let (saved, counted) = count(0, || checkpoint::save(&run, &state, &World::solo()));
    saved.expect("saved");
    let sizes = Sizes::of(&state);
    let bytes = (sizes.weights.total() + sizes.optimizer.total()) as usize;
    let pieces = checkpoint::SAVE_PIECES_BYTES as usize;
    println!("{counted:?}, state {bytes}, pieces {pieces}");
    assert!(counted.growth < bytes / 10, "{counted:?}, needed below a tenth of {bytes}");
}

/// Files of the state after the step at hand.
fn saved_at_once(config: &RunConfig, state: &TrainState) -> Manifest {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(folder.path()));
    let run = Run::new(&storage, config, "made up");
    checkpoint::save(&run, state, &World::solo()).expect("saved");
    Manifest::read(&*storage, state.step).expect("a manifest")
}

#[test]
fn a_snapshot_keeps_its_bytes_through_steps_and_takes_at_most_a_copy() {
    let _turn = turn();
    for momentum_dtype in [MomentumDtype::F32, MomentumDtype::Bf16] {
        let config = config(momentum_dtype);
        let mut state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
        for _ in 0..2 {
            step(&config, &mut state);
        }
        let needed = saved_at_once(&config, &state);
        let (_, alone) = count(0, || step(&config, &mut state));
        for _ in 0..2 {
            // The same state again, from which the snapshot is taken.
            state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
            for _ in 0..2 {
                step(&config, &mut state);
            }
        }
        let sizes = Sizes::of(&state);
        let copy = (sizes.weights.total() + sizes.optimizer.total()) as usize;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(folder.path()));
        let run = Run::new(&storage, &config, "made up");
        let snapshot = Snapshot::new(&run, &state, &World::solo());
        let (_, counted) = count(0, || (0..3).for_each(|_| step(&config, &mut state)));
        println!("{momentum_dtype:?}: {counted:?}, alone {alone:?}, a copy {copy}");
        let bound = alone.growth + copy + STACK_BYTES / 5;
        assert!(counted.growth < bound, "{counted:?}, needed below {bound}");
        // All of it is copied but what no update changes: the biases of routers.
        assert!(counted.kept > copy as isize * 9 / 10, "{counted:?}: nothing was copied");
        let files = snapshot.write(&*storage, &Pace::none()).expect("written");
        assert_eq!(files, needed.files, "the files of the step of the snapshot");
        // What was held is free.
        let (_, counted) = count(0, || step(&config, &mut state));
        assert!(counted.kept.unsigned_abs() < 100_000, "{counted:?}");
    }
}

#[test]
fn first_weights_are_made_one_parameter_at_a_time() {
    let _turn = turn();
    let config = config(MomentumDtype::F32);
    let device = Device::flex();
    let (state, counted) =
        count(0, || TrainState::new(&config, &World::solo(), &device).expect("state"));
    let weights = Sizes::of(&state).weights.total() as usize;
    let bound = weights + STACK_BYTES / 5;
    assert!(counted.growth < bound, "{counted:?}, needed below {bound}");
}

#[test]
fn a_load_frees_each_old_weight_when_the_new_one_is_there() {
    let _turn = turn();
    let config = config(MomentumDtype::F32);
    let (world, device) = (World::solo(), Device::flex());
    let mut state = TrainState::new(&config, &world, &device).expect("state");
    step(&config, &mut state);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(folder.path()));
    let run = Run::new(&storage, &config, "made up");
    checkpoint::save(&run, &state, &world).expect("saved");
    let manifest = Manifest::read(&*storage, 1).expect("a manifest");
    let mut fresh = TrainState::new(&config, &world, &device).expect("state");
    let (restored, counted) =
        count(0, || restore(&manifest, &run, &world, &device, &mut fresh).expect("restored"));
    assert!(matches!(restored, Restored::Whole(_)), "{restored:?}");
    // The moments, which were not there before, and two stacks: one that takes its place in the
    // model, and the next one with the pieces that it is put together of.
    let moments = Sizes::of(&fresh).optimizer.total() as usize;
    let bound = moments + 3 * STACK_BYTES;
    assert!(counted.growth < bound, "{counted:?}, needed below {bound}");
    assert_eq!(fresh.optimizer.export(), state.optimizer.export());
}
