//! A part of a store as all that a run sees, and positions of reading.

use std::{collections::BTreeSet, sync::Arc};

use fulmar_data::{
    MixtureConfig, Row, RowLengths, RowSource, Store,
    mixture::{CellSize, MixtureRun, SimulatedEpoching},
};

use crate::fixture::{Folder, Test, corpus, store_of};

/// Rows of 8 tokens of which the run sees a third.
fn third(store: &Arc<Store>) -> (RowSource, Vec<u64>) {
    let mixture = MixtureConfig::proportional(store, 8, 32);
    let seen: Vec<u64> = store.cells().iter().map(|cell| cell.num_tokens() / 3).collect();
    let source =
        RowSource::of_seen(Arc::clone(store), &mixture, &RowLengths::constant(8), &seen, 5);
    (source.expect("a good mixture"), seen)
}

#[test]
fn a_run_that_sees_a_third_reads_a_third_of_each_cell_again_and_again() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let (source, seen) = third(&store);
    let rows: Vec<Row> = (0..4_000).map(|index| source.row(index)).collect();
    for (index, cell) in store.cells().iter().enumerate() {
        let of_cell = rows.iter().filter(|row| row.cell as usize == index);
        let epoch = |epoch: u64| -> BTreeSet<u64> {
            of_cell.clone().filter(|row| row.epoch == epoch).map(|row| row.page).collect()
        };
        let (first, second) = (epoch(0), epoch(1));
        assert_eq!(first, second, "other pages in the second epoch");
        assert_eq!(first.len() as u64, seen[index] / 8);
        assert_eq!(source.pages()[index].num_pages, seen[index] / 8);
        let unread = cell.num_tokens() - seen[index] / 8 * 8;
        assert_eq!(source.pages()[index].left_out_tokens, unread);
        // They are spread over the cell.
        let all = cell.num_tokens() / 8;
        let (mut next, gap) = (0, all / first.len() as u64 + 2);
        for page in first.into_iter().chain([all]) {
            assert!(page - next < gap, "no page of {next}..{page} is seen");
            next = page + 1;
        }
    }
}

#[test]
fn seeing_all_of_a_store_changes_no_row_and_nothing_of_a_cell_is_refused() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let mixture = MixtureConfig::proportional(&store, 8, 32);
    let lengths = RowLengths::constant(8);
    let all: Vec<u64> = store.cells().iter().map(|cell| cell.num_tokens()).collect();
    let of = |seen: &[u64]| RowSource::of_seen(Arc::clone(&store), &mixture, &lengths, seen, 5);
    let (plain, whole) = (RowSource::new(Arc::clone(&store), &mixture, &lengths, 5)?, of(&all)?);
    let more: Vec<u64> = all.iter().map(|tokens| tokens * 9).collect();
    let more = of(&more)?;
    for row in 0..500 {
        assert_eq!(plain.row(row), whole.row(row));
        assert_eq!(plain.row(row), more.row(row));
    }
    let mut none = all;
    none[1] = 7;
    let error = of(&none).expect_err("7 tokens").to_string();
    assert!(error.contains("holds 7 tokens") && error.contains("needs 8"), "{error}");
    Ok(())
}

#[test]
fn a_short_run_over_a_store_reads_what_its_plan_says() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let run = MixtureRun {
        cells: CellSize::of_store(&store),
        mixture: MixtureConfig::proportional(&store, 8, 32),
        lengths: RowLengths::constant(8),
        tokens_per_step: 64,
        steps: 400,
        seed: 5,
        epoching: Some(SimulatedEpoching { full_tokens: 4 * 400 * 64, tail: None }),
        epoching_tokens: None,
        max_epochs: 8.0,
    };
    let visible = run.visible()?;
    let source = RowSource::of_seen(
        Arc::clone(&store),
        &visible.mixture,
        &run.lengths,
        &visible.tokens,
        run.seed,
    )?;
    let report = run.report(150)?;
    for (rows, read) in [
        (1_200, report.cells.iter().map(|cell| cell.read_now).collect::<Vec<_>>()),
        (3_200, report.cells.iter().map(|cell| cell.read_at_end).collect()),
    ] {
        assert_eq!(source.consumed_tokens(rows), read);
    }
    for (pages, cell) in source.pages().iter().zip(&report.cells) {
        assert_eq!(pages.num_pages * 8, cell.paged_tokens);
        assert!((cell.tokens / 4).abs_diff(cell.paged_tokens) < 8);
    }
    Ok(())
}

#[test]
fn any_order_and_grouping_of_requests_gives_the_same_rows_of_what_is_seen() {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let (source, _) = third(&store);
    let forward: Vec<Row> = (0..600).map(|index| source.row(index)).collect();
    let (source, _) = third(&store);
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..400 {
        let start = draw(600);
        let end = start + draw(600 - start) + 1;
        if draw(3) > 0 {
            assert_eq!(source.row(start), forward[start as usize]);
            continue;
        }
        let batch = source.batch(start..end);
        for (place, row) in forward[start as usize..end as usize].iter().enumerate() {
            let tokens = &batch.tokens[place * 8..][..8];
            assert!(tokens.iter().zip(&row.tokens).all(|(a, b)| *a as u32 == *b));
            assert_eq!(batch.first_documents[place], row.first_document);
        }
    }
}
