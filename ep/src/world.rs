//! Ranks and the groups they form.

use std::sync::Arc;

use crate::dispatch::experts_of;
use crate::error::EpError;
use crate::transport::{Group, Transport};

/// How the ranks of a world share the work: `replicas` copies of the model, each over `shards`
/// ranks that hold `1 / shards` of the experts and take their own rows of the batch.
///
/// Rank = replica x shards + shard, so the ranks of a replica are neighbours: they exchange rows in
/// every layer, replicas only gradients once a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Copies of the model.
    pub replicas: usize,
    /// Ranks that share the experts of a copy.
    pub shards: usize,
    /// Neighbouring shards that share a row; divides `shards`.
    pub context: usize,
}

impl Layout {
    /// `replicas` copies over `shards` ranks each, rows whole on one rank.
    pub fn new(replicas: usize, shards: usize) -> Self {
        Self { replicas, shards, context: 1 }
    }

    /// One rank that does everything.
    pub fn solo() -> Self {
        Self::new(1, 1)
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.replicas * self.shards
    }
}

/// One rank's view of all the groups it is in.
#[derive(Debug, Clone)]
pub struct World {
    /// How the ranks are laid out.
    pub layout: Layout,
    /// Every rank: gradients of shared parameters, counts, decisions.
    pub all: Group,
    /// The shards of this rank's replica: tokens and experts.
    pub expert: Group,
    /// The ranks with the same experts, one a replica: gradients of experts.
    pub replica: Group,
    /// The shards that share this rank's rows.
    pub context: Group,
}

impl World {
    /// The groups of `layout` over all members of `transport`; every rank calls it once.
    ///
    /// # Errors
    /// [`EpError::Layout`] if the layout is not of as many ranks as the transport has, or one of
    /// its axes is empty or does not divide.
    pub fn new(transport: Arc<dyn Transport>, layout: Layout) -> Result<Self, EpError> {
        let Layout { replicas, shards, context } = layout;
        let refuse = |needed: String| Err(EpError::Layout { layout, needed });
        if replicas == 0 || shards == 0 || context == 0 {
            return refuse("at least 1 on each axis".to_owned());
        }
        if !shards.is_multiple_of(context) {
            return refuse("`context` to divide `shards`".to_owned());
        }
        if layout.ranks() != transport.size() {
            return refuse(format!("{} ranks, as many as there are", transport.size()));
        }
        let all = Group::new(transport);
        let rank = all.rank();
        let first = rank / shards * shards;
        let expert = all.subgroup(&(first..first + shards).collect::<Vec<_>>());
        let column = (0..replicas).map(|replica| replica * shards + rank % shards);
        let replica = all.subgroup(&column.collect::<Vec<_>>());
        let first = rank / context * context;
        let context = all.subgroup(&(first..first + context).collect::<Vec<_>>());
        Ok(Self { layout, all, expert, replica, context })
    }

    /// The world of a single rank.
    pub fn solo() -> Self {
        let group = Group::solo();
        Self {
            layout: Layout::solo(),
            all: group.clone(),
            expert: group.clone(),
            replica: group.clone(),
            context: group,
        }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.all.rank()
    }

    /// Whether this is the rank that speaks for all.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// This rank's shard of the experts.
    pub fn shard(&self) -> usize {
        self.expert.rank()
    }

    /// Global ids of the experts of this rank's shard, of `num_experts` in all.
    pub fn experts(&self, num_experts: usize) -> std::ops::Range<usize> {
        experts_of(&self.expert, num_experts)
    }

    /// The copy of the model that this rank is part of.
    pub fn replica_index(&self) -> usize {
        self.replica.rank()
    }
}
