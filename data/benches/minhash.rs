//! Near duplicates: how fast, how many of the planted ones are found, and at what memory.
//!
//! ```text
//! cargo bench --workspace --bench minhash
//! ```
//!
//! Planted pairs share one run of words and no word besides, so that the Jaccard similarity of their
//! shingles is known exactly. Of pairs at 0.8 at least 0.95 must be found; those at 0.5 are not near
//! duplicates, and what is found of them is false.

use std::sync::Arc;
use std::time::Instant;

use fulmar_data::clean::{
    CleanSettings, CleanSource, Cleaned, ContaminationSettings, EvaluationTexts, clean,
};
use fulmar_data::{Document, SourceIdentity, corpus, documents};

const SIMILARITIES: [f64; 9] = [0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95];
const SHINGLE: usize = 5;
const REPEATS: usize = 5;

fn main() {
    // `cargo test --benches` passes `--test`: then one short round shows that the bench runs.
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (pairs, copies, many) = if is_test { (20, 1, 1_000) } else { (2_000, 8, 300_000) };
    // First, while nothing else has had a higher peak.
    memory(many);
    println!();
    recall(pairs);
    println!();
    throughput(copies, if is_test { 1 } else { REPEATS });
}

/// Planted pairs of documents of some 300 words.
fn recall(pairs: usize) {
    println!("{:>8}{:>8}{:>9}{:>8}{:>16}", "Jaccard", "pairs", "found", "wrong", "share a band");
    let fuzzy = CleanSettings::default().fuzzy.expect("near duplicates are looked for");
    for similarity in SIMILARITIES {
        let mut words = Words(7);
        let (mut all, mut jaccard) = (Vec::new(), 0.0);
        for pair in 0..pairs {
            // Sets of n shingles that share s: J = s / (2 n - s).
            let num_words = 200 + pair % 200;
            let shingles = (num_words - SHINGLE + 1) as f64;
            let shared = (2.0 * shingles * similarity / (1.0 + similarity)).round();
            jaccard += shared / (2.0 * shingles - shared) / pairs as f64;
            let common = words.take(shared as usize + SHINGLE - 1);
            let rest = num_words - (shared as usize + SHINGLE - 1);
            all.push(format!("{common}{}", words.take(rest)));
            all.push(format!("{}{common}", words.take(rest)));
        }
        let cleaned = run(&CleanSettings::default(), None, made_up(all));
        let partner = |record: u64| format!("like made-up:{},", record - 1);
        let decisions = cleaned.decisions.all();
        let found = decisions.iter().filter(|d| d.evidence.starts_with(&partner(d.record))).count();
        println!(
            "{jaccard:>8.3}{pairs:>8}{:>8.2}%{:>8}{:>15.2}%",
            100.0 * found as f64 / pairs as f64,
            decisions.len() - found,
            100.0 * fuzzy.candidate_probability(jaccard)
        );
    }
}

/// The shipped corpus several times, each copy with words of its own so that none repeats another.
fn throughput(copies: usize, repeats: usize) {
    let shipped: Vec<Document> =
        documents([corpus::train()]).collect::<Result<_, _>>().expect("the shipped corpus");
    let copy = |copy: usize| {
        shipped.iter().map(move |document| document.text.replace("the", &format!("t{copy}e")))
    };
    let all = made_up((0..copies).flat_map(copy).collect());
    let bytes: usize = all.iter().map(|document| document.text.len()).sum();
    let heldout = documents([corpus::heldout()]);
    let texts = EvaluationTexts::new(ContaminationSettings::default(), heldout);
    let texts = texts.expect("the shipped corpus");
    let exact = CleanSettings { fuzzy: None, ..CleanSettings::default() };
    let near = CleanSettings::default();
    println!(
        "{} documents, {} MB, {} threads",
        all.len(),
        bytes / 1_000_000,
        rayon::current_num_threads()
    );
    println!("{:<44}{:>8}{:>10}", "", "MB/s", "of a hash");
    let hash = fastest(repeats, || {
        all.iter().fold(0, |sum, d| sum ^ blake3::hash(d.text.as_bytes()).as_bytes()[0])
    });
    let line = |name: &str, secs: f64| {
        println!("{name:<44}{:>8.0}{:>10.3}", bytes as f64 / secs / 1e6, hash / secs);
    };
    line("BLAKE3 alone, one thread", hash);
    line("duplicates", fastest(repeats, || run(&exact, None, all.clone())));
    line(
        "duplicates and evaluation texts",
        fastest(repeats, || run(&exact, Some(&texts), all.clone())),
    );
    line("duplicates and near duplicates", fastest(repeats, || run(&near, None, all.clone())));
    line("all", fastest(repeats, || run(&near, Some(&texts), all.clone())));
}

/// Resident bytes that a document adds, all of them different.
fn memory(num_documents: usize) {
    let Some(before) = peak_bytes() else { return };
    let mut words = Words(11);
    let one = move |index| document(index, words.take(12));
    let source = source(Box::new((0..num_documents).map(one).map(Ok)));
    clean(&CleanSettings::default(), None, vec![source]).expect("good documents");
    let added = peak_bytes().unwrap_or(before) - before;
    println!(
        "{num_documents} short documents: {} MB at the peak, {} bytes a document",
        added / 1_000_000,
        added / num_documents
    );
}

fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kib| kib * 1024)
}

fn fastest<T>(repeats: usize, mut work: impl FnMut() -> T) -> f64 {
    let once = |_| {
        let begun = Instant::now();
        std::hint::black_box(work());
        begun.elapsed().as_secs_f64()
    };
    (0..repeats).map(once).fold(f64::INFINITY, f64::min)
}

fn run(
    settings: &CleanSettings,
    texts: Option<&EvaluationTexts>,
    documents: Vec<Document>,
) -> Cleaned {
    let source = source(Box::new(documents.into_iter().map(Ok)));
    clean(settings, texts, vec![source]).expect("good documents")
}

fn source(
    documents: Box<dyn Iterator<Item = fulmar_data::Result<Document>>>,
) -> CleanSource<'static> {
    let name = "made-up".to_owned();
    let files =
        vec![SourceIdentity { name: name.clone(), blake3: String::new(), reading: String::new() }];
    CleanSource { name, files, exempt: Vec::new(), documents }
}

fn made_up(texts: Vec<String>) -> Vec<Document> {
    texts.into_iter().enumerate().map(|(index, text)| document(index, text)).collect()
}

fn document(index: usize, text: String) -> Document {
    Document {
        id: String::new(),
        text,
        domain: String::new(),
        quality: 0,
        origin: String::new(),
        file: Arc::from("made-up"),
        record: index as u64 + 1,
        score: None,
        embedding: None,
    }
}

/// Words that never come twice.
struct Words(u64);

impl Words {
    fn take(&mut self, count: usize) -> String {
        let mut text = String::with_capacity(count * 8);
        for _ in 0..count {
            self.0 += 1;
            // Six letters, the digits of a scrambled counter in base 36.
            let mut rest = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 31;
            while rest > 0 {
                text.push(char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[rest as usize % 36]));
                rest /= 36;
            }
            text.push(' ');
        }
        text
    }
}
