//! Groups of documents that grow together.

/// Disjoint sets over 0..n, each named by its least member.
pub(super) struct Groups {
    parents: Vec<u32>,
}

impl Groups {
    /// Every member on its own.
    pub(super) fn new(len: usize) -> Self {
        Self { parents: (0..len as u32).collect() }
    }

    /// The least member of the group of `member`.
    pub(super) fn first(&mut self, mut member: u32) -> u32 {
        while self.parents[member as usize] != member {
            let above = self.parents[self.parents[member as usize] as usize];
            // Halving the path keeps later walks short (Tarjan and van Leeuwen, 1984).
            self.parents[member as usize] = above;
            member = above;
        }
        member
    }

    /// Makes one group of two; false if they are one already.
    pub(super) fn join(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.first(a), self.first(b));
        self.parents[a.max(b) as usize] = a.min(b);
        a != b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_by_its_least_member_however_it_grew() {
        for order in [[(4, 2), (2, 3), (3, 1)], [(1, 3), (4, 3), (2, 4)]] {
            let mut groups = Groups::new(6);
            assert!(order.iter().all(|&(a, b)| groups.join(a, b)));
            assert!(!groups.join(1, 4));
            let firsts: Vec<u32> = (0..6).map(|member| groups.first(member)).collect();
            assert_eq!(firsts, [0, 1, 1, 1, 1, 5]);
        }
    }
}
