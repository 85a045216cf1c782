//! What a build may take, which changes nothing in what it makes.

/// Memory and parts of a build. The store's bytes do not depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildSettings {
    /// Text of a part, in bytes: what a kill costs at most, and what is held in memory as tokens.
    /// A document is not cut. Default 64 MiB, some seconds of work.
    pub part_bytes: u64,
    /// Text that is read and not yet in a part, in bytes; reading waits when it is used up. A
    /// longer document goes through alone. The tokenizer takes some 100 bytes for each byte of the
    /// documents in its hands, one for each thread. Default 32 MiB.
    pub in_flight_bytes: u64,
}

impl Default for BuildSettings {
    fn default() -> Self {
        Self { part_bytes: 64 << 20, in_flight_bytes: 32 << 20 }
    }
}
