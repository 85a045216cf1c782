use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fulmar_data::{Batch, DataError, Loader, RankShare, ReadAhead, RowSource};

use crate::{
    fixture::{Folder, Test, corpus, store_of},
    rows::source_of,
};

#[test]
fn step_n_takes_rows_n_b_to_n_plus_1_b_also_after_a_resume() -> Test {
    let folder = Folder::new();
    let rows = Arc::new(source_of(&store_of(&folder, "store", &corpus()), 16, 7));
    let digests = |start: u64, end: u64| {
        let loader = Loader::new(Arc::clone(&rows), 6, start)?;
        let batches = loader.take((end - start) as usize);
        batches.map(|batch| Ok(batch?.digest())).collect::<fulmar_data::Result<Vec<u64>>>()
    };
    let whole = digests(0, 20)?;
    for (step, digest) in whole.iter().enumerate() {
        let step = step as u64;
        assert_eq!(rows.batch(step * 6..(step + 1) * 6).digest(), *digest);
    }
    // Kills at steps 5, 6 and 13.
    let parts = [digests(0, 5)?, digests(5, 6)?, digests(6, 13)?, digests(13, 20)?];
    assert_eq!(parts.concat(), whole);
    Ok(())
}

#[test]
fn an_error_of_the_thread_reaches_the_consumer_and_ends_the_loader() -> Test {
    let folder = Folder::new();
    let rows = source_of(&store_of(&folder, "store", &corpus()), 16, 7);
    let mut loader = Loader::from_fn(3, move |step| match step {
        3 => Ok(rows.batch(0..1)),
        _ => Err(DataError::EmptyFile { file: "pulled-out.jsonl".to_owned() }),
    })?;
    assert!(matches!(loader.next(), Some(Ok(_))));
    let error = loader.next().ok_or("an error is due")?.expect_err("an error is due");
    assert!(error.to_string().contains("pulled-out.jsonl"), "{error}");
    assert!(loader.next().is_none());
    Ok(())
}

#[test]
fn a_panic_of_the_thread_reaches_the_consumer() -> Test {
    let mut loader = Loader::from_fn(8, |step| panic!("no rows at step {step}"))?;
    let error = loader.next().ok_or("an error is due")?.expect_err("an error is due");
    let message = error.to_string();
    assert!(message.contains("before step 8: no rows at step 8"), "{message}");
    assert!(loader.next().is_none());
    Ok(())
}

#[test]
fn dropping_the_loader_stops_the_thread_and_reading_ahead_is_bounded() -> Test {
    let folder = Folder::new();
    let rows = source_of(&store_of(&folder, "store", &corpus()), 16, 7);
    let read = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&read);
    let mut loader = Loader::from_fn(0, move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(rows.batch(0..1))
    })?;
    loader.next().ok_or("a batch is due")??;
    drop(loader);
    // One taken, two waiting, one in the thread's hands, one read after a place became free.
    assert!(read.load(Ordering::SeqCst) <= 5);
    // The thread has ended: it no longer holds the counter.
    assert_eq!(Arc::strong_count(&read), 1);
    Ok(())
}

#[test]
fn a_batch_of_no_rows_is_refused() {
    let folder = Folder::new();
    let rows = Arc::new(source_of(&store_of(&folder, "store", &corpus()), 16, 7));
    assert!(matches!(Loader::new(rows, 0, 0), Err(DataError::NoRows)));
}

/// A source of large rows, for budgets in bytes.
fn source() -> (Folder, Arc<RowSource>) {
    let folder = Folder::new();
    let rows = Arc::new(source_of(&store_of(&folder, "store", &corpus()), 64, 7));
    (folder, rows)
}

#[test]
fn any_number_of_threads_gives_the_batches_in_the_order_of_steps_within_the_budget() -> Test {
    let (_folder, rows) = source();
    let one = Batch::bytes_of(6, 64);
    assert_eq!(rows.batch(0..6).num_bytes(), one);
    for (threads, batches, budget, most) in [
        (1, 1, u64::MAX, one),
        (1, 8, 3 * one + 1, 3 * one),
        (3, 2, u64::MAX, 2 * one),
        (4, 8, 5 * one, 5 * one),
        // Less than a batch: one at a time.
        (4, 8, one / 2, one),
        (4, 8, 0, one),
    ] {
        let ahead = ReadAhead { threads, batches, bytes: budget };
        let mut loader = Loader::of_rank(Arc::clone(&rows), 6, 3, RankShare::ALL, ahead)?;
        for step in 3..40 {
            let batch = loader.next().ok_or("endless")??;
            assert_eq!(batch, rows.batch(step * 6..(step + 1) * 6), "{ahead:?}, step {step}");
        }
        // The consumer was too quick for the budget to be used up, or not.
        let peak = loader.peak_bytes();
        assert!((one..=most).contains(&peak), "{ahead:?}: {peak} of {most} bytes");
    }
    Ok(())
}

