//! What the data side of a step costs: reading batches, and finding rows in a mixture.
//!
//! ```text
//! cargo bench --workspace --bench loader
//! cargo bench --workspace --bench loader -- 4096
//! ```
//!
//! The number is what a training step consumes, in tokens a second, such as the last line of
//! `--bench step -- mini` on the same machine. Without one it is 6,898, the proxy step's on two cores
//! (train/README.md); the miniature's 1,228,800 tokens take 5 minutes or more there, 4,096 at most.
//!
//! `reading` times the loader over a made-up store: rows a second, over what a step consumes
//! (target 50), and the most bytes that it held, of its budget. `lookup` times the mixture of 200
//! cells over the hero run, without data: a row of a batch of 11,264 at step 190,650 (target below 1
//! us), the same in a plan that was never asked before, single rows anywhere, and whole plans.

mod lookup;
mod reading;
mod store;

use std::time::Instant;

/// Tokens a second of the fastest measured step on a CPU.
const STEP_TOKENS_PER_SECOND: f64 = 6_898.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` passes `--test`: then one short round shows that the bench runs.
    let short = args.iter().any(|arg| arg == "--test");
    let consumed = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(STEP_TOKENS_PER_SECOND);
    lookup::measure(if short { 1 } else { 7 });
    reading::measure(consumed, if short { 1 } else { 5 }, short);
}

/// Seconds of the best of some runs: whatever else runs on the machine only adds to a time.
fn best(repeats: usize, mut run: impl FnMut() -> f64) -> f64 {
    (0..repeats).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Seconds of one run, and what it gave.
fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = run();
    (started.elapsed().as_secs_f64(), result)
}
