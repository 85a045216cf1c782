//! Rows of changing length, read from a store.

use std::{collections::BTreeMap, panic::catch_unwind, sync::Arc};

use fulmar_data::{Loader, MixtureConfig, Row, RowLengths, RowSource, Store};

use crate::{
    fixture::{Folder, Test, corpus, line, store_of},
    lengths::lengths,
    mixture::{config, stage},
    rows::source_of,
};

/// Tokens of a page in these tests.
const PAGE: u64 = 64;

/// Tokens of a batch; two make a block.
const BATCH: u64 = 256;

/// Weights change inside a length, a length inside weights, and once both together.
fn mixture() -> MixtureConfig {
    let of = |from_block, prose, verse1, verse3| {
        stage(from_block, &[("prose/q4", prose), ("verse/q1", verse1), ("verse/q3", verse3)])
    };
    config(32, &[of(0, 0.42, 0.27, 0.31), of(5, 0.13, 0.48, 0.39), of(12, 0.3, 0.33, 0.37)])
}

/// Longer twice, then shorter and longer again.
fn growing() -> RowLengths {
    lengths(16, PAGE as usize, &[(3, 32), (7, 64), (12, 16), (31, 32)])
}

/// Behind the last change, a third epoch of every cell.
const END_BLOCK: u64 = 90;

fn growing_source(store: &Arc<Store>) -> RowSource {
    RowSource::new(Arc::clone(store), &mixture(), &growing(), 11).expect("a good plan")
}

/// The rows of each cell before a block, in the order in which the cell gives them; a block deals
/// them in another one.
fn by_cell(source: &RowSource, end_block: u64) -> Vec<Vec<Row>> {
    let mut cells = vec![BTreeMap::new(); source.pages().len()];
    for index in 0..source.lengths().rows_of_block(end_block).start {
        let slot = source.plan().locate(index);
        cells[slot.cell as usize].insert(slot.index, source.row(index));
    }
    cells.into_iter().map(|rows| rows.into_values().collect()).collect()
}

#[test]
fn constant_lengths_give_the_rows_of_before_there_were_others() -> Test {
    // Pinned before rows could change their length.
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let far = (1 << 33) + 5;
    for (seq_len, seed, near_digest, far_digest, consumed) in [
        (16, 7, 0x02f5_2944_951f_e3da, 0x2fe0_0b6a_82eb_e15b, [312, 260, 428]),
        (64, 3, 0x315c_f93e_5dcc_1a0c, 0x7b7d_192d_5553_2c1a, [311, 260, 429]),
    ] {
        let rows = source_of(&store, seq_len, seed);
        assert_eq!(rows.batch(0..200).digest(), near_digest);
        assert_eq!(rows.batch(far..far + 35).digest(), far_digest);
        assert_eq!(rows.consumed(1_000), consumed);
        assert_eq!(rows.length_reports(), []);
    }
    let stages = [
        stage(0, &[("prose/q4", 0.7), ("verse/q1", 0.3)]),
        stage(3, &[("prose/q4", 0.1), ("verse/q3", 0.9)]),
    ];
    let rows = RowSource::new(store, &config(20, &stages), &RowLengths::constant(16), 5)?;
    assert_eq!(rows.batch(0..100).digest(), 0x172d_8215_8bda_95aa);
    assert_eq!(rows.consumed(77), [44, 18, 15]);
    Ok(())
}

#[test]
fn shorter_rows_read_each_page_from_its_start_in_the_order_of_pages() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let mixture = MixtureConfig::proportional(&store, 64, 32);
    let source = |lengths: &RowLengths| {
        let rows = RowSource::new(Arc::clone(&store), &mixture, lengths, 3)?;
        Ok::<_, fulmar_data::DataError>(by_cell(&rows, 30))
    };
    // As many blocks, yet a quarter of the tokens.
    let (pages, rows) = (source(&RowLengths::constant(64))?, source(&lengths(16, 64, &[]))?);
    for (pages, rows) in pages.iter().zip(rows) {
        assert!(rows.last().is_some_and(|row| row.epoch > 0));
        for (index, row) in rows.iter().enumerate() {
            let page = &pages[index / 4];
            let at = index % 4 * 16;
            assert_eq!((row.epoch, row.page, row.offset), (page.epoch, page.page, at as u64));
            assert_eq!(row.tokens, page.tokens[at..at + 16]);
        }
    }
    Ok(())
}

/// The reading rule as a reader with a cursor would follow it.
struct Cursor {
    /// Pages begun or skipped over.
    turn: u64,
    /// Tokens taken of the page at `turn`.
    offset: u64,
    taken: u64,
}

