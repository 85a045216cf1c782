use std::collections::BTreeMap;

use fulmar_data::{DocumentMarks, EvalRows, NO_DOCUMENT, Tokenizer, build_store};

use crate::fixture::{Folder, Test, corpus, line, store_of};

#[test]
fn every_token_of_the_text_is_a_target_exactly_once() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    for seq_len in [2, 3, 16, 64, 4_096] {
        let rows = EvalRows::new(store.clone(), seq_len)?;
        let mut targets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for eval in rows.batches(5) {
            for (place, document) in eval.document_index.iter().enumerate() {
                let scored = eval.batch.loss_weight[place] > 0.0;
                assert_eq!(scored, *document != NO_DOCUMENT);
                if scored {
                    assert!(eval.batch.token_valid[place]);
                    assert_eq!(eval.batch.segment_ids[place], eval.batch.segment_ids[place + 1]);
                    assert_eq!(eval.batch.tokens[place + 1], eval.batch.targets[place]);
                    targets.entry(*document).or_default().push(eval.batch.targets[place] as u32);
                }
            }
        }
        let mut index = 0;
        for cell in store.cells() {
            for document in 0..cell.num_documents() {
                let mut tokens = Vec::new();
                cell.read_tokens(cell.document_range(document), &mut tokens);
                let about = &rows.documents()[index as usize];
                // Begin and end marks are no targets. Windows lie in order within first fit only
                // by row; as multisets, targets are the text.
                let mut text = tokens[1..tokens.len() - 1].to_vec();
                let mut found = targets.remove(&index).unwrap_or_default();
                assert_eq!(about.scored_tokens, text.len() as u64);
                text.sort_unstable();
                found.sort_unstable();
                assert_eq!(found, text, "document {index} at {seq_len}");
                assert_eq!(about.source_bytes, cell.source_bytes(document));
                assert_eq!(about.id, cell.document_id(document));
                assert_eq!(format!("{}/q{}", about.domain, about.quality), cell.name());
                index += 1;
            }
        }
        assert!(targets.is_empty());
    }
    Ok(())
}

#[test]
fn rows_are_the_same_whatever_the_batch() -> Test {
    let folder = Folder::new();
    let rows = EvalRows::new(store_of(&folder, "store", &corpus()), 64)?;
    let whole = rows.batch(0..rows.num_rows());
    for size in [1, 2, 7] {
        for (i, eval) in rows.batches(size).enumerate() {
            let range = i * size..rows.num_rows().min((i + 1) * size);
            assert_eq!(eval.batch, whole.batch.rows(range.clone()));
            assert_eq!(eval.document_index, whole.document_index[range.start * 64..range.end * 64]);
        }
    }
    Ok(())
}

#[test]
fn a_row_names_each_of_its_documents_once() -> Test {
    let folder = Folder::new();
    let rows = EvalRows::new(store_of(&folder, "store", &corpus()), 16)?;
    let mut named = 0;
    for row in 0..rows.num_rows() {
        let documents = rows.documents_of_row(row);
        let scored = rows.batch(row..row + 1).document_index;
        let mut found: Vec<u32> = Vec::new();
        for document in scored.into_iter().filter(|document| *document != NO_DOCUMENT) {
            if !found.contains(&document) {
                found.push(document);
            }
        }
        assert_eq!(documents, found, "row {row}");
        named += documents.len();
    }
    // Documents longer than a row are named by several.
    assert!(named > rows.documents().len());
    Ok(())
}

#[test]
fn windows_of_one_row_are_segments_of_their_own_and_the_rest_is_padding() -> Test {
    let folder = Folder::new();
    let jsonl = line("a", "one two", "d", 1) + &line("b", "three", "d", 1);
    let rows = EvalRows::new(store_of(&folder, "store", &jsonl), 64)?;
    assert_eq!(rows.num_rows(), 1);
    let eval = rows.batch(0..1);
    let tokenizer = Tokenizer::shipped()?;
    let first = tokenizer.encode("one two")?.len() + 2;
    let both = first + tokenizer.encode("three")?.len() + 2;
    for place in 0..64 {
        let segment = i32::from(place >= first) + i32::from(place >= both);
        assert_eq!(eval.batch.segment_ids[place], segment);
        assert_eq!(eval.batch.token_valid[place], place < both);
    }
    assert_eq!(rows.scored_tokens(), both as u64 - 4);
    assert_eq!(eval.batch.num_scored(), rows.scored_tokens());
    Ok(())
}

#[test]
fn without_a_begin_mark_the_first_token_is_not_scored() -> Test {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", line("a", "one two three", "d", 1));
    let tokenizer = Tokenizer::shipped()?;
    let marks = DocumentMarks { bos: false, eos: true };
    let store = build_store(&[source], &tokenizer, marks, folder.path("store"))?;
    let rows = EvalRows::new(store.into(), 8)?;
    let text = tokenizer.encode("one two three")?.len() as u64;
    assert_eq!(rows.documents()[0].scored_tokens, text - 1);
    let scored: u64 = rows.batches(3).map(|eval| eval.batch.num_scored()).sum();
    assert_eq!(scored, text - 1);
    Ok(())
}
