//! What updates, saves and loads allocate.

use burn::tensor::Device;
use fulmar_ep::transport::Group;
use fulmar_ep::{Local, World};
use fulmar_model::Preset;
use fulmar_tests::made_up::batch;
use fulmar_tests::memory::count;
use fulmar_train::RunConfig;
use fulmar_train::checkpoint::load::{Source, restore};
use fulmar_train::checkpoint::save::Run;
use fulmar_train::checkpoint::{self, Manifest};
use fulmar_train::optim::{Gradients, MomentumDtype};
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;
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
    let rates = state.optimizer.rates(0.5, 0.1);
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
        let rates = state.optimizer.rates(0.5, 0.1);
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
fn a_save_copies_one_tensor_at_a_time() {
    let _turn = turn();
    let config = config(MomentumDtype::F32);
    let mut state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
    step(&config, &mut state);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = Run { folder: folder.path(), config: &config, data: "made up" };
    let (saved, counted) = count(0, || checkpoint::save(&run, &state, &World::solo()));
    saved.expect("saved");
    // The tensor as it is read, its bytes on their way to the file, and the writer's buffer.
    let bound = 2 * STACK_BYTES + (1 << 20) + STACK_BYTES / 5;
    assert!(counted.growth < bound, "{counted:?}, needed below {bound}");
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
    let run = Run { folder: folder.path(), config: &config, data: "made up" };
    let path = checkpoint::save(&run, &state, &world).expect("saved");
    let manifest = Manifest::read(&path).expect("a manifest");
    let from = Source { path: &path, manifest: &manifest, experts: 0..config.model.num_experts };
    let mut fresh = TrainState::new(&config, &world, &device).expect("state");
    let (restored, counted) = count(0, || restore(&from, &config, "made up", &device, &mut fresh));
    restored.expect("restored");
    // The moments, which were not there before, and a stack: as its slices lie in the file, and put
    // together.
    let moments = Sizes::of(&fresh).optimizer.total() as usize;
    let bound = moments + 3 * STACK_BYTES;
    assert!(counted.growth < bound, "{counted:?}, needed below {bound}");
    assert_eq!(fresh.optimizer.export(), state.optimizer.export());
}
