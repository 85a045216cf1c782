//! One training step, in the order of SPEC section 4: pending balance to bias, forward and
//! backward, finiteness, update, new pending balance.

use std::time::Instant;

use burn::tensor::Device;
use fulmar_data::Batch;
use fulmar_ep::transport::TransportError;
use fulmar_ep::{DispatchCounts, EpError, TokenDispatcher, World};
use fulmar_model::config::RouterBalance;
use fulmar_model::moe::balance::Balancing;
use fulmar_model::moe::quantile::{MarginStats, QuantileBalancing};
use fulmar_model::moe::router::Router as _;
use fulmar_model::{ModelError, Recompute, Transformer};

use crate::accumulate::{Sums, accumulate};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::layer_report::LayerReport;
use crate::optim::{Gradients, Norms, StepRates};
use crate::state::TrainState;
use crate::watchdog::{Phase, Pulse};

/// What a step needs beside the state and the batch.
#[derive(Debug)]
pub struct StepContext<'a, D> {
    /// The ranks that take the step together.
    pub world: &'a World,
    /// Carries rows to experts and back.
    pub dispatcher: &'a D,
    /// Balances experts.
    pub balancing: &'a QuantileBalancing,
    /// Whether it does.
    pub balance: RouterBalance,
    /// Experts of a layer.
    pub num_experts: usize,
    /// Weight of mean(logsumexp^2) in the loss.
    pub z_loss: f64,
    /// Weight of the sequence balance loss; the model returns one where this is above 0.
    pub sequence_balance_loss: f64,
    /// Rows of one forward pass of this rank.
    pub micro_rows: usize,
    /// What the backward pass computes again.
    pub recompute: Recompute,
    /// The device of the model.
    pub device: &'a Device,
    /// Where the step says how far it is.
    pub pulse: Pulse,
}

impl<'a, D> StepContext<'a, D> {
    /// The context of every step of a run in which `dispatcher` carries rows.
    pub fn new(
        config: &RunConfig,
        world: &'a World,
        dispatcher: &'a D,
        balancing: &'a QuantileBalancing,
        device: &'a Device,
    ) -> Self {
        Self {
            world,
            dispatcher,
            balancing,
            balance: config.model.balance,
            num_experts: config.model.num_experts,
            z_loss: config.model.z_loss,
            sequence_balance_loss: config.model.sequence_balance_loss,
            micro_rows: config.micro_rows() as usize,
            recompute: config.memory.recompute,
            device,
            pulse: Pulse::default(),
        }
    }

    /// The same, with steps that say how far they are.
    #[must_use]
    pub fn watched_by(self, pulse: Pulse) -> Self {
        Self { pulse, ..self }
    }
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
    /// The same, and that of each role and layer; none where no gradient is known.
    pub grad_norms: Norms,
    /// One entry a layer.
    pub layers: Vec<LayerReport>,
    /// Smallest and largest router bias in force during the step.
    pub bias_range: (f32, f32),
    /// False if loss or gradient were not finite and nothing was updated.
    pub updated: bool,
    /// Where the time went.
    pub seconds: StepSeconds,
}

/// Seconds of the parts of a step on this rank; the rest is waiting for others and small sums.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepSeconds {
    /// Forward and backward over all micro-batches.
    pub forward_backward: f64,
    /// The update of all parameters; 0 where nothing was updated.
    pub update: f64,
}

