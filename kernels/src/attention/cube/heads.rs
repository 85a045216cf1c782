//! Where heads lie in memory, and which positions read each other.

use cubecl::prelude::*;

use crate::cube::tile::{Lines, SIDE};

/// What kernels are compiled for: query heads, stored kv heads, own kv heads and the head dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Heads {
    pub(crate) h: usize,
    pub(crate) j: usize,
    pub(crate) own: usize,
    pub(crate) a: usize,
}

/// The own kv head that a query head reads.
#[cube]
pub(crate) fn own_head(head: usize, #[comptime] heads: Heads) -> usize {
    head * heads.j / heads.h * heads.own / heads.j
}

/// The rows of one row of the batch and one of `count` heads, a tile of them.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct HeadTile {
    /// The place of the first value.
    start: usize,
    /// Positions from the first on.
    len: usize,
    /// From a position to the next.
    stride: usize,
    #[cube(comptime)]
    a: usize,
}

#[cube]
impl HeadTile {
    /// Tile `tile` of head `head` in row `batch` of a tensor [b, s, heads, a].
    pub(crate) fn new(
        batch: usize,
        tile: usize,
        head: usize,
        s: usize,
        #[comptime] heads: usize,
        #[comptime] a: usize,
    ) -> HeadTile {
        let first = tile * SIDE;
        HeadTile {
            start: ((batch * s + first) * heads + head) * a,
            len: min(s - first, SIDE),
            stride: (heads * a).runtime(),
            a,
        }
    }

    /// Positions as lines, multiplied over the head dim.
    pub(crate) fn positions(&self) -> Lines {
        Lines {
            start: self.start,
            count: self.len,
            depth: self.a.runtime(),
            stride: self.stride,
            contiguous: true,
        }
    }

    /// Values of a head as lines, multiplied over positions.
    pub(crate) fn values(&self) -> Lines {
        Lines {
            start: self.start,
            count: self.a.runtime(),
            depth: self.len,
            stride: self.stride,
            contiguous: false,
        }
    }

    /// The place of a value of a position.
    pub(crate) fn place(&self, position: usize, value: usize) -> usize {
        self.start + position * self.stride + value
    }
}

/// One row of the batch and what may be read in it.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Mask {
    pub(crate) batch: usize,
    pub(crate) s: usize,
    /// How many keys a query reads, at most `s`.
    pub(crate) window: usize,
}

#[cube]
impl Mask {
    /// Whether `query` reads `key`; both may lie beyond the row.
    pub(crate) fn allows(&self, segments: &[i32], query: usize, key: usize) -> bool {
        let row = self.batch * self.s;
        let mut allowed = false;
        if query < self.s && key <= query && key + self.window > query {
            allowed = segments[row + query] == segments[row + key];
        }
        allowed
    }

    /// The tile of the first key that a tile of queries reads.
    pub(crate) fn first_key_tile(&self, tile: usize) -> usize {
        let after = tile * SIDE + 1;
        (max(after, self.window) - self.window) / SIDE
    }

    /// The tile after that of the last query that reads a tile of keys.
    pub(crate) fn end_query_tile(&self, tile: usize) -> usize {
        let last = tile * SIDE + SIDE + self.window - 2;
        min(last, self.s - 1) / SIDE + 1
    }

    /// Whether two tiles may have a segment in common: whether the ranges of their ids meet.
    pub(crate) fn meets(&self, ranges: &[i32], tile: usize, other: usize) -> bool {
        let first = self.batch * self.s.div_ceil(SIDE);
        let (tile, other) = ((first + tile) * 2, (first + other) * 2);
        ranges[tile] <= ranges[other + 1] && ranges[other] <= ranges[tile + 1]
    }
}

/// The least and the largest id of every tile of every row; a unit for each tile.
#[cube(launch)]
pub(crate) fn ranges(segments: &[i32], ranges: &mut [i32], s: usize, tiles: usize) {
    if ABSOLUTE_POS >= tiles {
        terminate!();
    }
    let of_row = s.div_ceil(SIDE);
    let row = ABSOLUTE_POS / of_row * s;
    let first = ABSOLUTE_POS % of_row * SIDE;
    let mut least = segments[row + first];
    let mut most = least;
    for position in first..min(first + SIDE, s) {
        let id = segments[row + position];
        least = min(least, id);
        most = max(most, id);
    }
    ranges[ABSOLUTE_POS * 2] = least;
    ranges[ABSOLUTE_POS * 2 + 1] = most;
}
