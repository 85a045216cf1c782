//! `train data inspect`.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::{Cell, Store, Tokenizer};
use serde_json::{Value, json};

use crate::error::TrainError;
use crate::plan::grouped;

/// Characters of a sample.
const SAMPLE_CHARACTERS: usize = 300;

/// Files of a shard that are listed.
const SPANS: usize = 8;

/// Marks of the longest bar of a histogram.
const BAR_MARKS: u64 = 40;

/// Flags of `data inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Folder of the store.
    pub store: PathBuf,
    /// Only this cell, such as poetry/q3.
    #[arg(long, value_name = "NAME")]
    pub cell: Option<String>,
    /// Show so many documents of each cell, evenly spread.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub samples: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl InspectArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let store = Store::open_unverified(&self.store)?;
        let chosen = |cell: &&Cell| self.cell.as_ref().is_none_or(|name| name == cell.name());
        let cells: Vec<&Cell> = store.cells().iter().filter(chosen).collect();
        if let (Some(name), true) = (&self.cell, cells.is_empty()) {
            let names = store.cell_names().join(", ");
            return Err(TrainError::config("--cell", name, format!("one of {names}")));
        }
        let tokenizer = if self.samples > 0 { Some(store.tokenizer()?) } else { None };
        let mut samples = Vec::new();
        for cell in &cells {
            samples.push(self.samples_of(&store, cell, tokenizer.as_ref())?);
        }
        if self.json {
            let cells = cells.iter().zip(samples).map(|(cell, samples)| to_json(cell, &samples));
            let said = json!({
                "manifest": store.manifest(), "cells": cells.collect::<Vec<_>>(),
            });
            println!("{}", serde_json::to_string_pretty(&said).expect("plain values"));
        } else {
            print_store(&store, &cells);
            for (cell, samples) in cells.iter().zip(samples) {
                print_cell(&store, cell, &samples);
            }
        }
        Ok(())
    }

    fn samples_of(
        &self,
        store: &Store,
        cell: &Cell,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Vec<Sample>, TrainError> {
        let Some(tokenizer) = tokenizer else { return Ok(Vec::new()) };
        let (all, mut samples) = (cell.num_documents(), Vec::new());
        let count = self.samples.min(all);
        for place in 0..count {
            // The product is beyond u64 for no store that fits a disk.
            let document = all * place / count;
            let range = cell.document_range(document);
            // No token is less than a byte of text, so that these are enough characters.
            let end = range.end.min(range.start + 4 * SAMPLE_CHARACTERS as u64);
            let mut tokens = Vec::new();
            cell.read_tokens(range.start..end, &mut tokens);
            let whole = tokenizer.decode(&tokens)?;
            let text: String = whole.chars().take(SAMPLE_CHARACTERS).collect();
            let cut = text.len() < whole.len() || end < range.end;
            let (source, record) = cell.document_origin(document);
            let file = store.manifest().sources.get(source as usize);
            samples.push(Sample {
                id: cell.document_id(document).into_owned(),
                file: file.map(|file| file.name.clone()).unwrap_or_default(),
                record,
                tokens: range.end - range.start,
                bytes: cell.source_bytes(document),
                text: if cut { text + "…" } else { text },
            });
        }
        Ok(samples)
    }
}

/// The beginning of a document.
#[derive(serde::Serialize)]
struct Sample {
    id: String,
    file: String,
    record: u64,
    tokens: u64,
    bytes: u64,
    text: String,
}

/// What the manifest does not say of a cell.
fn to_json(cell: &Cell, samples: &[Sample]) -> Value {
    let counts = cell.length_histogram();
    let bins = counts.iter().enumerate().map(|(bin, documents)| {
        json!({"from_tokens": 1_u64 << bin, "below": 1_u64 << (bin + 1), "documents": documents})
    });
    json!({"name": cell.name(), "lengths": bins.collect::<Vec<_>>(), "samples": samples})
}

fn print_store(store: &Store, cells: &[&Cell]) {
    let manifest = store.manifest();
    let tokenizer = &manifest.tokenizer;
    println!("store      {}", store.path().display());
    println!("made of    {}", manifest.build_digest);
    println!("tokenizer  {}, {} tokens", tokenizer.digest, grouped(tokenizer.vocab_size.into()));
    let said = |mark| if mark { "yes" } else { "no" };
    let (bos, eos) = (said(tokenizer.marks.bos), said(tokenizer.marks.eos));
    println!("marks      before {bos} ({}), behind {eos} ({})", tokenizer.bos_id, tokenizer.eos_id);
    println!("\n{}", manifest.account());
    println!(
        "{:<24} {:>6} {:>14} {:>20} {:>20} {:>8}",
        "cell", "shards", "documents", "tokens", "bytes", "per tok."
    );
    for cell in cells {
        let entry = cell.entry();
        println!(
            "{:<24} {:>6} {:>14} {:>20} {:>20} {:>8.3}",
            entry.name,
            entry.shards.len(),
            grouped(entry.num_documents),
            grouped(entry.num_tokens),
            grouped(entry.source_bytes),
            entry.source_bytes as f64 / entry.num_tokens.max(1) as f64,
        );
    }
}

fn print_cell(store: &Store, cell: &Cell, samples: &[Sample]) {
    println!("\n{}: tokens of a document", cell.name());
    let counts = cell.length_histogram();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    for (bin, count) in counts.iter().enumerate().skip_while(|(_, count)| **count == 0) {
        let bar = "#".repeat((count * BAR_MARKS).div_ceil(most) as usize);
        println!("{:>12} {:>14} {bar}", grouped(1 << bin), grouped(*count));
    }
    for shard in &cell.entry().shards {
        let documents = grouped(shard.num_documents);
        println!("{}: {documents} documents from", shard.file);
        for span in shard.spans.iter().take(SPANS) {
            let name = &store.manifest().sources[span.source as usize].name;
            let (first, last) = (grouped(span.first_record), grouped(span.last_record));
            println!("  {name}, {first} to {last}: {}", grouped(span.documents));
        }
        if let Some(more) = shard.spans.len().checked_sub(SPANS).filter(|more| *more > 0) {
            println!("  and {more} more; all with --json");
        }
    }
    for sample in samples {
        let Sample { id, file, record, tokens, bytes, text } = sample;
        println!("\n{id} ({file}, {record}; {tokens} tokens, {bytes} bytes)");
        text.lines().for_each(|line| println!("  | {line}"));
    }
}
