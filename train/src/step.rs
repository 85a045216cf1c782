//! One training step, in the order of SPEC section 4: pending balance to bias, forward and
//! backward, finiteness, update, new pending balance.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_data::Batch;
use fulmar_ep::transport::{Group, TransportError};
use fulmar_ep::{DispatchCounts, TokenDispatcher};
use fulmar_model::moe::balance::Balancing;
use fulmar_model::moe::quantile::{MarginStats, QuantileBalancing};
use fulmar_model::moe::router::Router as _;
use fulmar_model::moe::{LayerStats, RoutingStats};
use fulmar_model::{ModelError, ModelInput, Transformer};

use crate::error::TrainError;
use crate::optim::{Gradients, StepRates};
use crate::state::TrainState;

/// What a step needs beside the state and the batch.
#[derive(Debug)]
pub struct StepContext<'a, D> {
    /// Carries rows to experts and back.
    pub dispatcher: &'a D,
    /// Balances experts.
    pub balancing: &'a QuantileBalancing,
    /// Weight of mean(logsumexp^2) in the loss.
    pub z_loss: f64,
    /// Weight of the sequence balance loss; the model returns one where this is above 0.
    pub sequence_balance_loss: f64,
    /// Rows of one forward pass.
    pub micro_rows: usize,
    /// The device of the model.
    pub device: &'a Device,
}

/// What a step found out.
#[derive(Debug, Clone)]
pub struct StepReport {
    /// Cross-entropy plus weighted z-loss, over all scored positions of the batch. What balances
    /// sequences is trained on too, but is no part of this: losses of runs stay comparable.
    pub loss: f64,
    /// Mean cross-entropy.
    pub cross_entropy: f64,
    /// Mean of logsumexp^2, before its weight.
    pub z: f64,
    /// Sequence balance loss, summed over layers and averaged over rows, before its weight; where
    /// it is trained on.
    pub sequence_balance: Option<f64>,
    /// Norm of the gradient over all parameters.
    pub grad_norm: f64,
    /// One entry a layer.
    pub layers: Vec<LayerReport>,
    /// Smallest and largest router bias in force during the step.
    pub bias_range: (f32, f32),
    /// False if loss or gradient were not finite and nothing was updated.
    pub updated: bool,
}

/// One layer over the whole step.
#[derive(Debug, Clone)]
pub struct LayerReport {
    /// The fate of its assignments.
    pub counts: DispatchCounts,
    /// Loads and diagnostics.
    pub routing: RoutingStats,
}

/// Sums of one step over its micro-batches.
struct Sums {
    scored: f64,
    cross_entropy: f64,
    z: f64,
    /// Over rows.
    sequence_balance: Option<f64>,
    layers: Vec<(LayerReport, MarginStats)>,
}

impl TrainState {
    /// Takes one step. A step whose loss or gradient is not finite changes nothing but the
    /// position in the data.
    ///
    /// # Errors
    /// If the exchange fails, or a trained parameter gets no gradient.
    pub fn step<D: TokenDispatcher>(
        &mut self,
        batch: &Batch,
        rates: StepRates,
        context: &StepContext<'_, D>,
    ) -> Result<StepReport, TrainError> {
        let model = self.model.clone().with_pending(context.balancing, &self.pending);
        let bias_range = bias_range(&model);
        let mut gradients = Gradients::default();
        let sums = match accumulate(&model, batch, context, &mut gradients) {
            Err(ModelError::Dispatch { source: fulmar_ep::EpError::NotRouted { .. }, .. }) => {
                self.batches += 1;
                return Ok(StepReport::not_routed(bias_range));
            }
            sums => sums?,
        };
        let grad_norm = gradients.norm();
        let (cross_entropy, z) = (sums.cross_entropy / sums.scored, sums.z / sums.scored);
        let loss = cross_entropy + context.z_loss * z;
        let sequence_balance = sums.sequence_balance.map(|sum| sum / batch.num_rows as f64);
        let updated = loss.is_finite() && grad_norm.is_finite();
        self.batches += 1;
        if updated {
            let pending = self.next_pending(&sums, context.balancing)?;
            self.model = self.optimizer.step(model, gradients, rates)?;
            self.pending = pending;
            self.step += 1;
        }
        let layers = sums.layers.into_iter().map(|(report, _)| report).collect();
        Ok(StepReport {
            loss,
            cross_entropy,
            z,
            sequence_balance,
            grad_norm,
            layers,
            bias_range,
            updated,
        })
    }
}

