//! A store of made-up tokens, one of its cells larger than a window of the two-level order.

use std::path::Path;

use fulmar_data::{
    CellKey, DocumentMarks, NewDocument, Origin, Store, StoreWriter, Tokenizer, TokenizerEntry,
};

/// Tokens of a document; the shipped corpus has 450 in the mean.
const DOCUMENT: usize = 450;

pub(super) fn made_up(path: &Path, short: bool) -> Store {
    let tokenizer = Tokenizer::shipped().expect("it ships with the project");
    let entry = TokenizerEntry::new(&tokenizer, DocumentMarks::default());
    let mut writer = StoreWriter::create(path, entry).expect("a new folder");
    let mut state = 1_u64;
    for domain in 0..10 {
        for quality in 0..2 {
            let cell = CellKey { domain: format!("c{domain:02}"), quality };
            let large = domain == 0 && quality == 0 && !short;
            let tokens = if large { 24_000_000 } else { 500_000 };
            for document in 0..tokens / DOCUMENT {
                let tokens: Vec<u32> = (0..DOCUMENT).map(|_| draw(&mut state) % 4_096).collect();
                let (id, source_bytes) = (format!("{cell}:{document}"), 4 * DOCUMENT as u64);
                let (id, tokens, record) = (&*id, &*tokens, document as u64 + 1);
                let document = NewDocument { id, source: 0, record, source_bytes, tokens };
                writer.append(&cell, &document).expect("room on disk");
            }
        }
    }
    writer.finish(Origin::default()).expect("room on disk")
}

fn draw(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as u32
}
