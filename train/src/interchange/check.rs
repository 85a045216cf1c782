//! The proof of an export: the same logits from the checkpoint and from what was written.

use burn::tensor::{DType, Device, TensorData};
use fulmar_data::{Batch, Tokenizer};
use fulmar_ep::Dispatcher;
use fulmar_ep::transport::Group;
use fulmar_eval::ModelScorer;
use fulmar_model::ModelConfig;
use serde::Serialize;

use super::write::stored_as;
use super::{Exchanged, ExportDtype, Weights, load};
use crate::error::TrainError;

/// What is read; the last is repeated until it is longer than the window of local layers.
const PROMPTS: [&str; 3] = [
    "And the Lord said unto ",
    "fn main() { println!(\"{}\", 7 * 6); } // \u{e9}\u{4e2d}\u{1f980}\n",
    "The rain had stopped before the gulls came back, and nobody on the pier said a word. ",
];
/// Positions past the window that the last prompt reaches.
const PAST_WINDOW: usize = 8;
/// Positions at the end of a prompt whose logits are compared.
const COMPARED: usize = 16;

/// The comparison of an export with its checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// One entry a prompt.
    pub prompts: Vec<PromptCheck>,
    /// Largest difference that is allowed, over the largest logit of the prompt; 0 for f32.
    pub allowed: f64,
}

/// One prompt's logits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptCheck {
    /// Tokens read.
    pub tokens: usize,
    /// Logits compared.
    pub logits: usize,
    /// The largest by magnitude, of the checkpoint.
    pub largest: f64,
    /// Logits that have other bits than the checkpoint with its weights rounded to the type of the
    /// export.
    pub other_bits: usize,
    /// Largest difference from the checkpoint as it is.
    pub difference: f64,
}

impl Check {
    /// Reads three prompts with the weights of `source`, with the same rounded, and with those that
    /// were `written`; one model at a time.
    pub(super) fn new(
        source: &dyn Weights,
        written: &dyn Weights,
        tokenizer: &Tokenizer,
        dtype: ExportDtype,
    ) -> Result<Self, TrainError> {
        let model = source.model();
        let prompts: Vec<Batch> = prompts(model, tokenizer)?;
        let exact = logits(source, &prompts)?;
        let rounded = match dtype {
            ExportDtype::F32 => None,
            ExportDtype::Bf16 => Some(logits(&Rounded { source, dtype }, &prompts)?),
        };
        let found = logits(written, &prompts)?;
        let rounded = rounded.as_ref().unwrap_or(&exact).iter();
        let checks = prompts.iter().zip(&exact).zip(rounded).zip(&found);
        let checks = checks.map(|(((prompt, exact), rounded), found)| PromptCheck {
            tokens: prompt.seq_len,
            logits: exact.len(),
            largest: exact.iter().fold(0.0, |largest, value| largest.max(magnitude(*value))),
            other_bits: pairs(rounded, found).filter(|(a, b)| a.to_bits() != b.to_bits()).count(),
            difference: pairs(exact, found)
                .fold(0.0, |largest, (a, b)| largest.max((f64::from(a) - f64::from(b)).abs())),
        });
        Ok(Self { prompts: checks.collect(), allowed: allowed(model, dtype) })
    }

    /// What is wrong, if anything is.
    pub(super) fn problem(&self) -> Option<String> {
        for (index, prompt) in self.prompts.iter().enumerate() {
            let number = index + 1;
            if prompt.other_bits > 0 {
                let PromptCheck { other_bits, logits, difference, .. } = prompt;
                return Some(format!(
                    "prompt {number}: {other_bits} of {logits} logits have other bits than those of \
                     the checkpoint (largest difference {difference:e})"
                ));
            }
            let allowed = self.allowed * prompt.largest;
            // Also of a difference that is no number.
            if !(prompt.difference <= allowed) {
                let found = prompt.difference;
                return Some(format!(
                    "prompt {number}: logits differ by {found:e}, needed at most {allowed:e}"
                ));
            }
        }
        None
    }

