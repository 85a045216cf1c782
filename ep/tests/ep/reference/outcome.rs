//! What became of every assignment.

use std::collections::BTreeMap;

use super::Problem;

/// What became of one assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its token is padding.
    Padding,
    /// It reached its expert.
    Kept,
    /// Its own shard had no room for it.
    SenderDropped,
    /// The expert's shard had no room for it.
    ReceiverDropped,
}

/// One assignment of the world: the shard of its token, and its flat position there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) shard: usize,
    pub(crate) assignment: usize,
}

/// The fates of all assignments, and the order in which experts see those that were kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// [p][t k].
    pub(crate) fates: Vec<Vec<Fate>>,
    /// The rows of an expert in a pass, in receiver order, by (pass, global expert). A pass is a
    /// wave of the pooled-wave exchange, a chunk of the ragged one, and 0 for the others; a pair
    /// without rows is absent.
    pub(crate) groups: BTreeMap<(usize, usize), Vec<Row>>,
}

impl Outcome {
    /// Of a problem none of whose valid assignments has reached anyone yet.
    pub(super) fn nothing_kept(problem: &Problem, dropped: Fate) -> Self {
        let of_token = |&valid: &bool| if valid { dropped } else { Fate::Padding };
        let of_shard = |tokens: &Vec<bool>| {
            tokens.iter().map(of_token).flat_map(|fate| vec![fate; problem.k]).collect()
        };
        let fates = problem.valid.iter().map(of_shard).collect();
        Self { fates, groups: BTreeMap::new() }
    }

    /// Appends a row to the group of its expert in a pass.
    pub(super) fn keep(&mut self, pass: usize, expert: usize, row: Row) {
        self.groups.entry((pass, expert)).or_default().push(row);
        self.set(row, Fate::Kept);
    }

    /// Notes what became of a row.
    pub(super) fn set(&mut self, row: Row, fate: Fate) {
        self.fates[row.shard][row.assignment] = fate;
    }

    /// Rows that the group has so far.
    pub(super) fn group_size(&self, pass: usize, expert: usize) -> u64 {
        self.groups.get(&(pass, expert)).map_or(0, |rows| rows.len() as u64)
    }

    /// Assignments of one fate over all shards.
    pub(crate) fn count(&self, fate: Fate) -> usize {
        self.fates.iter().flatten().filter(|&&found| found == fate).count()
    }

    /// [sender, receiver, padding], as the golden files count.
    pub(crate) fn drops(&self) -> [usize; 3] {
        [Fate::SenderDropped, Fate::ReceiverDropped, Fate::Padding].map(|fate| self.count(fate))
    }

    /// Whether each assignment was kept, shard after shard.
    pub(crate) fn kept(&self) -> Vec<bool> {
        self.fates.iter().flatten().map(|&fate| fate == Fate::Kept).collect()
    }
}
