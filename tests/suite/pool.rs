//! A pool of files of every format with planted faults: what becomes of each document is known
//! beforehand, and the account must say so.

mod files;
mod records;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use clap::Parser as _;
use fulmar::data::{CellKey, Reason, Store};
use fulmar::train::cli::Cli;

use files::Packing;
use records::{MAX_BYTES, Pool, Truth};

/// What `train data` does with these words, in a folder of absolute paths.
fn data(folder: &Path, words: &str) {
    let place = |word: &str| match word.strip_prefix('@') {
        Some(name) => folder.join(name).display().to_string(),
        None => word.to_owned(),
    };
    let words = ["train", "data"].map(str::to_owned).into_iter().chain(words.split(' ').map(place));
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    cli.command.execute().unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// The recipe of the pool; `more` are fields before its tables.
fn write_recipe(path: &Path, more: &str, tables: &str) {
    let columns = "columns = { text = \"content.body\", id = \"doc\", domain = \"about.topic\", \
                   quality = \"level\" }\nrequire = { \"about.language\" = [\"en\"] }\n";
    let sources = format!(
        "[[sources]]\nname = \"web\"\npaths = [\"web/*\"]\n{columns}\
         [[sources]]\nname = \"books\"\npaths = [\"books/*.parquet\"]\n{columns}\
         [[sources]]\nname = \"notes\"\npaths = [\"notes\"]\ndomain = \"notes\"\n"
    );
    let limits = format!("[limits]\nmax_bytes = {MAX_BYTES}\n");
    fs::write(path, format!("{more}{limits}{tables}{sources}")).expect("a recipe");
}

/// Some hundred or many thousand documents in six files and a folder; what should become of each, by
/// the name of the source.
fn write_pool(folder: &Path, count: u64) -> BTreeMap<String, Truth> {
    let mut pool = Pool::new(7);
    let line = serde_json::json!({ "text": pool.evaluation() });
    fs::write(folder.join("evaluation.jsonl"), format!("{line}\n")).expect("an evaluation text");
    let mut truth = BTreeMap::new();
    // In the order in which they are read, so that originals come before their copies.
    for (name, packing) in [
        ("web/a.jsonl", Packing::Plain),
        ("web/b.jsonl.gz", Packing::Gzip),
        ("web/c.jsonl.zst", Packing::Zstd),
    ] {
        let found = files::lines(&mut pool, &folder.join(name), count, packing);
        truth.insert(name.to_owned(), found);
    }
    for name in ["books/a.parquet", "books/b.parquet"] {
        truth.insert(name.to_owned(), files::table(&mut pool, &folder.join(name), count));
    }
    let texts = files::texts(&mut pool, &folder.join("notes"), count.min(5_000));
    truth.insert("notes".to_owned(), texts);
    truth
}

/// Cleans and builds the pool; what the store says must be the truth.
fn clean_and_build(folder: &Path, count: u64) -> Store {
    let truth = write_pool(folder, count);
    write_recipe(&folder.join("pool.toml"), "", "");
    data(folder, "sources @pool.toml");
    let began = Instant::now();
    data(folder, "clean @pool.toml --evaluation @evaluation.jsonl --out @clean.jsonl");
    let cleaned = began.elapsed().as_secs_f64();
    write_recipe(&folder.join("cleaned.toml"), "decisions = \"clean.jsonl\"\n", "");
    data(folder, "build @cleaned.toml --out @store");
    let built = began.elapsed().as_secs_f64() - cleaned;
    data(folder, "verify @store");
    let store = Store::open(folder.join("store")).expect("a whole store");
    let manifest = store.manifest();
    let text: u64 = manifest.sources.iter().map(|source| source.ledger.text_bytes).sum();
    println!("{text} bytes of text kept; cleaned in {cleaned:.1} s, built in {built:.1} s");
    assert_is_truth(&store, &truth);
    store
}

fn assert_is_truth(store: &Store, truth: &BTreeMap<String, Truth>) {
    let manifest = store.manifest();
    let names: Vec<&String> = manifest.sources.iter().map(|source| &source.name).collect();
    let needed: Vec<&str> =
        ["web/a.jsonl", "web/b.jsonl.gz", "web/c.jsonl.zst", "books/a.parquet", "books/b.parquet"]
            .into_iter()
            .chain(["notes"])
            .collect();
    assert_eq!(names, needed);
    let mut left_out = 0;
    for source in &manifest.sources {
        let (name, ledger) = (&source.name, &source.ledger);
        assert!(ledger.closes(), "{name}: {ledger:?}");
        let counts = Reason::ALL.map(|reason| (reason, ledger.left_out(reason)));
        let found = Truth {
            documents: ledger.documents,
            left_out: counts.into_iter().filter(|(_, count)| *count > 0).collect(),
            text_bytes: ledger.text_bytes,
        };
        assert_eq!(found, truth[name], "{name}");
        left_out += counts.iter().map(|(_, count)| count).sum::<u64>();
    }
    assert_eq!(manifest.quarantined, left_out);
    let lines = fs::read(store.path().join("quarantine.jsonl")).expect("the quarantine file");
    assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count() as u64, left_out);
    let tokens: u64 = manifest.sources.iter().map(|source| source.num_tokens).sum();
    assert_eq!(tokens, manifest.num_tokens());
}

#[test]
fn the_account_of_a_pool_with_planted_faults_is_the_truth() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = clean_and_build(folder.path(), 400);
    // The same documents in cells of clusters and buckets.
    data(folder.path(), "cluster @pool.toml --clusters 4 --dim 256 --out @clusters.json");
    data(folder.path(), "quality @pool.toml --good-from 2 --dim 256 --out @quality.json");
    let cells = "[cells]\nclusters = \"clusters.json\"\nquality = \"quality.json\"\n";
    let recipe = folder.path().join("cells.toml");
    write_recipe(&recipe, "decisions = \"clean.jsonl\"\n", cells);
    data(folder.path(), "build @cells.toml --out @by_cell");
    let by_cell = Store::open(folder.path().join("by_cell")).expect("a whole store");
    assert_eq!(by_cell.manifest().num_tokens(), store.manifest().num_tokens());
    for name in by_cell.cell_names() {
        let CellKey { domain, quality } = name.parse().expect("a name");
        assert!(["c00", "c01", "c02", "c03"].contains(&&*domain) && quality < 5, "{name}");
    }
}

/// `cargo test --release --workspace --test suite -- --ignored gigabyte --nocapture`; a few minutes.
#[test]
#[ignore = "minutes, and 4 GB of disk"]
fn the_account_of_a_gigabyte_with_planted_faults_is_the_truth() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    clean_and_build(folder.path(), 100_000);
}