#[test]
fn reading_ahead_fills_the_budget_and_stops_there() -> Test {
    let (_folder, rows) = source();
    let one = Batch::bytes_of(6, 64);
    let ahead = ReadAhead { threads: 3, batches: 100, bytes: 7 * one };
    let loader = Loader::of_rank(rows, 6, 0, RankShare::ALL, ahead)?;
    let started = Instant::now();
    while loader.peak_bytes() < 7 * one && started.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(loader.peak_bytes(), 7 * one);
    Ok(())
}

#[test]
fn the_rows_of_all_ranks_are_the_batch_whatever_their_number_and_micro_batch() -> Test {
    let (_folder, rows) = source();
    let load = |share| Loader::of_rank(Arc::clone(&rows), 24, 5, share, ReadAhead::default());
    let whole: Vec<Batch> = load(RankShare::ALL)?.take(4).collect::<Result<_, _>>()?;
    for ranks in [1, 2, 3, 4, 5, 24, 30] {
        let loaders: Result<Vec<_>, _> =
            (0..ranks).map(|rank| load(RankShare { rank, ranks })).collect();
        let mut loaders = loaders?;
        for batch in &whole {
            let (mut next, mut digest) = (0, 0_u64);
            for loader in &mut loaders {
                let part = loader.next().ok_or("endless")??;
                assert_eq!(part, batch.rows(next..next + part.num_rows), "{ranks} ranks");
                for micro in [1, 2, 5] {
                    let starts = (0..part.num_rows).step_by(micro);
                    let sum = starts
                        .map(|start| part.rows(start..part.num_rows.min(start + micro)).row_sum());
                    assert_eq!(sum.fold(0, u64::wrapping_add), part.row_sum());
                }
                digest = digest.wrapping_add(part.row_sum());
                next += part.num_rows;
            }
            assert_eq!((next, digest), (24, batch.row_sum()), "{ranks} ranks");
        }
    }
    let altered = Batch { first_row: whole[0].first_row + 1, ..whole[0].clone() };
    assert_ne!(altered.row_sum(), whole[0].row_sum());
    Ok(())
}

#[test]
fn every_position_of_a_batch_names_its_cell_and_document() -> Test {
    let (_folder, rows) = source();
    let batch = rows.batch(0..40);
    let mut documents = 0;
    for row in 0..batch.num_rows {
        let cell = &rows.store().cells()[batch.cells[row] as usize];
        let slot = rows.row(row as u64);
        for position in 0..batch.seq_len {
            let document = batch.document(row, position);
            let mut tokens = Vec::new();
            cell.read_tokens(cell.document_range(document), &mut tokens);
            let token = batch.tokens[row * batch.seq_len + position] as u32;
            assert!(tokens.contains(&token), "row {row}, position {position}");
            let at = slot.page * 64 + position as u64;
            assert!(cell.document_range(document).contains(&at));
        }
        documents += batch.document(row, 63) - batch.document(row, 0);
    }
    assert!(documents > 0, "every row holds one document only");
    Ok(())
}

#[test]
fn an_error_waits_for_the_batches_before_it_and_ends_the_loader() -> Test {
    let (_folder, rows) = source();
    let mut loader = Loader::from_fn(0, move |step| match step {
        0..5 => Ok(rows.batch(step * 2..step * 2 + 2)),
        _ => Err(DataError::EmptyFile { file: "gone.jsonl".to_owned() }),
    })?;
    for step in 0..5 {
        assert_eq!(loader.next().ok_or("a batch is due")??.first_row, step * 2);
    }
    assert!(loader.next().ok_or("an error is due")?.is_err());
    assert!(loader.next().is_none() && loader.next().is_none());
    Ok(())
}
