//! Chosen experts, checked.

use rayon::prelude::*;

use crate::error::EpError;

/// Who exchanges: shards, experts, and how many of them a token chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    /// P: shards, each with its part of the tokens and of the experts.
    pub shards: usize,
    /// E: experts of the layer.
    pub num_experts: usize,
    /// k: experts of a token.
    pub experts_per_token: usize,
}

impl World {
    /// L: experts of one shard.
    pub fn local_experts(&self) -> usize {
        self.num_experts / self.shards
    }

    /// Confirms that shards can share the experts and that a token can choose k of them.
    ///
    /// # Errors
    /// [`EpError::SharedExperts`], [`EpError::ExpertsPerToken`].
    pub fn validate(&self) -> Result<(), EpError> {
        let Self { shards, num_experts, experts_per_token } = *self;
        if shards == 0 || num_experts == 0 || !num_experts.is_multiple_of(shards) {
            return Err(EpError::SharedExperts { num_experts, shards });
        }
        if experts_per_token == 0 || experts_per_token > num_experts {
            return Err(EpError::ExpertsPerToken { found: experts_per_token, num_experts });
        }
        Ok(())
    }
}

/// The experts that one layer chose for the tokens of all shards.
#[derive(Debug, Clone, Copy)]
pub struct Choices<'a> {
    world: World,
    selected: &'a [u16],
    valid: Option<&'a [bool]>,
}

impl<'a> Choices<'a> {
    /// `selected` holds `[shards, tokens, k]` expert ids, shard by shard; `valid` says of each
    /// token whether it is real, and all are without it. Ids of tokens that are not are not read.
    ///
    /// # Errors
    /// If the world is impossible, shards do not have equally many tokens, the mask does not have
    /// one entry a token, or an id is not below the number of experts.
    pub fn new(
        world: World,
        selected: &'a [u16],
        valid: Option<&'a [bool]>,
    ) -> Result<Self, EpError> {
        world.validate()?;
        let k = world.experts_per_token;
        if !selected.len().is_multiple_of(world.shards * k) {
            let (found, shards) = (selected.len(), world.shards);
            return Err(EpError::SharedTokens { found, shards, experts_per_token: k });
        }
        let tokens = selected.len() / k;
        if let Some(found) = valid.map(<[bool]>::len).filter(|found| *found != tokens) {
            return Err(EpError::ValidMask { found, tokens });
        }
        let choices = Self { world, selected, valid };
        let shards = (0..world.shards).into_par_iter();
        match shards.find_map_first(|shard| choices.check_ids(shard).err()) {
            Some(error) => Err(error),
            None => Ok(choices),
        }
    }

    /// Who exchanges.
    pub fn world(&self) -> World {
        self.world
    }

    /// n: assignments of each shard, those of padding included.
    pub fn assignments_per_shard(&self) -> u64 {
        (self.selected.len() / self.world.shards) as u64
    }

    /// Calls `f` with the expert of each valid assignment of a shard, in flat order: token by
    /// token, and by slot within a token.
    pub(super) fn for_each_valid(&self, shard: usize, mut f: impl FnMut(usize)) {
        let (selected, valid) = self.shard(shard);
        let Some(valid) = valid else {
            return selected.iter().for_each(|&expert| f(usize::from(expert)));
        };
        let tokens = selected.chunks_exact(self.world.experts_per_token);
        for (token, _) in tokens.zip(valid).filter(|(_, valid)| **valid) {
            token.iter().for_each(|&expert| f(usize::from(expert)));
        }
    }

    fn shard(&self, shard: usize) -> (&'a [u16], Option<&'a [bool]>) {
        let tokens = self.selected.len() / self.world.experts_per_token / self.world.shards;
        let range = shard * tokens..(shard + 1) * tokens;
        let k = self.world.experts_per_token;
        let selected = &self.selected[range.start * k..range.end * k];
        (selected, self.valid.map(|valid| &valid[range]))
    }

    fn check_ids(&self, shard: usize) -> Result<(), EpError> {
        let (selected, valid) = self.shard(shard);
        let (k, num_experts) = (self.world.experts_per_token, self.world.num_experts);
        // The largest id says at full speed that all are well, padding apart.
        if selected.iter().max().is_none_or(|&id| usize::from(id) < num_experts) {
            return Ok(());
        }
        let is_wrong = |&(i, &id): &(usize, &u16)| {
            usize::from(id) >= num_experts && valid.is_none_or(|valid| valid[i / k])
        };
        match selected.iter().enumerate().find(is_wrong) {
            Some((i, &found)) => Err(EpError::ExpertId {
                token: i / k,
                slot: i % k,
                found: i32::from(found),
                num_experts,
            }),
            None => Ok(()),
        }
    }
}
