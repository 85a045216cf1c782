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

impl DispatchReport {
    /// Of a shard whose assignment i, token x k + slot, arrived if `is_kept(i)`; of those that did
    /// not, `sender_dropped` were the sender's drops and the others a receiver's.
    pub(crate) fn new(
        token_valid: &[bool],
        k: usize,
        sender_dropped: u64,
        is_kept: impl Fn(usize) -> bool,
        wire: Arc<WireCounter>,
    ) -> Self {
        let (mut valid, mut kept, mut tokens_by_lost) = (0, 0, vec![0; k + 1]);
        for token in (0..token_valid.len()).filter(|&token| token_valid[token]) {
            let arrived = (token * k..(token + 1) * k).filter(|&i| is_kept(i)).count();
            valid += k as u64;
            kept += arrived as u64;
            tokens_by_lost[k - arrived] += 1;
        }
        let assignments = (token_valid.len() * k) as u64;
        let counts = DispatchCounts {
            assignments,
            padding: assignments - valid,
            valid,
            kept,
            sender_dropped,
            receiver_dropped: valid - kept - sender_dropped,
        };
        Self { counts, tokens_by_lost, wire }
    }
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
