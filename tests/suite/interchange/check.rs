//! The comparison of logits finds what it is there for.

use burn::tensor::TensorData;
use fulmar::model::ModelConfig;
use fulmar::train::TrainError;
use fulmar::train::interchange::{self, Check, ExportDtype, Folder, Names, Weights};

use super::made::Made;

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