#[test]
fn a_reader_with_a_cursor_meets_the_same_rows_across_changes() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let source = growing_source(&store);
    let whole = RowSource::new(Arc::clone(&store), &mixture(), &RowLengths::constant(64), 11);
    let orders = by_cell(&whole.expect("a good plan"), 2 * END_BLOCK);
    let stages = source.lengths().stages();
    let mut skipped = vec![vec![0; 3]; stages.len() - 1];
    let mut totals = vec![0; 3];
    for (cell, rows) in by_cell(&source, END_BLOCK).iter().enumerate() {
        let mut cursor = Cursor { turn: 0, offset: 0, taken: 0 };
        let mut stage = 0;
        for row in rows {
            while source.lengths().stage_of_row(row.index) > stage {
                if cursor.offset > 0 {
                    skipped[stage][cell] = PAGE - cursor.offset;
                    cursor = Cursor { turn: cursor.turn + 1, offset: 0, ..cursor };
                }
                stage += 1;
            }
            let page = &orders[cell][cursor.turn as usize];
            let found = (row.epoch, row.page, row.offset);
            assert_eq!(found, (page.epoch, page.page, cursor.offset), "row {}", row.index);
            let len = stages[stage].seq_len;
            assert_eq!(row.tokens, page.tokens[cursor.offset as usize..][..len]);
            cursor.offset += len as u64;
            cursor.taken += len as u64;
            if cursor.offset == PAGE {
                cursor = Cursor { turn: cursor.turn + 1, offset: 0, ..cursor };
            }
        }
        totals[cell] = cursor.taken;
    }
    let end = source.lengths().rows_of_block(END_BLOCK).start;
    assert_eq!(source.consumed_tokens(end), totals);
    let reports = source.length_reports();
    assert_eq!(reports.len(), skipped.len());
    for (index, report) in reports.iter().enumerate() {
        let (before, after) = (stages[index], stages[index + 1]);
        assert_eq!(report.skipped_tokens, skipped[index]);
        assert_eq!((report.from_block, report.first_row), (after.from_block, after.first_row));
        assert_eq!((report.seq_len_before, report.seq_len), (before.seq_len, after.seq_len));
    }
    assert!(skipped.iter().flatten().any(|tokens| *tokens > 0), "nothing was there to skip");
}

#[test]
fn no_token_is_read_twice_in_an_epoch_and_those_never_read_are_counted_and_bounded() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let source = growing_source(&store);
    let reports = source.length_reports();
    for (cell, rows) in by_cell(&source, END_BLOCK).iter().enumerate() {
        let pages = source.pages()[cell];
        let num_tokens = store.cells()[cell].num_tokens();
        let last_epoch = rows.last().map_or(0, |row| row.epoch);
        assert!(last_epoch >= 3, "cell {cell} ends in epoch {last_epoch}");
        let mut read = vec![vec![0_u32; num_tokens as usize]; last_epoch as usize + 1];
        for row in rows {
            let start = pages.range(row.page).start + row.offset;
            for at in start..start + row.tokens.len() as u64 {
                read[row.epoch as usize][at as usize] += 1;
            }
        }
        assert!(read.iter().flatten().all(|times| *times <= 1), "a token was read twice");
        let mut never = 0;
        for epoch in &read[..last_epoch as usize] {
            let unread = epoch.iter().filter(|times| **times == 0).count() as u64;
            never += unread - pages.left_out_tokens;
        }
        // All changes lie in epochs that have ended.
        assert_eq!(never, reports.iter().map(|report| report.skipped_tokens[cell]).sum::<u64>());
        assert!(reports.iter().all(|report| report.skipped_tokens[cell] < PAGE));
    }
}

#[test]
fn any_order_of_requests_gives_the_same_rows_across_changes() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let source = growing_source(&store);
    let end = source.lengths().rows_of_block(40).start;
    let forward: Vec<Row> = (0..end).map(|index| source.row(index)).collect();
    for row in &forward {
        assert_eq!(row.tokens.len(), source.seq_len_at(row.index));
        assert_eq!(row.tokens.len(), row.segment_ids.len());
    }
    let source = growing_source(&store);
    // 1,009 is prime and does not divide the number of rows: every row once, in a mixed order.
    assert!(!end.is_multiple_of(1_009));
    for index in (0..end).rev().map(|i| i * 1_009 % end) {
        assert_eq!(source.row(index), forward[index as usize]);
    }
}

#[test]
fn consumed_tokens_are_those_of_the_rows_at_every_row() {
    let folder = Folder::new();
    let source = growing_source(&store_of(&folder, "store", &corpus()));
    let (mut rows, mut tokens) = (vec![0; 3], vec![0; 3]);
    for index in 0..source.lengths().rows_of_block(33).start {
        assert_eq!(
            (source.consumed(index), source.consumed_tokens(index)),
            (rows.clone(), tokens.clone())
        );
        let row = source.row(index);
        rows[row.cell as usize] += 1;
        tokens[row.cell as usize] += row.tokens.len() as u64;
    }
}

