//! One routed layer whose experts return what they get.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_ep::dispatch::fixed_cells::FixedCells;
use fulmar_ep::dispatch::pooled_wave::PooledWave;
use fulmar_ep::dispatch::ragged::Ragged;
use fulmar_ep::dispatch::ring::Ring;
use fulmar_ep::transport::Group;
use fulmar_ep::{Demand, DispatchReport, Dispatcher, EpError, Local, Payload, TokenDispatcher};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::{FACTOR, K, NUM_EXPERTS, WAVES};

/// The exchange of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Local,
    PooledWave,
    Ragged { dropless: bool },
    FixedCells,
    Ring,
}

impl Rule {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::PooledWave => "pooled_wave",
            Self::Ragged { dropless: true } => "ragged, dropless",
            Self::Ragged { dropless: false } => "ragged",
            Self::FixedCells => "fixed_cells",
            Self::Ring => "ring",
        }
    }

    fn dispatcher(self, group: &Group) -> Dispatcher {
        let payload = Payload::F32;
        match self {
            Self::Local => Dispatcher::Local(Local::new(NUM_EXPERTS)),
            Self::PooledWave => {
                let factors = (FACTOR, FACTOR);
                Dispatcher::PooledWave(PooledWave::new(NUM_EXPERTS, group, WAVES, factors, payload))
            }
            Self::Ragged { dropless } => {
                let receiver = (!dropless).then_some(FACTOR);
                Dispatcher::Ragged(Ragged::new(NUM_EXPERTS, group, receiver, payload))
            }
            Self::FixedCells => {
                Dispatcher::FixedCells(FixedCells::new(NUM_EXPERTS, group, FACTOR, payload))
            }
            Self::Ring => Dispatcher::Ring(Ring::new(NUM_EXPERTS, group, Some(FACTOR), payload)),
        }
    }
}

/// A rank's part of the layer.
pub(crate) struct Layer {
    dispatcher: Dispatcher,
    demand: Demand,
    tokens: Tensor<2>,
    weights: Tensor<2>,
    selected: Tensor<2, Int>,
    /// The gradient of the result.
    dout: Tensor<2>,
}

impl Layer {
    /// The layer over `num_tokens` tokens of this rank; every rank of `group` calls it.
    pub(crate) fn new(
        rule: Rule,
        group: &Group,
        num_tokens: usize,
        width: usize,
    ) -> Result<Self, EpError> {
        let mut generator = ChaCha8Rng::seed_from_u64(group.rank() as u64);
        let mut floats = |columns: usize| {
            let len = num_tokens * columns;
            let values: Vec<f32> = (0..len).map(|_| generator.random_range(-1.0..1.0)).collect();
            Tensor::<2>::from_data(TensorData::new(values, [num_tokens, columns]), &Device::flex())
        };
        let (tokens, weights, dout) = (floats(width), floats(K), floats(width));
        let ids = (0..num_tokens).flat_map(|_| distinct_experts(&mut generator)).collect();
        let selected = TensorData::new::<i32, _>(ids, [num_tokens, K]);
        let selected = Tensor::from_data(selected, &Device::flex());
        let dispatcher = rule.dispatcher(group);
        let demand = dispatcher.demand(&vec![true; num_tokens])?;
        Ok(Self { dispatcher, demand, tokens, weights, selected, dout })
    }

    /// Forward and backward.
    pub(crate) fn run(&self) -> Result<DispatchReport, EpError> {
        let leaf = |values: &Tensor<2>| Tensor::from_inner(values.clone()).require_grad();
        let (tokens, weights) = (leaf(&self.tokens), leaf(&self.weights));
        let sent = self.dispatcher.dispatch(tokens, self.selected.clone(), &self.demand)?;
        let outputs = sent.waves.into_iter().map(|wave| wave.rows).collect();
        let combined = self.dispatcher.combine(outputs, weights, sent.handle)?;
        (combined.tokens * Tensor::from_inner(self.dout.clone())).sum().backward();
        Ok(combined.report)
    }
}

/// Distinct experts, any as likely as any other.
fn distinct_experts(generator: &mut ChaCha8Rng) -> [i32; K] {
    let mut experts = [-1; K];
    for slot in 0..K {
        experts[slot] = loop {
            let expert = generator.random_range(0..NUM_EXPERTS as i32);
            if !experts.contains(&expert) {
                break expert;
            }
        };
    }
    experts
}
