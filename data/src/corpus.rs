//! The corpus that ships with the crate: public-domain verse and prose, 1,945 documents.
//!
//! Compiled in rather than found by path, so that an installed program has it too.

use crate::Source;

/// 12.8 MB of text in eight cells, to train on.
pub fn train() -> Source {
    Source::bytes("train.jsonl.zst", include_bytes!("../corpus/train.jsonl.zst"))
}

/// 0.9 MB of text in other works of the same cells, to evaluate on.
pub fn heldout() -> Source {
    Source::bytes("heldout.jsonl.zst", include_bytes!("../corpus/heldout.jsonl.zst"))
}

/// The tokenizer trained on [`train`], as `tokenizer.json`; see its README for how it was made.
pub(crate) const TOKENIZER_JSON: &[u8] = include_bytes!("../corpus/tokenizer-4096.json");
