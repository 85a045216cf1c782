//! The exchange that a recipe names.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};

use super::fixed_cells::{FixedCells, FixedCellsHandle};
use super::local::{Local, LocalHandle};
use super::pooled_wave::{PooledWave, PooledWaveHandle};
use super::ragged::{Ragged, RaggedHandle};
use super::ring::{Ring, RingHandle};
use super::{Combined, Dispatched, Keep, Retrace, TokenDispatcher};
use crate::config::DispatchConfig;
use crate::demand::Demand;
use crate::error::EpError;
use crate::transport::Group;

/// Any of the dispatchers, chosen when a config becomes an object.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names of `DispatchConfig`")]
pub enum Dispatcher {
    Local(Local),
    PooledWave(PooledWave),
    Ragged(Ragged),
    FixedCells(FixedCells),
    Ring(Ring),
}

/// What a [`Dispatcher`] remembers between dispatch and combine.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names of `DispatchConfig`")]
pub enum DispatcherHandle {
    Local(LocalHandle),
    PooledWave(PooledWaveHandle),
    Ragged(RaggedHandle),
    FixedCells(FixedCellsHandle),
    Ring(RingHandle),
}

impl Dispatcher {
    /// The exchange of `config` among the shards of `group`, of `num_experts` experts in all.
    ///
    /// # Errors
    /// If the config breaks a rule, see [`DispatchConfig::validate`].
    pub fn new(
        config: &DispatchConfig,
        num_experts: usize,
        group: &Group,
    ) -> Result<Self, EpError> {
        config.validate(num_experts, group.size())?;
        Ok(match *config {
            DispatchConfig::Local => Self::Local(Local::new(num_experts)),
            DispatchConfig::PooledWave {
                num_expert_waves,
                capacity_factor,
                transport_capacity_factor,
                payload,
            } => {
                let factors = (transport_capacity_factor, capacity_factor);
                let waves = num_expert_waves;
                Self::PooledWave(PooledWave::new(num_experts, group, waves, factors, payload))
            }
            DispatchConfig::Ragged { capacity_factor, payload } => {
                Self::Ragged(Ragged::new(num_experts, group, capacity_factor, payload))
            }
            DispatchConfig::FixedCells { capacity_factor, payload } => {
                Self::FixedCells(FixedCells::new(num_experts, group, capacity_factor, payload))
            }
            DispatchConfig::Ring { capacity_factor, payload } => {
                Self::Ring(Ring::new(num_experts, group, capacity_factor, payload))
            }
        })
    }

    /// The exchange that cannot drop, for evaluation: whatever training uses, losses do not depend
    /// on the batch then.
    ///
    /// # Errors
    /// If the shards do not divide the experts.
    pub fn dropless(num_experts: usize, group: &Group) -> Result<Self, EpError> {
        let config = match group.size() {
            1 => DispatchConfig::Local,
            _ => DispatchConfig::dropless(),
        };
        Self::new(&config, num_experts, group)
    }
}

/// Calls the same method of whichever dispatcher it is.
macro_rules! each {
    ($self:expr, $inner:ident => $body:expr) => {
        match $self {
            Dispatcher::Local($inner) => $body,
            Dispatcher::PooledWave($inner) => $body,
            Dispatcher::Ragged($inner) => $body,
            Dispatcher::FixedCells($inner) => $body,
            Dispatcher::Ring($inner) => $body,
        }
    };
}

fn wrap<H>(sent: Dispatched<H>, wrap: fn(H) -> DispatcherHandle) -> Dispatched<DispatcherHandle> {
    Dispatched { waves: sent.waves, handle: wrap(sent.handle) }
}

impl TokenDispatcher for Dispatcher {
    type Handle = DispatcherHandle;

    fn local_experts(&self) -> Range<usize> {
        each!(self, inner => inner.local_experts())
    }

    fn group(&self) -> &Group {
        each!(self, inner => inner.group())
    }

    fn dispatch(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
    ) -> Result<Dispatched<DispatcherHandle>, EpError> {
        self.dispatch_keeping(tokens, selected, demand, Keep::Decisions)
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: DispatcherHandle,
    ) -> Result<Combined, EpError> {
        Ok(self.combine_keeping(outputs, weights, handle)?.0)
    }

    fn dispatch_keeping(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
        keep: Keep,
    ) -> Result<Dispatched<DispatcherHandle>, EpError> {
        use DispatcherHandle as Handle;
        macro_rules! dispatch {
            ($inner:ident, $handle:expr) => {
                wrap($inner.dispatch_keeping(tokens, selected, demand, keep)?, $handle)
            };
        }
        Ok(match self {
            Self::Local(inner) => dispatch!(inner, Handle::Local),
            Self::PooledWave(inner) => dispatch!(inner, Handle::PooledWave),
            Self::Ragged(inner) => dispatch!(inner, Handle::Ragged),
            Self::FixedCells(inner) => dispatch!(inner, Handle::FixedCells),
            Self::Ring(inner) => dispatch!(inner, Handle::Ring),
        })
    }

    fn combine_keeping(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: DispatcherHandle,
    ) -> Result<(Combined, Arc<dyn Retrace>), EpError> {
        use DispatcherHandle as Handle;
        match (self, handle) {
            (Self::Local(inner), Handle::Local(handle)) => {
                inner.combine_keeping(outputs, weights, handle)
            }
            (Self::PooledWave(inner), Handle::PooledWave(handle)) => {
                inner.combine_keeping(outputs, weights, handle)
            }
            (Self::Ragged(inner), Handle::Ragged(handle)) => {
                inner.combine_keeping(outputs, weights, handle)
            }
            (Self::FixedCells(inner), Handle::FixedCells(handle)) => {
                inner.combine_keeping(outputs, weights, handle)
            }
            (Self::Ring(inner), Handle::Ring(handle)) => {
                inner.combine_keeping(outputs, weights, handle)
            }
            _ => panic!("a handle goes back to the dispatcher that made it"),
        }
    }
}
