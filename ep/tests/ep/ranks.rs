//! The routed layer over ranks: what a model does between its router and its output.

use std::sync::Arc;
use std::time::Duration;

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_ep::dispatch::fixed_cells::FixedCells;
use fulmar_ep::dispatch::pooled_wave::PooledWave;
use fulmar_ep::dispatch::ragged::Ragged;
use fulmar_ep::dispatch::ring::Ring;
use fulmar_ep::transport::{Group, Transport, run_world};
use fulmar_ep::{
    Combined, Demand, DispatchReport, Dispatcher, EpError, ExpertRows, Local, Payload,
    TokenDispatcher,
};
use fulmar_kernels::grouped_swiglu::grouped_swiglu;

use crate::case::{EpCase, ShardInputs};
use crate::reference::Rule;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The product's dispatcher for a rule of the reference. Settings are taken as they are: three
/// waves of one expert break a rule of recipes, and the arithmetic holds all the same.
pub(crate) fn dispatcher(rule: Rule, num_experts: usize, group: &Group) -> Dispatcher {
    with_payload(rule, num_experts, group, Payload::F32)
}

pub(crate) fn with_payload(
    rule: Rule,
    num_experts: usize,
    group: &Group,
    payload: Payload,
) -> Dispatcher {
    match rule {
        Rule::Local => Dispatcher::Local(Local::new(num_experts)),
        Rule::PooledWave { waves, sender, receiver } => Dispatcher::PooledWave(PooledWave::new(
            num_experts,
            group,
            waves,
            (sender, receiver),
            payload,
        )),
        Rule::Ragged { receiver } => {
            Dispatcher::Ragged(Ragged::new(num_experts, group, Some(receiver), payload))
        }
        Rule::FixedCells { receiver } => {
            Dispatcher::FixedCells(FixedCells::new(num_experts, group, receiver, payload))
        }
        Rule::Ring { receiver } => {
            Dispatcher::Ring(Ring::new(num_experts, group, Some(receiver), payload))
        }
    }
}

/// Values and gradients of `sum(out * dy)` on one shard.
#[derive(Debug, Clone)]
pub(crate) struct ShardRun {
    pub(crate) out: Vec<f32>,
    pub(crate) dx: Vec<f32>,
    pub(crate) dcombine: Vec<f32>,
    /// Of the shard's experts: [e / p, c, 2 f].
    pub(crate) dw13: Vec<f32>,
    pub(crate) dw2: Vec<f32>,
    pub(crate) report: DispatchReport,
}

/// One shard's part of a case's layer, forward and backward.
pub(crate) fn run_shard<D: TokenDispatcher>(
    case: &EpCase,
    inputs: &ShardInputs,
    dispatcher: &D,
) -> Result<ShardRun, EpError> {
    run_shard_by(case, inputs, dispatcher, |pass| {
        let sent = dispatcher.dispatch(pass.x, pass.selected, pass.demand)?;
        dispatcher.combine((pass.experts)(sent.waves), pass.weights, sent.handle)
    })
}

/// What a shard's pass through a dispatcher is made of.
pub(crate) struct Pass<'a> {
    /// [t, c], tracked.
    pub(crate) x: Tensor<2>,
    /// [t, k].
    pub(crate) selected: Tensor<2, Int>,
    /// [t, k], tracked.
    pub(crate) weights: Tensor<2>,
    pub(crate) demand: &'a Demand,
    pub(crate) experts: &'a dyn Fn(Vec<ExpertRows>) -> Vec<Tensor<2>>,
}

/// As [`run_shard`], with rows to experts and back by `pass`.
pub(crate) fn run_shard_by<D: TokenDispatcher>(
    case: &EpCase,
    inputs: &ShardInputs,
    dispatcher: &D,
    pass: impl FnOnce(Pass<'_>) -> Result<Combined, EpError>,
) -> Result<ShardRun, EpError> {
    let device = Device::flex().autodiff();
    let (c, f, k) = (case.latent_dim, case.intermediate_dim, case.k);
    let tokens = inputs.valid.len();
    let leaf = |values: &[f32], shape: [usize; 2]| -> Tensor<2> {
        Tensor::from_data(TensorData::new(values.to_vec(), shape), &device).require_grad()
    };
    let (x, combine) = (leaf(&inputs.x, [tokens, c]), leaf(&inputs.combine, [tokens, k]));
    let local = dispatcher.local_experts();
    let stack = |values: &[f32], rows: usize, columns: usize| -> Tensor<3> {
        let values = values[local.start * rows * columns..local.end * rows * columns].to_vec();
        let shape = [local.len(), rows, columns];
        Tensor::from_data(TensorData::new(values, shape), &device).require_grad()
    };
    let (w13, w2) = (stack(&case.w13, c, 2 * f), stack(&case.w2, f, c));
    let ids = TensorData::new(inputs.selected.clone(), [tokens, k]);
    let selected: Tensor<2, Int> = Tensor::from_data(ids, &Device::flex());

    let demand = dispatcher.demand(&inputs.valid)?;
    let (gate, up) = (w13.clone().narrow(2, 0, f), w13.clone().narrow(2, f, f));
    let output = |wave: ExpertRows| {
        grouped_swiglu(wave.rows, gate.clone(), up.clone(), w2.clone(), &wave.groups)
    };
    let experts = |waves: Vec<ExpertRows>| waves.into_iter().map(output).collect();
    let (x_of_pass, weights) = (x.clone(), combine.clone());
    let combined =
        pass(Pass { x: x_of_pass, selected, weights, demand: &demand, experts: &experts })?;
    let dy = TensorData::new(inputs.dy.clone(), [tokens, c]);
    let grads = (combined.tokens.clone() * Tensor::from_data(dy, &device)).sum().backward();
    Ok(ShardRun {
        out: floats(combined.tokens.inner()),
        dx: floats(x.grad(&grads).expect("dx")),
        dcombine: floats(combine.grad(&grads).expect("dcombine")),
        dw13: floats(w13.grad(&grads).expect("dw13")),
        dw2: floats(w2.grad(&grads).expect("dw2")),
        report: combined.report,
    })
}

/// The whole layer on a thread for each shard, in the order of shards.
pub(crate) fn run_case(case: &EpCase, rule: Rule) -> Vec<ShardRun> {
    let runs = run_world(case.shards.len(), DEADLINE, |transport: Arc<dyn Transport>| {
        let group = Group::new(transport);
        let dispatcher = dispatcher(rule, case.num_experts, &group);
        run_shard(case, &case.shards[group.rank()], &dispatcher)
    });
    runs.unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

/// One value of all shards, stacked in their order.
pub(crate) fn stacked(runs: &[ShardRun], part: impl Fn(&ShardRun) -> &[f32]) -> Vec<f32> {
    runs.iter().flat_map(|run| part(run).iter().copied()).collect()
}

pub(crate) fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}
