//! What an exchange reports beside its rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::counts::DispatchCounts;

/// One layer's exchange, as one shard saw it.
#[derive(Debug, Clone, Default)]
pub struct DispatchReport {
    /// The fate of this shard's assignments.
    pub counts: DispatchCounts,
    /// Valid tokens of this shard that lost 0, 1, .. k of their experts `[k + 1]`.
    pub tokens_by_lost: Vec<u64>,
    /// Bytes that left this shard; those of the backward pass are there once it is done.
    pub wire: Arc<WireCounter>,
}

/// Counts bytes on their way to other ranks.
#[derive(Debug, Default)]
pub struct WireCounter {
    payload: AtomicU64,
    header: AtomicU64,
}

/// Bytes that left a rank for others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireBytes {
    /// Rows and their gradients, empty rows of fixed-size exchanges included.
    pub payload: u64,
    /// Ids, counts and flags.
    pub header: u64,
}

impl WireCounter {
    /// Adds bytes of rows.
    pub fn add_payload(&self, bytes: u64) {
        self.payload.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes of ids, counts or flags.
    pub fn add_header(&self, bytes: u64) {
        self.header.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn bytes(&self) -> WireBytes {
        WireBytes {
            payload: self.payload.load(Ordering::Relaxed),
            header: self.header.load(Ordering::Relaxed),
        }
    }
}

impl std::ops::AddAssign for WireBytes {
    fn add_assign(&mut self, other: Self) {
        self.payload += other.payload;
        self.header += other.header;
    }
}

impl WireBytes {
    /// The header's part of all bytes, 0 without any.
    pub fn header_share(&self) -> f64 {
        let all = self.payload + self.header;
        if all == 0 { 0.0 } else { self.header as f64 / all as f64 }
    }
}

/// How many of the valid tokens lost how many experts; `lost` has k entries for each token.
pub(crate) fn tokens_by_lost(
    token_valid: &[bool],
    k: usize,
    lost: impl Fn(usize) -> bool,
) -> Vec<u64> {
    let mut tokens = vec![0; k + 1];
    for token in (0..token_valid.len()).filter(|&token| token_valid[token]) {
        tokens[(0..k).filter(|slot| lost(token * k + slot)).count()] += 1;
    }
    tokens
}
