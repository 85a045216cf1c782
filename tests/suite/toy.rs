//! A model that any number of ranks up to 16 trains on made-up rows: no text, no files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar::data::Batch;
use fulmar::ep::transport::{WorldError, run_world};
use fulmar::ep::{DispatchConfig, Dispatcher, Layout, Payload, TokenDispatcher, World};
use fulmar::model::{BackwardPlan, GradientSink, ModelInput, Recompute, weights};
use fulmar::prelude::QuantileBalancing;
use fulmar::train::checkpoint::load::{Restored, restore};
use fulmar::train::checkpoint::save::Saved;
use fulmar::train::checkpoint::{self, Manifest, Run};
use fulmar::train::optim::Gradients;
use fulmar::train::state::{self, TrainState};
use fulmar::train::step::{StepContext, StepReport};
use fulmar::train::storage::{LocalStorage, Storage};
use fulmar::train::{DeviceChoice, RunConfig, TrainError, device, recipe};

pub(crate) const RECIPE: &str = r#"
name = "toy"
seed = 5
[model]
preset = "mini_d96"
vocab_size = 64
hidden_dim = 32
num_layers = 2
num_heads = 2
head_dim = 16
num_experts = 16
num_experts_per_token = 3
intermediate_dim = 16
latent_dim = 16
shared_intermediate_dim = 16
num_shared_experts = 1
max_seq_len = 32
sliding_window = 16
gated_norm_rank = 4
[batch]
rows = 32
[schedule]
steps = 10
"#;

/// A storage below `folder`.
pub(crate) fn storage_in(folder: &Path) -> Arc<dyn Storage> {
    Arc::new(LocalStorage::new(folder))
}

/// Longer than any wait of a sound test, on a busy machine too.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The exchanges between shards by name, none of which drops: rules of SPEC section 3 with factors
/// from which there is room for everything.
pub(crate) fn roomy(config: &RunConfig) -> [(&'static str, DispatchConfig); 7] {
    let (shards, experts) = (config.parallel.shards as f64, config.model.num_experts as f64);
    let payload = Payload::F32;
    // A pool then holds all of a source's rows of a wave, an expert all valid rows of it.
    let waves = |num_expert_waves: usize| DispatchConfig::PooledWave {
        num_expert_waves,
        capacity_factor: experts * num_expert_waves as f64,
        transport_capacity_factor: shards,
        payload,
    };
    [
        ("pooled wave, one wave", waves(1)),
        ("pooled wave, two waves", waves(2)),
        ("ragged", DispatchConfig::dropless()),
        (
            "ragged with a factor",
            // Two chunks of local experts, each with room for all rows.
            DispatchConfig::Ragged { capacity_factor: Some(2.0 * shards), payload },
        ),
        ("fixed cells", DispatchConfig::FixedCells { capacity_factor: experts, payload }),
        ("ring", DispatchConfig::Ring { capacity_factor: None, payload }),
        ("ring with a factor", DispatchConfig::Ring { capacity_factor: Some(shards), payload }),
    ]
}

/// The toy recipe over `replicas` x `shards` ranks that exchange rows without drops.
pub(crate) fn config([replicas, shards]: [usize; 2], overrides: &[&str]) -> RunConfig {
    let mut all =
        vec![format!("parallel.replicas={replicas}"), format!("parallel.shards={shards}")];
    if shards > 1 {
        all.push("parallel.dispatch={kind=\"ragged\"}".to_owned());
    }
    all.extend(overrides.iter().map(ToString::to_string));
    recipe::parse(RECIPE, "toy.toml", &all).unwrap_or_else(|error| panic!("{error}"))
}

/// The rows of a step: two documents a row, their tokens from `seed`; of the last eight rows every
/// other one ends in padding, and the last two are nothing else.
pub(crate) fn batch(config: &RunConfig, seed: u64) -> Batch {
    let (num_rows, seq_len) = (config.batch.rows as usize, config.model.max_seq_len);
    let vocab = config.model.vocab_size as u64;
    let mut batch = Batch {
        num_rows,
        seq_len,
        first_row: seed * num_rows as u64,
        tokens: Vec::new(),
        targets: Vec::new(),
        loss_weight: Vec::new(),
        segment_ids: Vec::new(),
        token_valid: Vec::new(),
        cells: vec![0; num_rows],
        first_documents: vec![0; num_rows],
    };
    for row in 0..num_rows {
        let from_end = num_rows - row;
        let len = match from_end {
            1 | 2 if num_rows > 4 => 0,
            3..=8 if num_rows > 8 && row % 2 == 0 => seq_len - 7,
            _ => seq_len,
        };
        let border = seq_len / 2 + row % 3;
        for place in 0..seq_len {
            let noise = mixed(seed << 32 | (row * seq_len + place) as u64);
            // Small ids are likelier, so that experts are not asked for equally; the largest never
            // comes.
            let token = (noise % vocab) * ((noise >> 32) % vocab) / vocab;
            let valid = place < len;
            batch.tokens.push(if valid { token as i32 } else { 0 });
            batch.segment_ids.push(if valid { i32::from(place >= border) } else { 2 });
            batch.token_valid.push(valid);
            let scored = place + 1 < len && place + 1 != border;
            batch.loss_weight.push(f32::from(u8::from(scored)));
        }
    }
    let next = batch.tokens.iter().copied().skip(1).chain([0]);
    batch.targets = next.zip(&batch.loss_weight).map(|(t, w)| t * *w as i32).collect();
    batch
}

/// `splitmix64`.
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One rank between steps.
pub(crate) struct Rank<'a> {
    pub(crate) world: &'a World,
    pub(crate) config: &'a RunConfig,
    pub(crate) state: TrainState,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) balancing: QuantileBalancing,
    pub(crate) device: Device,
}

