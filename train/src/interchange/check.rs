//! The proof of an export: the same logits from the checkpoint and from what was written.

use burn::tensor::{DType, Device, TensorData};
use fulmar_data::{Batch, Tokenizer};
use fulmar_ep::Dispatcher;
use fulmar_ep::transport::Group;
use fulmar_eval::ModelScorer;
use fulmar_model::config::RouterDot;
use fulmar_model::{Compute, ModelConfig};
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
    /// Largest relative difference of a prompt that is allowed; 0 for f32.
    pub allowed: f64,
}

/// One prompt's logits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptCheck {
    /// Tokens read.
    pub tokens: usize,
    /// Logits compared.
    pub logits: usize,
    /// Logits that have other bits than the checkpoint with its weights rounded to the type of the
    /// export.
    pub other_bits: usize,
    /// The largest logit by magnitude, of the checkpoint as it is.
    pub largest: f64,
    /// Largest difference from the checkpoint as it is.
    pub largest_difference: f64,
    /// Root mean square of these differences over that of the logits.
    pub relative_difference: f64,
}

impl Check {
    /// Reads three prompts with the weights of `source`, with the same rounded, and with those that
    /// were `written`; one model at a time.
    ///
    /// # Errors
    /// If a weight cannot be read or a forward pass fails.
    pub fn new(
        source: &dyn Weights,
        written: &dyn Weights,
        tokenizer: &Tokenizer,
        dtype: ExportDtype,
    ) -> Result<Self, TrainError> {
        let model = source.model();
        let prompts: Vec<Batch> = prompts(model, tokenizer)?;
        let exact = logits(&Seen::new(source, ExportDtype::F32), &prompts)?;
        let rounded = match dtype {
            ExportDtype::F32 => None,
            ExportDtype::Bf16 => Some(logits(&Seen::new(source, dtype), &prompts)?),
        };
        let found = logits(&Seen::new(written, ExportDtype::F32), &prompts)?;
        let rounded = rounded.as_ref().unwrap_or(&exact).iter();
        let checks = prompts.iter().zip(&exact).zip(rounded).zip(&found);
        let checks = checks.map(|(((prompt, exact), rounded), found)| PromptCheck {
            tokens: prompt.seq_len,
            logits: exact.len(),
            other_bits: pairs(rounded, found).filter(|(a, b)| a.to_bits() != b.to_bits()).count(),
            largest: largest(exact.iter().map(|value| f64::from(*value))),
            largest_difference: largest(differences(exact, found)),
            relative_difference: square_sum(differences(exact, found)).sqrt()
                / square_sum(exact.iter().map(|value| f64::from(*value))).sqrt(),
        });
        Ok(Self { prompts: checks.collect(), allowed: allowed(model, dtype) })
    }

    /// What is wrong, if anything is.
    pub fn problem(&self) -> Option<String> {
        for (index, prompt) in self.prompts.iter().enumerate() {
            let number = index + 1;
            let PromptCheck { other_bits, logits, largest_difference, .. } = prompt;
            if *other_bits > 0 {
                return Some(format!(
                    "prompt {number}: {other_bits} of {logits} logits have other bits than those of \
                     the checkpoint (largest difference {largest_difference:.3e})"
                ));
            }
            // A difference that is no number is not allowed either.
            let (found, allowed) = (prompt.relative_difference, self.allowed);
            if found > allowed || found.is_nan() {
                return Some(format!(
                    "prompt {number}: logits differ by {found:.3e} of their size, needed at most \
                     {allowed:.3e}"
                ));
            }
        }
        None
    }

    /// A line for each prompt.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "prompt   tokens    logits  other bits   largest logit  largest diff.  relative diff.\n",
        );
        for (index, prompt) in self.prompts.iter().enumerate() {
            let PromptCheck { tokens, logits, other_bits, .. } = prompt;
            text += &format!(
                "  {:<5} {tokens:>7} {logits:>9} {other_bits:>11} {:>15.4} {:>14.3e} {:>15.3e}\n",
                index + 1,
                prompt.largest,
                prompt.largest_difference,
                prompt.relative_difference,
            );
        }
        text + &format!("  relative differences up to {:.3e} are allowed\n", self.allowed)
    }
}

/// The relative difference that the rounding of weights may cause.
///
/// Rounding to bf16 changes a weight by at most 2^-9 of itself and so a product by about as much of
/// its own size. The stream is the sum of what two sub-layers a block add to it, and the head is one
/// product more; a sub-layer is two or three products in a row, 2^-8 together since their errors are
/// drawn, and at worst the errors of all sub-layers have one direction: (2 layers + 1) 2^-8. It is a
/// rule for the whole of a prompt and not for its largest difference: where rounding changes the
/// last expert that one token chooses, its logits move at once, by what no rule knows.
fn allowed(model: &ModelConfig, dtype: ExportDtype) -> f64 {
    match dtype {
        ExportDtype::F32 => 0.0,
        ExportDtype::Bf16 => (2 * model.num_layers + 1) as f64 * 2f64.powi(-8),
    }
}

/// Weights in a model that computes in f32, whatever the recipe says: what is compared are weights.
/// They are as after a round trip through a type, in memory; f32 leaves them as they are.
struct Seen<'a> {
    source: &'a dyn Weights,
    model: ModelConfig,
    rounded_to: ExportDtype,
}

impl<'a> Seen<'a> {
    fn new(source: &'a dyn Weights, rounded_to: ExportDtype) -> Self {
        let (compute, router_dot) = (Compute::F32, RouterDot::F32);
        let model = ModelConfig { compute, router_dot, ..source.model().clone() };
        Self { source, model, rounded_to }
    }
}

impl Weights for Seen<'_> {
    fn model(&self) -> &ModelConfig {
        &self.model
    }

    fn read(&self, parameter: &Exchanged) -> Result<TensorData, TrainError> {
        let data = self.source.read(parameter)?;
        Ok(data.convert_dtype(stored_as(parameter, self.rounded_to)).convert_dtype(DType::F32))
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
        prompts.push(Batch::of_document(&ids));
    }
    Ok(prompts)
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

fn differences<'a>(left: &'a [f32], right: &'a [f32]) -> impl Iterator<Item = f64> + 'a {
    pairs(left, right).map(|(a, b)| f64::from(a) - f64::from(b))
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |largest, value| largest.max(value.abs()))
}

fn square_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum()
}
