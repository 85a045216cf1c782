//! A rank's part of a step: forward and backward over its rows, micro-batch by micro-batch.

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_data::Batch;
use fulmar_ep::{TokenDispatcher, World};
use fulmar_model::moe::LayerStats;
use fulmar_model::moe::balance::Balancing;
use fulmar_model::moe::quantile::{MarginStats, QuantileBalancing};
use fulmar_model::{BackwardPlan, GradientSink, ModelError, ModelInput, Transformer};

use crate::layer_report::LayerReport;
use crate::optim::Gradients;
use crate::step::StepContext;

/// Sums of one step over this rank's micro-batches.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Over scored positions.
    pub(crate) cross_entropy: f64,
    /// Of logsumexp^2, over scored positions.
    pub(crate) z: f64,
    /// Over rows.
    pub(crate) sequence_balance: Option<f64>,
    pub(crate) layers: Vec<(LayerReport, MarginStats)>,
}

/// Forward and backward over this rank's rows of `batch`, the whole step's; gradients are added to
/// `gradients`.
pub(crate) fn accumulate<D: TokenDispatcher>(
    model: &Transformer,
    batch: &Batch,
    context: &StepContext<'_, D>,
    gradients: &mut Gradients,
) -> Result<Sums, ModelError> {
    let scored = batch.num_scored() as f64;
    let mut sums = Sums { cross_entropy: 0.0, z: 0.0, sequence_balance: None, layers: Vec::new() };
    let sink = GradientSink::default();
    let plan = BackwardPlan { recompute: context.recompute, gradients: &sink };
    let rows = own_rows(batch.num_rows, context.world);
    for start in rows.clone().step_by(context.micro_rows) {
        let micro = batch.rows(start..rows.end.min(start + context.micro_rows));
        let input = input(&micro, context.device);
        let output =
            model.forward_by(Some(&plan), &input, context.dispatcher, Some(context.balancing))?;
        let (targets, weight) = targets(&micro, context.device);
        let loss = model.loss_by(&plan, output.hidden, targets, weight, context.z_loss);
        // Scored positions and rows of the whole step: micro-batches and ranks add up to its means.
        let mut objective = loss.total.div_scalar(scored);
        if let Some(of_rows) = output.sequence_balance {
            let sum = of_rows.sum();
            let weight = context.sequence_balance_loss / batch.num_rows as f64;
            let value = f64::from(sum.clone().into_scalar::<f32>());
            sums.sequence_balance = Some(sums.sequence_balance.unwrap_or(0.0) + value);
            // In this order blocks that are computed again have the bits of others
            // (`computed_again`).
            objective = sum.mul_scalar(weight) + objective;
        }
        objective.backward();
        context.pulse.beat();
        sums.cross_entropy += f64::from(loss.cross_entropy_sum.into_scalar::<f32>());
        sums.z += f64::from(loss.z_sum.into_scalar::<f32>());
        sums.merge(output.layers, context.balancing);
    }
    gradients.add_from(model, &sink);
    Ok(sums)
}

impl Sums {
    fn merge(&mut self, layers: Vec<LayerStats<MarginStats>>, balancing: &QuantileBalancing) {
        let layers = layers.into_iter().map(|layer| {
            let (routing, margins) = layer.training.expect("training observes every layer");
            (LayerReport::of_micro_batch(&layer.dispatch, routing), margins)
        });
        if self.layers.is_empty() {
            self.layers = layers.collect();
            return;
        }
        let so_far = std::mem::take(&mut self.layers);
        let merged =
            so_far.into_iter().zip(layers).map(|((mut report, margins), (more, other))| {
                report.add(&more);
                (report, balancing.merge(margins, other))
            });
        self.layers = merged.collect();
    }
}

/// The rows of a batch that are this rank's: equal shares, in the order of ranks.
fn own_rows(num_rows: usize, world: &World) -> Range<usize> {
    let (rank, ranks) = (world.rank(), world.layout.ranks());
    num_rows * rank / ranks..num_rows * (rank + 1) / ranks
}

fn input(batch: &Batch, device: &Device) -> ModelInput {
    let Batch { tokens, segment_ids, token_valid, .. } = batch.clone();
    ModelInput::new(tokens, segment_ids, token_valid, [batch.num_rows, batch.seq_len], device)
}

fn targets(batch: &Batch, device: &Device) -> (Tensor<1, Int>, Tensor<1>) {
    let len = batch.targets.len();
    let targets = TensorData::new(batch.targets.clone(), [len]);
    let weight = TensorData::new(batch.loss_weight.clone(), [len]);
    (Tensor::from_data(targets, device), Tensor::from_data(weight, device))
}
