//! What an export allocates, and a model that is loaded from one.

use std::sync::Arc;

use burn::tensor::Device;
use fulmar_ep::World;
use fulmar_model::Preset;
use fulmar_tests::memory::count;
use fulmar_train::RunConfig;
use fulmar_train::checkpoint::{self, Run};
use fulmar_train::interchange::{ExportDtype, ExportOptions, Folder, Saved, export, load};
use fulmar_train::state::TrainState;
use fulmar_train::storage::{LocalStorage, Storage};

use super::turn;

/// Twelve stacks of 384 experts of 64 x 48, larger than all else together.
fn config() -> RunConfig {
    let mut config = RunConfig::preset(Preset::MiniD96);
    let model = &mut config.model;
    (model.hidden_dim, model.num_layers, model.num_heads) = (64, 4, 2);
    (model.latent_dim, model.intermediate_dim) = (64, 48);
    (model.shared_intermediate_dim, model.max_seq_len) = (32, 32);
    config.validate().expect("a valid shape");
    config
}

const STACK_BYTES: usize = 384 * 64 * 48 * 4;

#[test]
fn an_export_holds_a_tensor_at_a_time_and_a_load_one_beside_the_model() {
    let _turn = turn();
    let config = config();
    let place = tempfile::tempdir().expect("a temporary folder");
    let run = place.path().join("run");
    let state = TrainState::new(&config, &World::solo(), &Device::flex()).expect("state");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(run.join("checkpoints")));
    checkpoint::save(&Run::new(&storage, &config, "none"), &state, &World::solo()).expect("saved");
    drop(state);
    let model_bytes = config.model.num_params() as usize * 4;
    for dtype in [ExportDtype::F32, ExportDtype::Bf16] {
        let out = place.path().join(format!("{dtype:?}"));
        let options = ExportOptions { out, dtype, max_shard_bytes: u64::MAX, check: false };
        let (_, counted) = count(STACK_BYTES, || {
            let saved = Saved::find(&run.join("checkpoints"), None).expect("saved");
            export(&saved, &options).expect("exported")
        });
        // A slice and the stack put together from it, or a stack and the same turned or rounded;
        // what is left over is the tokenizer.
        let stacks = counted.growth as f64 / STACK_BYTES as f64;
        let whole = model_bytes as f64 / STACK_BYTES as f64;
        println!("{dtype:?}: an export held {stacks:.2} stacks at most, the model is {whole:.1}");
        assert!(stacks < 4.0, "{dtype:?}: {counted:?}");
        assert!(counted.largest <= STACK_BYTES, "{dtype:?}: {counted:?}");

        let folder = Folder::open(&options.out).expect("whole");
        let experts = 0..config.model.num_experts;
        let (_, counted) = count(STACK_BYTES, || load(&folder, experts, &Device::flex()));
        let beside = (counted.growth - model_bytes) as f64 / STACK_BYTES as f64;
        println!("{dtype:?}: a load held {beside:.2} stacks beside the model");
        assert!(beside < 3.5, "{dtype:?}: {counted:?}");
    }
}