impl TrainState {
    fn next_pending(
        &self,
        sums: &Sums,
        balancing: &QuantileBalancing,
    ) -> Result<Vec<Vec<f32>>, TransportError> {
        let ranks = Group::solo();
        let layers = sums.layers.iter().enumerate().map(|(layer, (_, margins))| {
            let previous = self.pending.get(layer).map_or(&[][..], Vec::as_slice);
            balancing.pending(previous, margins, &ranks)
        });
        layers.collect()
    }
}

impl StepReport {
    /// Router scores that are not finite stop a forward pass: nothing else is known.
    fn not_routed(bias_range: (f32, f32)) -> Self {
        let unknown = f64::NAN;
        Self {
            loss: unknown,
            cross_entropy: unknown,
            z: unknown,
            sequence_balance: None,
            grad_norm: unknown,
            layers: Vec::new(),
            bias_range,
            updated: false,
        }
    }
}

fn accumulate<D: TokenDispatcher>(
    model: &Transformer,
    batch: &Batch,
    context: &StepContext<'_, D>,
    gradients: &mut Gradients,
) -> Result<Sums, ModelError> {
    let scored = batch.num_scored() as f64;
    let mut sums =
        Sums { scored, cross_entropy: 0.0, z: 0.0, sequence_balance: None, layers: Vec::new() };
    for start in (0..batch.num_rows).step_by(context.micro_rows) {
        let micro = batch.rows(start..batch.num_rows.min(start + context.micro_rows));
        let output = model.forward(
            &input(&micro, context.device),
            context.dispatcher,
            Some(context.balancing),
        )?;
        let (targets, weight) = targets(&micro, context.device);
        let loss = model.loss(output.hidden, targets, weight, context.z_loss);
        // Sums over global positions and rows: micro-batches add up to the whole batch's means.
        let mut objective = loss.total.div_scalar(scored);
        if let Some(of_rows) = output.sequence_balance {
            let sum = of_rows.sum();
            let weight = context.sequence_balance_loss / batch.num_rows as f64;
            let value = f64::from(sum.clone().into_scalar::<f32>());
            sums.sequence_balance = Some(sums.sequence_balance.unwrap_or(0.0) + value);
            objective = objective + sum.mul_scalar(weight);
        }
        gradients.add(model, objective.backward());
        sums.cross_entropy += f64::from(loss.cross_entropy_sum.into_scalar::<f32>());
        sums.z += f64::from(loss.z_sum.into_scalar::<f32>());
        sums.merge(output.layers, context.balancing);
    }
    Ok(sums)
}

impl Sums {
    fn merge(&mut self, layers: Vec<LayerStats<MarginStats>>, balancing: &QuantileBalancing) {
        let layers = layers.into_iter().map(|layer| {
            let (routing, margins) = layer.training.expect("training observes every layer");
            (LayerReport { counts: layer.dispatch.counts, routing }, margins)
        });
        if self.layers.is_empty() {
            self.layers = layers.collect();
            return;
        }
        let so_far = std::mem::take(&mut self.layers);
        let merged =
            so_far.into_iter().zip(layers).map(|((mut report, margins), (more, other))| {
                report.counts += more.counts;
                report.routing.add(&more.routing);
                (report, balancing.merge(margins, other))
            });
        self.layers = merged.collect();
    }
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

fn bias_range(model: &Transformer) -> (f32, f32) {
    let biases = model.layers.iter().filter_map(|block| block.moe.router.bias());
    let values = biases.flat_map(|bias| bias.into_data().iter::<f32>().collect::<Vec<_>>());
    values.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}