    /// A line for each prompt.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "prompt  tokens   logits   largest   other bits   largest difference   allowed\n",
        );
        for (index, prompt) in self.prompts.iter().enumerate() {
            let PromptCheck { tokens, logits, largest, other_bits, difference } = prompt;
            text += &format!(
                "  {:<5} {tokens:>6} {logits:>8} {largest:>9.4} {other_bits:>12} {difference:>20.3e} \
                 {:>9.1e}\n",
                index + 1,
                self.allowed * largest,
            );
        }
        text
    }
}

/// Largest difference over the largest logit that rounding may cause.
///
/// Rounding to bf16 changes a weight by at most 2^-9 of itself, so a product by about as much of its
/// own size. A path of the model goes through two sub-layers a block and the head; what a sub-layer
/// adds to the stream comes out of two to three products in a row, 2^-8 when their errors are drawn
/// and not all of one sign, and at worst all sub-layers' errors add up. A token whose last expert
/// changes with the rounding exchanges two experts of nearly equal weight, which that sum covers
/// for one sub-layer in a few. Larger differences than that are no rounding.
fn allowed(model: &ModelConfig, dtype: ExportDtype) -> f64 {
    match dtype {
        ExportDtype::F32 => 0.0,
        ExportDtype::Bf16 => (2 * model.num_layers + 1) as f64 * 2f64.powi(-8),
    }
}

/// Weights as they are after a round trip through the type of the export, in memory.
struct Rounded<'a> {
    source: &'a dyn Weights,
    dtype: ExportDtype,
}

impl Weights for Rounded<'_> {
    fn model(&self) -> &ModelConfig {
        self.source.model()
    }

    fn read(&self, parameter: &Exchanged) -> Result<TensorData, TrainError> {
        let data = self.source.read(parameter)?;
        Ok(data.convert_dtype(stored_as(parameter, self.dtype)).convert_dtype(DType::F32))
    }
}

fn prompts(model: &ModelConfig, tokenizer: &Tokenizer) -> Result<Vec<Batch>, TrainError> {
    let mut prompts = Vec::new();
    for (index, text) in PROMPTS.iter().enumerate() {
        let mut ids = vec![tokenizer.bos_id()];
        let of_text = tokenizer.encode(text)?;
        let len = if index + 1 < PROMPTS.len() {
            1 + of_text.len()
        } else {
            (model.sliding_window + PAST_WINDOW).max(1 + of_text.len())
        };
        ids.extend(of_text.iter().cycle().take(len.min(model.max_seq_len) - 1));
        prompts.push(row(&ids));
    }
    Ok(prompts)
}

/// One row that is one document without padding; its targets are not read.
fn row(ids: &[u32]) -> Batch {
    let len = ids.len();
    Batch {
        num_rows: 1,
        seq_len: len,
        first_row: 0,
        tokens: ids.iter().map(|&id| id as i32).collect(),
        targets: vec![0; len],
        loss_weight: vec![0.0; len],
        segment_ids: vec![0; len],
        token_valid: vec![true; len],
        cells: vec![0],
    }
}

/// Logits of the last positions of each prompt, on the CPU, whose sums have one order.
fn logits(source: &dyn Weights, prompts: &[Batch]) -> Result<Vec<Vec<f32>>, TrainError> {
    let device = Device::flex();
    let num_experts = source.model().num_experts;
    let model = load(source, 0..num_experts, &device)?;
    let dispatcher = Dispatcher::dropless(num_experts, &Group::solo())?;
    let scorer = ModelScorer::new(&model, &dispatcher, &device);
    let mut of_prompts = Vec::new();
    for prompt in prompts {
        let compared = prompt.seq_len.saturating_sub(COMPARED)..prompt.seq_len;
        let logits = scorer.logits(prompt, compared)?.into_data();
        of_prompts.push(logits.iter::<f32>().collect());
    }
    Ok(of_prompts)
}

fn pairs<'a>(left: &'a [f32], right: &'a [f32]) -> impl Iterator<Item = (f32, f32)> + 'a {
    left.iter().copied().zip(right.iter().copied())
}

fn magnitude(value: f32) -> f64 {
    f64::from(value).abs()
}
