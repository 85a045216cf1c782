//! Batches from a store.

use std::sync::Arc;

use fulmar_data::{Loader, MixtureConfig, RankShare, ReadAhead, RowLengths, RowSource};

use super::{best, store, timed};

pub(super) fn measure(consumed: f64, repeats: usize, short: bool) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Arc::new(store::made_up(&folder.path().join("store"), short));
    let tokens = store.manifest().num_tokens();
    println!(
        "reading: {} cells, {:.1}M tokens; a step consumes {consumed:.0} tokens/s",
        store.cells().len(),
        tokens as f64 / 1e6
    );
    println!(
        "  {:>7} {:>6} {:>8} {:>6} {:>12} {:>14} {:>9} {:>12} {:>12}",
        "tokens",
        "rows",
        "threads",
        "ranks",
        "rows/s",
        "tokens/s",
        "x step",
        "peak KiB",
        "budget KiB"
    );
    for (seq_len, rows, threads, ranks) in [
        (256, 8, 1, 1),
        (256, 8, 2, 1),
        (256, 512, 1, 1),
        (256, 512, 2, 1),
        (256, 512, 2, 8),
        (4_096, 64, 1, 1),
        (4_096, 64, 2, 1),
    ] {
        let mixture = MixtureConfig::proportional(&store, seq_len, 512);
        let lengths = RowLengths::constant(seq_len);
        let source = RowSource::new(Arc::clone(&store), &mixture, &lengths, 1);
        let source = Arc::new(source.expect("a good mixture"));
        let share = RankShare { rank: ranks / 2, ranks };
        // Room for four batches.
        let own = rows / ranks;
        let budget = 4 * fulmar_data::Batch::bytes_of(own as usize, seq_len);
        let ahead = ReadAhead { threads, batches: 8, bytes: budget };
        let batches = if short { 4 } else { (2_000_000 / (own * seq_len as u64)).max(8) };
        let mut peak = 0;
        let secs = best(repeats, || {
            let mut loader =
                Loader::of_rank(Arc::clone(&source), rows, 0, share, ahead).expect("a thread");
            let (secs, ()) = timed(|| {
                for batch in loader.by_ref().take(batches as usize) {
                    let batch = batch.expect("no error");
                    assert_eq!((batch.num_rows as u64, batch.seq_len), (own, seq_len));
                }
            });
            peak = peak.max(loader.peak_bytes());
            secs
        });
        assert!(peak <= budget, "{peak} bytes of a budget of {budget}");
        let rows_per_second = (batches * own) as f64 / secs;
        let tokens_per_second = rows_per_second * seq_len as f64;
        println!(
            "  {seq_len:>7} {own:>6} {threads:>8} {ranks:>6} {rows_per_second:>12.0} \
             {tokens_per_second:>14.0} {:>8.0}x {:>12} {:>12}",
            tokens_per_second / consumed,
            peak / 1024,
            budget / 1024
        );
    }
}