#[test]
fn an_appended_length_moves_no_earlier_row_and_later_rows_go_on_in_their_cells() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let before = lengths(16, 64, &[(3, 32)]);
    let before = RowSource::new(Arc::clone(&store), &mixture(), &before, 11)?;
    let after = growing_source(&store);
    let change = after.lengths().rows_of_block(7).start;
    assert!((0..change).all(|index| before.row(index) == after.row(index)));
    assert_eq!(before.consumed_tokens(change), after.consumed_tokens(change));
    assert_eq!(before.length_reports(), after.length_reports()[..1]);
    assert_ne!(before.row(change), after.row(change));
    Ok(())
}

#[test]
fn the_loader_goes_on_through_changes_also_after_a_resume() -> Test {
    let folder = Folder::new();
    let source = Arc::new(growing_source(&store_of(&folder, "store", &corpus())));
    let digests = |start: u64, end: u64| {
        // 16 rows of the first length.
        let batches = Loader::new(Arc::clone(&source), BATCH / 16, start)?;
        let batches = batches.take((end - start) as usize);
        batches.map(|batch| Ok(batch?.digest())).collect::<fulmar_data::Result<Vec<u64>>>()
    };
    let whole = digests(0, 70)?;
    let mut next_row = 0;
    for (step, digest) in whole.iter().enumerate() {
        let rows = source.rows_of_batch(step as u64, BATCH)?;
        assert_eq!(rows.start, next_row);
        next_row = rows.end;
        let batch = source.batch(rows);
        assert_eq!(batch.digest(), *digest);
        assert_eq!((batch.num_rows * batch.seq_len) as u64, BATCH);
        assert_eq!(batch.num_valid(), BATCH);
    }
    // Lengths change before steps 6, 14, 24 and 62.
    let parts = [(0, 5), (5, 6), (6, 13), (13, 24), (24, 62), (62, 70)];
    let parts: Result<Vec<_>, _> =
        parts.map(|(start, end)| digests(start, end)).into_iter().collect();
    assert_eq!(parts?.concat(), whole);
    Ok(())
}

#[test]
fn a_batch_of_two_lengths_is_refused() -> Test {
    let folder = Folder::new();
    let source = growing_source(&store_of(&folder, "store", &corpus()));
    // Three blocks of 32 rows of 16 tokens, then rows of 32.
    assert_eq!(source.batch(90..96).seq_len, 16);
    assert_eq!(source.batch(96..98).seq_len, 32);
    let panic = catch_unwind(|| source.batch(90..97)).expect_err("two lengths");
    let message = panic.downcast_ref::<String>().ok_or("a message")?;
    for part in ["rows 90..97", "of 16 and of 32 tokens", "changes at row 96"] {
        assert!(message.contains(part), "{message}");
    }
    // Batches of three blocks: the change at block 7 begins inside the third.
    let error = source.rows_of_batch(0, 3 * 512).expect_err("a change inside a batch");
    assert!(error.to_string().contains("block 7, inside batch 2"), "{error}");
    let error = Loader::new(Arc::new(source), 3 * 32, 0).expect_err("a change inside a batch");
    assert!(error.to_string().contains("use block 9, where batch 3 begins"), "{error}");
    Ok(())
}

#[test]
fn a_cell_without_a_whole_page_is_refused_by_the_length_that_needs_it() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &(corpus() + &line("t", "tiny", "scrap", 1)));
    let weights = [("prose/q4", 0.5), ("scrap/q1", 0.5)];
    let mixture = config(32, &[stage(0, &weights)]);
    for (lengths, field) in [
        (RowLengths::constant(64), "`first`"),
        (lengths(2, 64, &[]), "`longest`"),
        (lengths(2, 64, &[(2, 4), (3, 64)]), "`changes[1].seq_len`"),
    ] {
        let error = RowSource::new(Arc::clone(&store), &mixture, &lengths, 0).expect_err(field);
        let message = error.to_string();
        for part in ["`scrap/q1` holds", "needs 64", field] {
            assert!(message.contains(part), "{message}");
        }
    }
    // Rows of two tokens alone would fit.
    let short = RowSource::new(store, &mixture, &RowLengths::constant(2), 0);
    assert!(short.is_ok());
}

#[test]
fn rows_beyond_2_to_the_42_are_read_at_once_after_changes() {
    let folder = Folder::new();
    let source = growing_source(&store_of(&folder, "store", &corpus()));
    let far = 8_600_000_000_000;
    let row = source.row(far);
    assert_eq!((row.index, row.tokens.len()), (far, 32));
    assert!(row.epoch > 1_000_000_000);
    assert_eq!(source.batch(far - 2..far + 2).rows(2..3), source.batch(far..far + 1));
    assert_eq!(source.consumed(far).iter().sum::<u64>(), far);
    let last = source.lengths().stages()[4].first_row;
    let before: u64 = source.consumed_tokens(last).iter().sum();
    assert_eq!(source.consumed_tokens(far).iter().sum::<u64>(), before + (far - last) * 32);
}
