//! What the shards of a replica want to route, agreed once a forward pass.

use crate::error::EpError;
use crate::transport::Group;

/// Which tokens of a batch are real, here and how many on every shard.
///
/// Limits follow from real demand (SPEC section 3), so shards tell each other their counts, two
/// numbers each; no layer exchanges them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    token_valid: Vec<bool>,
    /// Tokens of each shard, padding included.
    tokens: Vec<u64>,
    /// Valid tokens of each shard.
    valid: Vec<u64>,
    shard: usize,
}

impl Demand {
    /// Tells the shards of `group` about this one's tokens and hears about theirs; `token_valid` is
    /// false for padding. Every shard calls it, with no tokens too.
    ///
    /// # Errors
    /// If a peer fails to answer.
    pub fn agree(group: &Group, token_valid: &[bool]) -> Result<Self, EpError> {
        let valid = token_valid.iter().filter(|valid| **valid).count();
        let own = [token_valid.len() as u64, valid as u64];
        let all = group.gather_u64("demand", &own)?;
        Ok(Self {
            token_valid: token_valid.to_vec(),
            tokens: all.iter().map(|of_shard| of_shard[0]).collect(),
            valid: all.iter().map(|of_shard| of_shard[1]).collect(),
            shard: group.rank(),
        })
    }

    /// For each token of this shard whether it is real.
    pub fn token_valid(&self) -> &[bool] {
        &self.token_valid
    }

    /// Tokens of each shard, padding included.
    pub fn tokens_by_shard(&self) -> &[u64] {
        &self.tokens
    }

    /// Tokens of the shard that has most: what buffers of equal size are made for.
    pub fn most_tokens(&self) -> u64 {
        self.tokens.iter().copied().max().unwrap_or(0)
    }

    /// Valid tokens of this shard.
    pub fn valid_here(&self) -> u64 {
        self.valid[self.shard]
    }

    /// Valid tokens of all shards.
    pub fn valid_everywhere(&self) -> u64 {
        self.valid.iter().sum()
    }
}