impl TrainState {
    /// Takes one step; `batch` is the whole step's, of which each rank takes its own rows. A step
    /// whose loss or gradient is not finite, on whichever rank, changes nothing but the position
    /// in the data.
    ///
    /// # Errors
    /// If the exchange fails, or a trained parameter gets no gradient.
    pub fn step<D: TokenDispatcher>(
        &mut self,
        batch: &Batch,
        rates: StepRates,
        context: &StepContext<'_, D>,
    ) -> Result<StepReport, TrainError> {
        let world = context.world;
        let model = self.model.clone().with_pending(context.balancing, &self.pending);
        let bias_range = bias_range(&model);
        let mut gradients = Gradients::default();
        context.pulse.enter(Phase::ForwardBackward);
        let started = Instant::now();
        let sums = routed(accumulate(&model, batch, context, &mut gradients))?;
        let forward_backward = started.elapsed().as_secs_f64();
        let mut seconds = StepSeconds { forward_backward, update: 0.0 };
        context.pulse.enter(Phase::Gradients);
        self.batches += 1;
        // The ranks of another replica know nothing of scores that are not finite here.
        if world.all.sum_u64("not routed", &[u64::from(sums.is_none())])?[0] > 0 {
            return Ok(StepReport::not_routed(bias_range));
        }
        let sums = sums.expect("every rank has routed");

        let gradients = gradients.over_ranks(self.optimizer.table(), world)?;
        let grad_norms = gradients.norms_over_ranks(self.optimizer.table(), world)?;
        let grad_norm = grad_norms.total;
        let of_rows = sums.sequence_balance;
        let own = [sums.cross_entropy, sums.z, of_rows.unwrap_or(0.0)];
        let totals = world.all.sum_f64("loss", &own)?;
        let scored = batch.num_scored() as f64;
        let (cross_entropy, z) = (totals[0] / scored, totals[1] / scored);
        let loss = cross_entropy + context.z_loss * z;
        let sequence_balance = of_rows.map(|_| totals[2] / batch.num_rows as f64);
        let updated = loss.is_finite() && grad_norm.is_finite();
        context.pulse.enter(Phase::Update);
        let (layers, margins): (Vec<_>, Vec<_>) = sums.layers.into_iter().unzip();
        if updated {
            let pending = self.next_pending(&margins, context)?;
            // The one handle on the weights, so that they are updated in place.
            self.model = model;
            let started = Instant::now();
            self.optimizer.step(&mut self.model, gradients, rates, &world.expert)?;
            seconds.update = started.elapsed().as_secs_f64();
            self.pending = pending;
            self.step += 1;
        }
        let layers = LayerReport::over_ranks(layers, &world.all)?;
        Ok(StepReport {
            loss,
            cross_entropy,
            z,
            sequence_balance,
            grad_norm,
            grad_norms,
            layers,
            bias_range,
            updated,
            seconds,
        })
    }

    fn next_pending<D>(
        &self,
        margins: &[MarginStats],
        context: &StepContext<'_, D>,
    ) -> Result<Vec<Vec<f32>>, TransportError> {
        if context.balance == RouterBalance::None {
            // Quantiles of 0 for every expert are a bias of 0.
            return Ok(vec![vec![0.0; context.num_experts]; margins.len()]);
        }
        let layers = margins.iter().enumerate().map(|(layer, margins)| {
            let previous = self.pending.get(layer).map_or(&[][..], Vec::as_slice);
            context.balancing.pending(previous, margins, &context.world.all)
        });
        layers.collect()
    }
}

/// None where a router's scores were not finite, here or on another shard of the replica: all its
/// shards stop in the same layer.
fn routed(sums: Result<Sums, ModelError>) -> Result<Option<Sums>, ModelError> {
    use EpError::{NotRouted, PeerNotRouted};
    match sums {
        Err(ModelError::Dispatch { source: NotRouted { .. } | PeerNotRouted { .. }, .. }) => {
            Ok(None)
        }
        sums => sums.map(Some),
    }
}

impl StepReport {
    /// The fate of the assignments of all layers.
    pub fn counts(&self) -> DispatchCounts {
        let mut counts = DispatchCounts::default();
        self.layers.iter().for_each(|layer| counts += layer.counts);
        counts
    }

    /// Router scores that are not finite stop a forward pass: nothing else is known.
    fn not_routed(bias_range: (f32, f32)) -> Self {
        let unknown = f64::NAN;
        Self {
            loss: unknown,
            cross_entropy: unknown,
            z: unknown,
            sequence_balance: None,
            grad_norm: unknown,
            grad_norms: Norms::default(),
            layers: Vec::new(),
            bias_range,
            updated: false,
            seconds: StepSeconds::default(),
        }
    }
}

fn bias_range(model: &Transformer) -> (f32, f32) {
    let biases = model.layers.iter().filter_map(|block| block.moe.router.bias());
    let values = biases.flat_map(|bias| bias.into_data().iter::<f32>().collect::<Vec<_>>());
    values.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}