/// Runs `body` on every rank of the config's layout, each a thread, and returns what all returned.
pub(crate) fn try_ranks<T: Send>(
    config: &RunConfig,
    deadline: Duration,
    body: impl Fn(Rank<'_>) -> Result<T, TrainError> + Sync,
) -> Result<Vec<T>, Box<WorldError<TrainError>>> {
    let layout = config.parallel.layout();
    let done = run_world(layout.ranks(), deadline, |transport| {
        body(Rank::new(config, &World::new(transport, layout)?)?)
    });
    done.map_err(Box::new)
}

/// As [`try_ranks`] where no rank may fail.
///
/// # Panics
/// With the first cause if one does.
pub(crate) fn on_every_rank<T: Send>(
    config: &RunConfig,
    body: impl Fn(Rank<'_>) -> Result<T, TrainError> + Sync,
) -> Vec<T> {
    try_ranks(config, DEADLINE, body).unwrap_or_else(|error| panic!("{error}"))
}

impl<'a> Rank<'a> {
    pub(crate) fn new(config: &'a RunConfig, world: &'a World) -> Result<Self, TrainError> {
        let device = device::open(DeviceChoice::Cpu)?.device;
        let num_experts = config.model.num_experts;
        Ok(Self {
            state: TrainState::new(config, world, &device)?,
            dispatcher: Dispatcher::new(&config.parallel.dispatch, num_experts, &world.expert)?,
            balancing: state::balancing(config),
            device: device.autodiff(),
            world,
            config,
        })
    }

    /// Saves the state as one of made-up data.
    pub(crate) fn save(&self, storage: &Arc<dyn Storage>) -> Result<Saved, TrainError> {
        checkpoint::save(&Run::new(storage, self.config, "made up"), &self.state, self.world)
    }

    /// Restores the state from what [`save`](Self::save) made.
    pub(crate) fn restore(
        &mut self,
        storage: &Arc<dyn Storage>,
        manifest: &Manifest,
    ) -> Result<Restored, TrainError> {
        let run = Run::new(storage, self.config, "made up");
        restore(manifest, &run, self.world, &self.device, &mut self.state)
    }

    /// As [`restore`](Self::restore) of a checkpoint that is whole.
    pub(crate) fn restore_whole(
        &mut self,
        storage: &Arc<dyn Storage>,
        manifest: &Manifest,
    ) -> Result<(), TrainError> {
        match self.restore(storage, manifest)? {
            Restored::Whole(_) => Ok(()),
            Restored::Damaged(error) => Err(error),
        }
    }

    /// Takes another exchange from now on.
    pub(crate) fn exchange_by(&mut self, dispatch: &DispatchConfig) -> Result<(), TrainError> {
        let num_experts = self.config.model.num_experts;
        self.dispatcher = Dispatcher::new(dispatch, num_experts, &self.world.expert)?;
        Ok(())
    }

    pub(crate) fn step(&mut self, batch: &Batch) -> Result<StepReport, TrainError> {
        let dispatcher = self.dispatcher.clone();
        self.step_by(&dispatcher, batch)
    }

    pub(crate) fn step_by<D: TokenDispatcher>(
        &mut self,
        dispatcher: &D,
        batch: &Batch,
    ) -> Result<StepReport, TrainError> {
        let rates = self.state.optimizer.rates(&self.config.schedule, self.state.step);
        let (config, device) = (&self.config, &self.device);
        let context = StepContext::new(config, self.world, dispatcher, &self.balancing, device);
        self.state.step(batch, rates, &context)
    }

    /// The rows of a batch that this rank takes in each of its forward passes.
    pub(crate) fn micro_batches(&self, batch: &Batch) -> Vec<Batch> {
        let own = self.config.rows_per_rank() as usize;
        let first = self.world.rank() * own;
        let rows = self.config.micro_rows() as usize;
        let starts = (first..first + own).step_by(rows);
        starts.map(|start| batch.rows(start..start + rows)).collect()
    }

    pub(crate) fn input(&self, rows: &Batch) -> ModelInput {
        let Batch { tokens, segment_ids, token_valid, .. } = rows.clone();
        ModelInput::new(
            tokens,
            segment_ids,
            token_valid,
            [rows.num_rows, rows.seq_len],
            &self.device,
        )
    }

    /// Loss and gradients of a batch over all ranks, without an update; the pending balance is in
    /// force. Not by way of `TrainState::step`, which keeps its gradients to itself.
    pub(crate) fn gradients(&self, batch: &Batch) -> Result<Found, TrainError> {
        self.gradients_by(None, batch)
    }

    /// As [`gradients`](Self::gradients), by way of a sink and with blocks computed again if
    /// `recompute` is given.
    pub(crate) fn gradients_by(
        &self,
        recompute: Option<Recompute>,
        batch: &Batch,
    ) -> Result<Found, TrainError> {
        let model = self.state.evaluation_model(&self.balancing);
        let scored = batch.num_scored() as f64;
        let (mut gradients, mut loss) = (Gradients::default(), 0.0);
        let sink = GradientSink::default();
        let plan = recompute.map(|recompute| BackwardPlan { recompute, gradients: &sink });
        for rows in self.micro_batches(batch) {
            let input = self.input(&rows);
            let balancing = Some(&self.balancing);
            let output = model.forward_by(plan.as_ref(), &input, &self.dispatcher, balancing)?;
            let len = rows.targets.len();
            let targets = TensorData::new(rows.targets, [len]);
            let targets: Tensor<1, Int> = Tensor::from_data(targets, &self.device);
            let weight = TensorData::new(rows.loss_weight, [len]);
            let weight: Tensor<1> = Tensor::from_data(weight, &self.device);
            let z_loss = self.config.model.z_loss;
            let loss_of_rows = match &plan {
                Some(plan) => model.loss_by(plan, output.hidden, targets, weight, z_loss),
                None => model.loss(output.hidden, targets, weight, z_loss),
            };
            let mut total = loss_of_rows.total.div_scalar(scored);
            loss += f64::from(total.clone().inner().into_scalar::<f32>());
            if let Some(balance) = output.sequence_balance {
                let weight = self.config.model.sequence_balance_loss / batch.num_rows as f64;
                total = balance.sum().mul_scalar(weight) + total;
            }
            gradients.add(&model, total.backward());
        }
        gradients.add_from(&model, &sink);
        let table = self.state.optimizer.table();
        let gradients = gradients.over_ranks(table, self.world)?;
        let norm = gradients.norms_over_ranks(table, self.world)?.total;
        let trained = table.iter().filter_map(|(path, _)| {
            let gradient = gradients.get(path)?.clone().into_data();
            Some((path.clone(), gradient.iter::<f32>().collect()))
        });
        let loss = self.world.all.sum_f64("loss of a test", &[loss])?[0];
        Ok(Found { loss, norm, values: trained.collect() })
    }

    /// The weights of this rank.
    pub(crate) fn weights(&self) -> Values {
        let weights = weights::export(&self.state.model).into_iter();
        weights.map(|(path, data)| (path, data.iter::<f32>().collect())).collect()
    }

    /// Changes parameters in place, by path, shape and values.
    pub(crate) fn change_weights(&mut self, mut change: impl FnMut(&str, &mut TensorData)) {
        let mut source = weights::export(&self.state.model);
        source.iter_mut().for_each(|(path, data)| change(path, data));
        let model = self.state.model.clone();
        self.state.model = weights::import(model, |path| source.remove(path)).expect("all weights");
    }
}

/// Values by path, flat.
pub(crate) type Values = BTreeMap<String, Vec<f32>>;

/// What a batch's forward and backward pass gave on one rank.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Over all ranks.
    pub(crate) loss: f64,
    /// Of the gradient, over all ranks.
    pub(crate) norm: f64,
    /// Gradients over all ranks, of this shard's experts.
    pub(crate) values: Values,
}

/// The values of the whole model from those of every rank: stacks put together by global expert.
///
/// # Panics
/// If ranks that must have the same bits do not.
pub(crate) fn whole(layout: Layout, ranks: &[Values]) -> Values {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let path_values = ranks[0].keys().map(|path| {
        let stack = path.contains(".experts.");
        for (rank, values) in ranks.iter().enumerate() {
            let twin = if stack { rank % layout.shards } else { 0 };
            let same = bits(&values[path]) == bits(&ranks[twin][path]);
            assert!(same, "`{path}` has other bits on rank {rank} than on rank {twin}, {layout:?}");
        }
        let shards = &ranks[..if stack { layout.shards } else { 1 }];
        let joined: Vec<f32> = shards.iter().flat_map(|values| values[path].clone()).collect();
        (path.clone(), joined)
    });
    path_values.collect()
}
