use std::sync::Arc;

use fulmar_data::{
    DocumentMarks, DocumentReader, EvalRows, MixtureConfig, RowLengths, RowSource, Tokenizer,
    build_store, corpus,
};

use crate::fixture::{Folder, Test};

#[test]
fn the_shipped_tokenizer_is_what_training_on_the_shipped_corpus_gives() -> Test {
    let texts = DocumentReader::open(&corpus::train())?.map(|document| document.map(|d| d.text));
    let trained = Tokenizer::train_bpe(texts, 4_096)?;
    let shipped = Tokenizer::shipped()?;
    assert_eq!(shipped.vocab_size(), 4_096);
    assert!(trained.json() == shipped.json(), "see corpus/README.md for how to make it again");
    Ok(())
}

#[test]
fn the_shipped_corpus_has_the_documents_tokens_and_bytes_of_its_readme() -> Test {
    let folder = Folder::new();
    let tokenizer = Tokenizer::shipped()?;
    let readme = include_str!("../../corpus/README.md");
    for (name, source) in [("train", corpus::train()), ("heldout", corpus::heldout())] {
        let marks = DocumentMarks::default();
        let store = Arc::new(build_store(&[source], &tokenizer, marks, folder.path(name))?);
        for cell in store.cells() {
            let entry = cell.entry();
            let (tokens, bytes) = (entry.num_tokens, entry.source_bytes);
            let row = format!(
                "| {name} | {} | {} | {tokens} | {bytes} |",
                entry.name, entry.num_documents
            );
            assert!(readme.contains(&row), "the README lacks {row}");
        }
        if name == "train" {
            let mixture = MixtureConfig::proportional(&store, 256, 1_024);
            let rows = RowSource::new(store, &mixture, &RowLengths::constant(256), 0)?;
            // Pinned when written: the same data on every machine.
            assert_eq!(format!("{:016x}", rows.batch(0..8).digest()), "a73dc580170ff008");
        } else {
            let rows = EvalRows::new(store, 256)?;
            let scored: u64 = rows.batches(32).map(|eval| eval.batch.num_scored()).sum();
            assert_eq!(scored, rows.scored_tokens());
        }
    }
    Ok(())
}
