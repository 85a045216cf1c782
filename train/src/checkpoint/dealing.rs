//! Who writes and who reads what: every byte of a state belongs to one rank.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use fulmar_ep::Layout;

/// What each rank of a layout has of a state. A function of layout and sizes alone, so that ranks
/// need not speak to agree on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dealing {
    layout: Layout,
    num_experts: usize,
    owners: BTreeMap<String, usize>,
}

impl Dealing {
    /// Deals `shared` tensors by their bytes, the largest first and each to the rank that has least;
    /// every rank already has its experts of all stacks, which take `expert_bytes` each.
    pub(crate) fn new(
        layout: Layout,
        num_experts: usize,
        expert_bytes: u64,
        shared: &BTreeMap<String, u64>,
    ) -> Self {
        let mut dealing = Self { layout, num_experts, owners: BTreeMap::new() };
        let mut loads: Vec<u64> = (0..layout.ranks())
            .map(|rank| dealing.experts(rank).len() as u64 * expert_bytes)
            .collect();
        let mut largest_first: Vec<_> = shared.iter().collect();
        largest_first.sort_by_key(|(_, bytes)| Reverse(**bytes));
        for (name, bytes) in largest_first {
            let least = (0..loads.len()).min_by_key(|rank| loads[*rank]).expect("a rank");
            loads[least] += bytes;
            dealing.owners.insert(name.clone(), least);
        }
        dealing
    }

    /// The rank that has a shared tensor.
    pub(crate) fn owner(&self, name: &str) -> Option<usize> {
        self.owners.get(name).copied()
    }

    /// Global ids of the experts that a rank has of every stack: its share of those of its shard,
    /// which the replicas split.
    pub(crate) fn experts(&self, rank: usize) -> Range<usize> {
        let Layout { replicas, shards, .. } = self.layout;
        let of_shard = self.num_experts / shards;
        let first = rank % shards * of_shard;
        let start = |replica: usize| first + replica * of_shard / replicas;
        start(rank / shards)..start(rank / shards + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(bytes: &[u64]) -> BTreeMap<String, u64> {
        bytes.iter().enumerate().map(|(i, bytes)| (format!("t{i}"), *bytes)).collect()
    }

    #[test]
    fn every_expert_belongs_to_one_rank_whatever_the_layout() {
        for (replicas, shards) in [(1, 1), (1, 3), (3, 1), (2, 3), (5, 2), (7, 6)] {
            let dealing = Dealing::new(Layout::new(replicas, shards), 6, 1, &shared(&[]));
            let mut found: Vec<usize> =
                (0..replicas * shards).flat_map(|rank| dealing.experts(rank)).collect();
            found.sort_unstable();
            assert_eq!(found, [0, 1, 2, 3, 4, 5], "{replicas} x {shards}");
        }
    }

    #[test]
    fn shared_tensors_even_out_what_experts_leave_uneven() {
        // Three experts of a shard over two replicas: ranks 0 and 1 have one each, 2 and 3 two each.
        let layout = Layout::new(2, 2);
        let tensors = shared(&[10, 10, 4, 1, 1, 1]);
        let dealing = Dealing::new(layout, 6, 10, &tensors);
        let load = |rank: usize| {
            let own = tensors.iter().filter(|(name, _)| dealing.owner(name) == Some(rank));
            10 * dealing.experts(rank).len() as u64 + own.map(|(_, bytes)| bytes).sum::<u64>()
        };
        let loads: Vec<u64> = (0..4).map(load).collect();
        assert_eq!(loads.iter().sum::<u64>(), 60 + 27);
        assert!(
            loads.iter().max().expect("four") - loads.iter().min().expect("four") <= 4,
            "{loads:?}"
        );
    }
}
