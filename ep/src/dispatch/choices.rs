//! The router's choices on the host.

use burn::tensor::{Int, Tensor};

use crate::demand::Demand;
use crate::error::EpError;

/// The valid assignments of a shard, in flat (token, slot) order.
#[derive(Debug)]
pub(super) struct Choices {
    /// Number of the assignment, token x k + slot, and the expert chosen.
    pub(super) assignments: Vec<(usize, usize)>,
}

impl Choices {
    /// Reads `selected` [t, k] where tokens are valid.
    ///
    /// # Errors
    /// If a valid token has no expert in a slot, or one that does not exist.
    pub(super) fn read(
        selected: Tensor<2, Int>,
        demand: &Demand,
        num_experts: usize,
    ) -> Result<Self, EpError> {
        let [tokens, k] = selected.dims();
        let token_valid = demand.token_valid();
        if token_valid.len() != tokens {
            return Err(EpError::ValidMask { found: token_valid.len(), tokens });
        }
        let ids = selected.into_data();
        let ids: Vec<i32> = ids.iter::<i32>().collect();
        let mut assignments = Vec::with_capacity(demand.valid_here() as usize * k);
        for token in (0..tokens).filter(|&token| token_valid[token]) {
            for slot in 0..k {
                let found = ids[token * k + slot];
                match usize::try_from(found) {
                    Ok(expert) if expert < num_experts => {
                        assignments.push((token * k + slot, expert));
                    }
                    Ok(_) => return Err(EpError::ExpertId { token, slot, found, num_experts }),
                    Err(_) => return Err(EpError::NotRouted { token, slot }),
                }
            }
        }
        Ok(Self { assignments })
    }

    /// How many assignments each expert has.
    pub(super) fn by_expert(&self, num_experts: usize) -> Vec<usize> {
        let mut counts = vec![0; num_experts];
        self.assignments.iter().for_each(|(_, expert)| counts[*expert] += 1);
        counts
    }
}
