use std::{collections::BTreeMap, sync::Arc};

use fulmar_data::{Batch, MixtureConfig, Row, RowLengths, RowSource, Stage, Store, Tokenizer};

use crate::fixture::{Folder, Test, corpus, line, store_of};

pub(crate) fn source_of(store: &Arc<Store>, seq_len: usize, seed: u64) -> RowSource {
    let mixture = MixtureConfig::proportional(store, seq_len, 32);
    RowSource::new(Arc::clone(store), &mixture, &RowLengths::constant(seq_len), seed)
        .expect("a good mixture")
}

/// The cell's whole stream, with the document of each token.
fn stream(store: &Store, cell: usize) -> Vec<(u32, u64)> {
    let cell = &store.cells()[cell];
    let mut tokens = Vec::new();
    cell.read_tokens(0..cell.num_tokens(), &mut tokens);
    let documents = (0..cell.num_documents()).flat_map(|d| cell.document_range(d).map(move |_| d));
    tokens.into_iter().zip(documents).collect()
}

#[test]
fn a_row_is_a_page_of_its_cells_stream_with_segments_by_document() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let rows = source_of(&store, 16, 1);
    for index in 0..200 {
        let row = rows.row(index);
        let stream = stream(&store, row.cell as usize);
        let page = &stream[row.page as usize * 16..][..16];
        assert!(page.iter().map(|(token, _)| *token).eq(row.tokens.iter().copied()));
        assert_eq!(page[0].1, row.first_document);
        let segments = page.iter().map(|(_, document)| (document - page[0].1) as u32);
        assert!(segments.eq(row.segment_ids.iter().copied()));
    }
}

#[test]
fn an_epoch_reads_every_page_once_and_the_next_in_another_order() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let rows = source_of(&store, 16, 1);
    let pages = rows.pages();
    for (cell, shard) in store.cells().iter().enumerate() {
        assert_eq!(pages[cell].num_pages, shard.num_tokens() / 16);
        assert_eq!(pages[cell].left_out_tokens, shard.num_tokens() % 16);
        let mut orders: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for row in (0..2_000).map(|index| rows.row(index)).filter(|r| r.cell as usize == cell) {
            orders.entry(row.epoch).or_default().push(row.page);
        }
        assert_ne!(orders[&0], orders[&1]);
        for epoch in [0, 1] {
            let mut order = orders[&epoch].clone();
            order.sort_unstable();
            assert!(order.into_iter().eq(0..pages[cell].num_pages), "epoch {epoch}");
        }
    }
}

#[test]
fn any_order_and_grouping_of_requests_gives_the_same_rows() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let forward: Vec<Row> = {
        let rows = source_of(&store, 16, 7);
        (0..300).map(|index| rows.row(index)).collect()
    };
    let rows = source_of(&store, 16, 7);
    for index in (0..300).rev().map(|i| i * 181 % 300) {
        assert_eq!(rows.row(index), forward[index as usize]);
    }
    let whole = rows.batch(0..300);
    for size in [1, 7, 32, 100] {
        for start in (0..300).step_by(size) {
            let end = (start + size).min(300);
            let batch = rows.batch(start as u64..end as u64);
            assert_eq!(batch, whole.rows(start..end));
            assert_eq!(batch.digest(), whole.rows(start..end).digest());
        }
    }
    let consumed = rows.consumed(300);
    for (cell, count) in consumed.iter().enumerate() {
        let found = forward.iter().filter(|row| row.cell as usize == cell).count();
        assert_eq!(*count, found as u64);
    }
}

#[test]
fn rows_beyond_2_to_the_33_are_read_at_once() {
    let folder = Folder::new();
    let rows = source_of(&store_of(&folder, "store", &corpus()), 16, 7);
    let far = (1 << 33) + 5;
    let row = rows.row(far);
    assert_eq!((row.index, row.tokens.len()), (far, 16));
    assert!(row.epoch > 1_000_000);
    assert_eq!(rows.batch(far - 2..far + 2).rows(2..3), rows.batch(far..far + 1));
    assert_eq!(rows.consumed(far).iter().sum::<u64>(), far);
}

