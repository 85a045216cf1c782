//! The comparison of logits finds what it is there for.

use burn::tensor::TensorData;
use fulmar::ep::World;
use fulmar::model::{ModelConfig, weights};
use fulmar::train::interchange::{
    self, Check, ExportDtype, ExportOptions, Folder, Names, Saved, Weights, export,
};
use fulmar::train::{TrainError, checkpoint, exit};

use super::made::Made;
use crate::tiny::{Bench, Tiny};

/// Weights with two matrices of equal shape exchanged, as a slip in the names would leave them.
struct Swapped<'a>(&'a Folder);

impl Weights for Swapped<'_> {
    fn model(&self) -> &ModelConfig {
        self.0.model()
    }

    fn read(&self, parameter: &interchange::Exchanged) -> Result<TensorData, TrainError> {
        let path = match parameter.path.as_str() {
            "layers.0.moe.experts.w_gate" => "layers.0.moe.experts.w_up",
            "layers.0.moe.experts.w_up" => "layers.0.moe.experts.w_gate",
            other => other,
        };
        self.0.read(Names::of(self.model()).at_path(path).expect("there"))
    }
}

#[test]
fn swapped_matrices_and_weights_of_another_type_are_found_by_their_logits() {
    let made = Made::new(&[]);
    made.export("hf", ExportDtype::F32, u64::MAX);
    let folder = Folder::open(&made.tiny.path("hf")).expect("whole");
    let tokenizer = folder.tokenizer().expect("a tokenizer");
    let problem = |written: &dyn Weights, dtype| {
        Check::new(&made.saved, written, &tokenizer, dtype).expect("logits").problem()
    };
    assert_eq!(problem(&folder, ExportDtype::F32), None);
    let found = problem(&Swapped(&folder), ExportDtype::F32).expect("a problem");
    assert!(found.contains("logits have other bits"), "{found}");
    // f32 weights where bf16 was to be written are no rounded ones.
    let found = problem(&folder, ExportDtype::Bf16).expect("a problem");
    assert!(found.contains("logits have other bits"), "{found}");
}

#[test]
fn a_run_that_computes_in_bf16_is_compared_by_its_weights() {
    let made = Made::new(&["model.compute=bf16", "model.router_dot=bf16"]);
    for dtype in [ExportDtype::F32, ExportDtype::Bf16] {
        let check = made.export(&format!("{dtype:?}"), dtype, u64::MAX).check.expect("checked");
        assert!(check.prompts.iter().all(|prompt| prompt.other_bits == 0), "{}", check.table());
    }
}

#[test]
fn weights_that_are_no_numbers_leave_no_whole_export() {
    let tiny = Tiny::new();
    let Bench { config, data, mut state, .. } = Bench::new(tiny.config(&[]));
    let mut values = weights::export(&state.model);
    let head = values.get_mut("head.weight").expect("there");
    head.as_mut_slice::<f32>().expect("f32")[7] = f32::NAN;
    state.model = weights::import(state.model, |path| values.remove(path)).expect("all weights");
    let storage = tiny.storage("run");
    let run = checkpoint::Run::new(&storage, &config, &data.digest);
    checkpoint::save(&run, &state, &World::solo()).expect("saved");
    let saved = Saved::find(&tiny.path("run/checkpoints"), None).expect("saved");
    let (out, dtype, max_shard_bytes) = (tiny.path("hf"), ExportDtype::F32, u64::MAX);
    let error = export(&saved, &ExportOptions { out, dtype, max_shard_bytes, check: true });
    let error = error.expect_err("NaN");
    assert!(error.to_string().contains("logits differ by NaN"), "{error}");
    assert_eq!(exit::status_of(&error), exit::CHECKPOINT);
    let left = |name: &str| tiny.path("hf").join(name).exists();
    assert_eq!((left("model.safetensors"), left("config.json")), (true, false));
}
