//! A store of the shipped corpus from end to end, against the `tokenizers` library alone.
//!
//! ```text
//! cargo bench --workspace --bench tokenize            # some 30 seconds
//! cargo bench --workspace --bench tokenize -- --test  # the small half once: shows that it runs
//! ```
//!
//! End to end is all that a build does: checksum of the file, decompression, JSON, tokens, parts on
//! disk, the store put together, published and verified. The library has the texts in memory and
//! drops its ids. Both on every core, in turns, each with its cache of words filled by a first round;
//! least seconds count.

use std::{hint::black_box, time::Instant};

use fulmar_data::{Build, DocumentMarks, DocumentReader, Source, Tokenizer, corpus};
use rayon::prelude::*;

/// Rounds of which the fastest counts.
const ROUNDS: usize = 7;

fn main() {
    let test = std::env::args().any(|arg| arg == "--test");
    let source = if test { corpus::heldout() } else { corpus::train() };
    let rounds = if test { 1 } else { ROUNDS };
    let texts: Vec<String> = DocumentReader::open(&source)
        .expect("a compiled-in corpus")
        .map(|document| document.expect("a good document").text)
        .collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    let ours = Tokenizer::shipped().expect("the shipped tokenizer");
    let library = tokenizers::Tokenizer::from_bytes(ours.json()).expect("the same tokenizer");

    let one_by_one = || {
        let len = |text: &String| library.encode_fast(text.as_str(), false).expect("ids").len();
        texts.par_iter().map(len).sum::<usize>()
    };
    let batch = || {
        let inputs: Vec<&str> = texts.iter().map(String::as_str).collect();
        library.encode_batch_fast(inputs, false).expect("ids").iter().map(|ids| ids.len()).sum()
    };
    let end_to_end = || build(&source, &ours);

    let mut least = [f64::INFINITY; 3];
    let mut tokens = [0; 3];
    // The first round is not counted.
    for round in 0..=rounds {
        let runs: [&dyn Fn() -> usize; 3] = [&one_by_one, &batch, &end_to_end];
        for (which, run) in runs.into_iter().enumerate() {
            let started = Instant::now();
            tokens[which] = black_box(run());
            if round > 0 {
                least[which] = least[which].min(started.elapsed().as_secs_f64());
            }
        }
    }
    assert_eq!(tokens[0], tokens[1]);
    assert_eq!(tokens[0] + 2 * texts.len(), tokens[2], "two marks a document");

    println!("{} documents, {bytes} bytes, {} threads", texts.len(), rayon::current_num_threads());
    println!("{:<34}{:>10}{:>10}{:>10}", "", "seconds", "MB/s", "ratio");
    let fastest = least[0].min(least[1]);
    for (name, secs) in
        ["library, texts on every core", "library, its own batch", "a store, end to end"]
            .into_iter()
            .zip(least)
    {
        let speed = bytes as f64 / secs / 1e6;
        println!("{name:<34}{secs:>10.3}{speed:>10.2}{:>10.3}", fastest / secs);
    }
}

/// Builds a store in a folder that goes away, and counts its tokens.
fn build(source: &Source, tokenizer: &Tokenizer) -> usize {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let build = Build::new(vec![source.clone()], tokenizer, DocumentMarks::default());
    let built = build.run(folder.path().join("store")).expect("a good corpus");
    built.store.manifest().num_tokens() as usize
}