/// Two documents, begin and end marks included, of 5 and 4 tokens: [A][B] in a row of 8.
#[test]
fn a_batch_scores_no_position_whose_next_token_is_another_document() -> Test {
    let folder = Folder::new();
    let jsonl = line("a", "xyz", "d", 1) + &line("b", "xy", "d", 1);
    let store = store_of(&folder, "store", &jsonl);
    let tokenizer = Tokenizer::shipped()?;
    let a = tokenizer.encode_document("xyz", Default::default())?;
    let b = tokenizer.encode_document("xy", Default::default())?;
    let all: Vec<i32> = a.iter().chain(&b).map(|id| *id as i32).collect();
    let (len, seq_len) = (a.len(), all.len() - 1);
    let batch = source_of(&store, seq_len, 0).batch(0..1);
    assert_eq!(batch.tokens, all[..seq_len]);
    assert_eq!(batch.targets[..seq_len - 1], all[1..seq_len]);
    assert_eq!(batch.targets[seq_len - 1], 0, "the next token lies in another row");
    for place in 0..seq_len {
        let scored = place != len - 1 && place != seq_len - 1;
        assert_eq!(batch.loss_weight[place], f32::from(u8::from(scored)), "position {place}");
        assert_eq!(batch.segment_ids[place], i32::from(place >= len));
        assert!(batch.token_valid[place]);
    }
    assert_eq!((batch.num_scored(), batch.num_valid()), (seq_len as u64 - 2, seq_len as u64));
    Ok(())
}

#[test]
fn the_digest_depends_on_tokens_and_on_row_indices() {
    let folder = Folder::new();
    let rows = source_of(&store_of(&folder, "store", &corpus()), 16, 7);
    let batch = rows.batch(4..8);
    let moved = Batch { first_row: 5, ..batch.clone() };
    let mut altered = batch.clone();
    altered.tokens[17] += 1;
    assert_ne!(batch.digest(), moved.digest());
    assert_ne!(batch.digest(), altered.digest());
    assert_eq!(batch.digest(), rows.batch(4..8).digest());
}

#[test]
fn the_digest_is_the_same_for_stores_built_with_1_and_4_threads() -> Test {
    let folder = Folder::new();
    let digest = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let store = pool.install(|| store_of(&folder, &format!("store{threads}"), &corpus()));
        Ok::<_, rayon::ThreadPoolBuildError>(source_of(&store, 16, 7).batch(0..64).digest())
    };
    assert_eq!(digest(1)?, digest(4)?);
    Ok(())
}

#[test]
fn a_new_cell_changes_no_other_cells_order() -> Test {
    let folder = Folder::new();
    let small = store_of(&folder, "small", &corpus());
    let more = corpus() + &line("z", &"zebra ".repeat(40), "animals", 1);
    let large = store_of(&folder, "large", &more);
    let stages = vec![Stage { from_block: 0, weights: [("prose/q4".to_owned(), 1.0)].into() }];
    let mixture = MixtureConfig { block_rows: 8, stages };
    let one = RowSource::new(small, &mixture, &RowLengths::constant(16), 3)?;
    let two = RowSource::new(large, &mixture, &RowLengths::constant(16), 3)?;
    assert!((0..50).all(|index| one.row(index).tokens == two.row(index).tokens));
    Ok(())
}

#[test]
fn a_cell_without_a_whole_row_is_refused_if_it_has_weight() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &(corpus() + &line("t", "tiny", "scrap", 1)));
    let weights = [("prose/q4".to_owned(), 0.5), ("scrap/q1".to_owned(), 0.5)];
    let stages = vec![Stage { from_block: 0, weights: weights.into() }];
    let mixture = MixtureConfig { block_rows: 8, stages };
    let error = RowSource::new(Arc::clone(&store), &mixture, &RowLengths::constant(64), 0)
        .expect_err("too small");
    let message = error.to_string();
    assert!(message.contains("`scrap/q1` holds") && message.contains("needs 64"), "{message}");
    let error =
        RowSource::new(store, &mixture, &RowLengths::constant(1), 0).expect_err("no target");
    assert!(error.to_string().contains("`seq_len` is 1"), "{error}");
}
