//! The layout of a token file.
//!
//! All numbers are little-endian. Behind a header of 96 bytes lie, each at a multiple of 8:
//!
//! | section | type | length |
//! |---|---|---|
//! | tokens | u16 or u32, by `token_bytes` | `num_tokens` |
//! | where each document begins, and the end | u64, in tokens | `num_documents` + 1 |
//! | bytes of source text of each document | u64 | `num_documents` |
//! | place of each document in its file, from 1 | u64 | `num_documents` |
//! | where each id begins, and the end | u64, in bytes | `num_documents` + 1 |
//! | ids | UTF-8 | `id_bytes` |

use std::ops::Range;

/// Version of the store's files; a build reads its own version only.
pub const FORMAT_VERSION: u32 = 2;

/// First bytes of a token file.
pub(super) const MAGIC: [u8; 8] = *b"FULMARTK";

/// Length of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 96;

/// Where the header's own checksum lies.
const CHECKSUM_AT: usize = 64;

/// What a token file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u32,
    /// Bytes per token: 2 while every id fits, else 4.
    pub(crate) token_bytes: u32,
    pub(crate) num_tokens: u64,
    pub(crate) num_documents: u64,
    pub(crate) source_bytes: u64,
    pub(crate) id_bytes: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.token_bytes.to_le_bytes());
        let counts = [self.num_tokens, self.num_documents, self.source_bytes, self.id_bytes];
        for (place, count) in bytes[16..48].chunks_exact_mut(8).zip(counts) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        let checksum = blake3::hash(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(checksum.as_bytes());
        bytes
    }

    /// Reads the header alone; whether it is sound is [`Header::is_sealed`].
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let count = |at| read_u64(&bytes[at..at + 8]);
        Self {
            version: read_u32(&bytes[8..12]),
            token_bytes: read_u32(&bytes[12..16]),
            num_tokens: count(16),
            num_documents: count(24),
            source_bytes: count(32),
            id_bytes: count(40),
        }
    }

    /// Whether these bytes are a header as we write one, of whatever version.
    pub(crate) fn is_sealed(&self, bytes: &[u8; HEADER_BYTES]) -> bool {
        self.encode() == *bytes
    }
}

/// Where the sections of a token file lie, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) tokens: Range<usize>,
    pub(crate) offsets: Range<usize>,
    pub(crate) source_bytes: Range<usize>,
    pub(crate) records: Range<usize>,
    pub(crate) id_offsets: Range<usize>,
    pub(crate) ids: Range<usize>,
}

impl Layout {
    /// The layout that a header describes; none if it does not fit in memory addresses.
    pub(crate) fn of(header: &Header) -> Option<Self> {
        let mut at = HEADER_BYTES;
        let mut section = |count: u64, width: usize| {
            let start = at.checked_next_multiple_of(8)?;
            let end = start.checked_add(usize::try_from(count).ok()?.checked_mul(width)?)?;
            at = end;
            Some(start..end)
        };
        let documents = header.num_documents;
        let boundaries = documents.checked_add(1)?;
        Some(Self {
            tokens: section(header.num_tokens, header.token_bytes as usize)?,
            offsets: section(boundaries, 8)?,
            source_bytes: section(documents, 8)?,
            records: section(documents, 8)?,
            id_offsets: section(boundaries, 8)?,
            ids: section(header.id_bytes, 1)?,
        })
    }
}

/// The bytes of a token: 2 hold ids up to 65,535.
pub(crate) fn token_bytes(vocab_size: u32) -> u32 {
    if vocab_size <= 1 << 16 { 2 } else { 4 }
}

/// The little-endian number in 8 bytes.
pub(crate) fn read_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn read_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_round_trip() {
        let header = Header {
            version: FORMAT_VERSION,
            token_bytes: 2,
            num_tokens: u64::MAX - 1,
            num_documents: 3,
            source_bytes: 1 << 40,
            id_bytes: 5,
        };
        assert_eq!(Header::decode(&header.encode()), header);
        assert!(Layout::of(&header).is_none(), "2^64 tokens fit nowhere");
    }
}
