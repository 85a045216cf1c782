//! Which assignments each shard of a ring computes; every shard knows for all of them.

use std::ops::Range;
use std::sync::Arc;

use super::super::NONE;
use super::super::choices::Choices;
use super::super::send_order::exclusive_sums;
use crate::demand::Demand;
use crate::error::EpError;
use crate::report::{DispatchReport, WireCounter};

/// No expert: the token is padding.
const PADDING: u32 = u32::MAX;

/// The choices of all shards.
#[derive(Debug)]
pub(super) struct Everyone {
    /// The expert of each assignment, shard after shard, in flat order.
    experts: Vec<Option<usize>>,
    /// Where each shard's assignments begin and end.
    shards: Vec<Range<usize>>,
}

impl Everyone {
    /// One shard's choices in words, after a word that is 1 if it cannot route.
    pub(super) fn encode(choices: &Result<Choices, EpError>, num_assignments: usize) -> Vec<u32> {
        let mut words = vec![PADDING; num_assignments + 1];
        match choices {
            Ok(choices) => {
                words[0] = 0;
                for &(assignment, expert) in &choices.assignments {
                    words[assignment + 1] = expert as u32;
                }
            }
            Err(_) => words[0] = 1,
        }
        words
    }

    /// The choices of shards with `tokens` tokens.
    pub(super) fn decode(words: &[u32], tokens: &[u64], k: usize) -> Result<Self, EpError> {
        let (mut experts, mut shards, mut rest) = (Vec::new(), Vec::new(), words);
        for (shard, tokens) in tokens.iter().enumerate() {
            let (own, after) = rest.split_at(*tokens as usize * k + 1);
            rest = after;
            if own[0] != 0 {
                return Err(EpError::PeerNotRouted { shard });
            }
            let first = experts.len();
            let expert = |word: &u32| (*word != PADDING).then_some(*word as usize);
            experts.extend(own[1..].iter().map(expert));
            shards.push(first..experts.len());
        }
        Ok(Self { experts, shards })
    }
}

/// How many assignments each expert takes; they are its first ones in flat order.
#[derive(Debug)]
pub(super) struct RingPlan {
    taken: Vec<usize>,
}

impl RingPlan {
    /// Each shard takes at most `limit` assignments, expert by expert.
    pub(super) fn new(everyone: &Everyone, num_experts: usize, shards: usize, limit: u64) -> Self {
        let mut taken = vec![0; num_experts];
        everyone.experts.iter().flatten().for_each(|expert| taken[*expert] += 1);
        for of_shard in taken.chunks_mut(num_experts / shards) {
            let mut room = limit as usize;
            for taken in of_shard {
                *taken = room.min(*taken);
                room -= *taken;
            }
        }
        Self { taken }
    }

    /// The row of everyone's assignments among the rows of `local` experts, by expert and within
    /// one in flat order, and the rows of each of them.
    pub(super) fn local_rows(
        &self,
        everyone: &Everyone,
        local: Range<usize>,
    ) -> (Vec<i32>, Vec<usize>) {
        let group_sizes = self.taken[local.clone()].to_vec();
        let starts = exclusive_sums(&group_sizes);
        let row_of = self.ranks(everyone).map(|(expert, rank)| match expert {
            Some(expert) if local.contains(&expert) && rank < self.taken[expert] => {
                (starts[expert - local.start] + rank) as i32
            }
            _ => NONE,
        });
        (row_of.collect(), group_sizes)
    }

    /// What became of the assignments of one shard; every drop is a receiver's.
    pub(super) fn report(
        &self,
        everyone: &Everyone,
        shard: usize,
        demand: &Demand,
        k: usize,
        wire: Arc<WireCounter>,
    ) -> DispatchReport {
        let own = everyone.shards[shard].clone();
        let is_taken = |(expert, rank): (Option<usize>, usize)| {
            expert.is_some_and(|expert| rank < self.taken[expert])
        };
        let taken: Vec<bool> =
            self.ranks(everyone).skip(own.start).take(own.len()).map(is_taken).collect();
        DispatchReport::new(demand.token_valid(), k, 0, |i| taken[i], wire)
    }

    /// Each assignment's expert and its rank among all of that expert's.
    fn ranks<'a>(
        &'a self,
        everyone: &'a Everyone,
    ) -> impl Iterator<Item = (Option<usize>, usize)> + 'a {
        let mut seen = vec![0; self.taken.len()];
        everyone.experts.iter().map(move |expert| match *expert {
            Some(expert) => {
                seen[expert] += 1;
                (Some(expert), seen[expert] - 1)
            }
            None => (None, 0),
        })
    }
}
