//! Tokens a second of a continuation, with a cache and without one, by the length of the text so far.
//!
//! ```text
//! cargo bench --workspace --bench generate
//! ```
//!
//! The miniature (`mini_d96`, first weights) writes on in one text and in eight at once. Without a cache
//! each token is a forward pass over the whole text; with one it is a pass over that token alone, and
//! `read` is what the text costs once. The shortest of several times, in turns.

use std::time::Instant;

use burn::tensor::Device;
use fulmar_data::Batch;
use fulmar_ep::Local;
use fulmar_eval::ModelScorer;
use fulmar_model::moe::router::SigmoidRouter;
use fulmar_model::{Preset, Prompt, Transformer};

const LENGTHS: [usize; 4] = [32, 64, 128, 248];
const ROWS: [usize; 2] = [1, 8];
const REPEATS: usize = 20;

type Scorer<'a> = ModelScorer<'a, Local, SigmoidRouter>;

fn main() {
    fulmar_kernels::allocator::keep_freed_memory();
    // `cargo test --benches` passes `--test`: then one short round shows that the bench runs.
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (lengths, repeats) = if is_test { (&LENGTHS[..1], 1) } else { (&LENGTHS[..], REPEATS) };
    let (config, device) = (Preset::MiniD96.config(), Device::flex());
    let model = Transformer::new(&config, 0, &device).expect("a preset");
    let local = Local::new(config.num_experts);
    let scorer = ModelScorer::new(&model, &local, &device);
    println!(
        "{:>5}{:>7}{:>12}{:>15}{:>15}{:>8}",
        "rows", "text", "read tok/s", "cached tok/s", "without tok/s", "times"
    );
    for rows in ROWS {
        for &len in lengths {
            let text: Vec<u32> = (0..len).map(|i| ((i * i + 7 * i) % 4_000) as u32).collect();
            let mut best = [f64::INFINITY; 3];
            // The first turn warms up.
            for turn in 0..=repeats {
                let turn_secs = once(&scorer, &text, rows);
                if turn > 0 {
                    best = std::array::from_fn(|i| best[i].min(turn_secs[i]));
                }
            }
            let [read, cached, without] = best;
            let (of_text, of_rows) = ((rows * len) as f64, rows as f64);
            println!(
                "{rows:>5}{len:>7}{:>12.0}{:>15.0}{:>15.0}{:>8.1}",
                of_text / read,
                of_rows / cached,
                of_rows / without,
                without / cached
            );
        }
    }
}

/// Seconds of reading `text` in each row, of one more token of each with a cache, and of one without.
fn once(scorer: &Scorer<'_>, text: &[u32], rows: usize) -> [f64; 3] {
    const TOKENS: usize = 8;
    let prompts = vec![Prompt::of_document(text); rows];
    let started = Instant::now();
    let (_, mut cache) = scorer.read(&prompts, text.len() + TOKENS).expect("read");
    let read = started.elapsed().as_secs_f64();
    let mut cached = f64::INFINITY;
    for _ in 0..TOKENS {
        let started = Instant::now();
        scorer.read_on(&mut cache, &vec![3; rows], &vec![true; rows]).expect("read on");
        cached = cached.min(started.elapsed().as_secs_f64());
    }
    let batch = batch(text, rows);
    let started = Instant::now();
    let logits = scorer.next_logits(&batch, text.len() - 1).expect("a forward pass");
    // On the device it may still be under way.
    drop(logits.into_data());
    [read, cached, started.elapsed().as_secs_f64()]
}

fn batch(text: &[u32], rows: usize) -> Batch {
    let one = Batch::of_document(text);
    let len = rows * text.len();
    Batch {
        num_rows: rows,
        tokens: one.tokens.repeat(rows),
        targets: vec![0; len],
        loss_weight: vec![0.0; len],
        segment_ids: vec![0; len],
        token_valid: vec![true; len],
        cells: vec![0; rows],
        first_documents: vec![0; rows],
        ..one
    }
}
