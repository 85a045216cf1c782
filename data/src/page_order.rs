//! The order in which an epoch reads the pages of a cell: two levels, so that a reader stays in one
//! part of the cell for a while and yet neighbouring rows come from many places.
//!
//! The stream is cut into groups of [`GROUP_TOKENS`] tokens. Groups lie in a permuted order, of which
//! each [`WINDOW_GROUPS`] make a window; the pages of a window are permuted among each other. So the
//! rows of a window come from as many places of the cell, and the reader touches 64 MiB of it, in
//! ids of 4 bytes, before it goes on. A cell of one window or less is one permutation of its pages.
//!
//! Both levels are computed, not stored ([`Permutation`]).

use crate::shuffle::{Permutation, derive_seed};

/// Tokens of a group; a page that is longer is a group of its own.
pub(crate) const GROUP_TOKENS: u64 = 1 << 16;

/// Groups of a window.
pub(crate) const WINDOW_GROUPS: u64 = 256;

/// Separate the order of a window's pages from other uses of the epoch's seed.
const WINDOW_ORDER: u64 = 0x7769_6e64_6f77_0000;

/// Which page is read when, for cells of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageOrder {
    num_pages: u64,
    group_pages: u64,
}

impl PageOrder {
    pub(crate) fn new(num_pages: u64, page_len: u64) -> Self {
        Self { num_pages, group_pages: (GROUP_TOKENS / page_len).max(1) }
    }

    /// The page at a position of the epoch whose seed is `seed`.
    pub(crate) fn page(&self, position: u64, seed: u64) -> u64 {
        // Pages behind the last whole group belong to the last window.
        let groups = self.num_pages / self.group_pages;
        if groups <= WINDOW_GROUPS {
            return Permutation::new(self.num_pages, seed).apply(position);
        }
        let window_pages = WINDOW_GROUPS * self.group_pages;
        let last = groups.div_ceil(WINDOW_GROUPS) - 1;
        let window = (position / window_pages).min(last);
        let start = window * window_pages;
        let end = if window == last { self.num_pages } else { start + window_pages };
        let window_seed = derive_seed(seed, &[WINDOW_ORDER, window]);
        let place = start + Permutation::new(end - start, window_seed).apply(position - start);
        let (group, page) = (place / self.group_pages, place % self.group_pages);
        if group == groups {
            return place;
        }
        Permutation::new(groups, seed).apply(group) * self.group_pages + page
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Groups of 4 pages of 16,384 tokens.
    const PAGE: u64 = GROUP_TOKENS / 4;

    fn order(num_pages: u64, seed: u64) -> Vec<u64> {
        let order = PageOrder::new(num_pages, PAGE);
        (0..num_pages).map(|position| order.page(position, seed)).collect()
    }

    #[test]
    fn every_page_comes_once_whatever_the_size() {
        for num_pages in [1, 3, 4, 1_023, 1_024, 1_027, 1_028, 2_047, 2_048, 2_051, 5_003] {
            for seed in [0, 7] {
                let mut pages = order(num_pages, seed);
                pages.sort_unstable();
                assert!(pages.into_iter().eq(0..num_pages), "{num_pages} pages, seed {seed}");
            }
        }
    }

    #[test]
    fn a_cell_of_one_window_has_the_order_of_one_permutation() {
        for num_pages in [5, 1_024, 1_027] {
            let whole = Permutation::new(num_pages, 3);
            let expected: Vec<u64> = (0..num_pages).map(|i| whole.apply(i)).collect();
            assert_eq!(order(num_pages, 3), expected);
        }
        let whole = Permutation::new(1_028, 3);
        assert!(order(1_028, 3).iter().zip(0..).any(|(page, i)| *page != whole.apply(i)));
    }

    #[test]
    fn a_window_touches_256_groups_from_all_over_the_cell() {
        let pages = order(40_003, 9);
        let mut seen = BTreeSet::<u64>::new();
        // 39 whole windows and one of 16 groups with three pages more.
        for (index, window) in pages.chunks(1_024).enumerate() {
            let groups: BTreeSet<u64> = window.iter().map(|page| page / 4).collect();
            let expected = if index == 39 { 17 } else { 256 };
            assert_eq!(groups.len(), expected, "window {index}");
            let (first, last) = (groups.first(), groups.last());
            let spread = last.expect("groups") - first.expect("groups");
            assert!(spread > 7_000, "window {index} spans {spread} of 10,000 groups");
            let neighbours = window.windows(2).filter(|pair| pair[0] / 4 == pair[1] / 4).count();
            assert!(neighbours < 20, "window {index}: {neighbours} neighbours of one group");
            seen.extend(window);
        }
        assert_eq!(seen.len(), 40_003);
        assert_ne!(order(40_003, 10), pages);
    }

    #[test]
    fn pages_longer_than_a_group_are_permuted_too() {
        let order = PageOrder::new(1_000, 4 * GROUP_TOKENS);
        let mut pages: Vec<u64> = (0..1_000).map(|position| order.page(position, 1)).collect();
        assert!(pages.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count() < 10);
        pages.sort_unstable();
        assert!(pages.into_iter().eq(0..1_000));
    }

    #[test]
    fn an_order_of_many_windows_is_fixed_for_ever() {
        // Pinned when written: a change would reorder the data of every run that resumes.
        assert_eq!(order(5_000, 42)[..6], [3304, 4764, 4795, 4313, 112, 3352]);
        let far = PageOrder::new(1 << 40, 4_096);
        assert_eq!(
            [0, 1, 1 << 39].map(|position| far.page(position, 42)),
            [26011667815, 630561722611, 114671669842]
        );
    }
}
