use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fulmar_data::{DataError, Loader};

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
