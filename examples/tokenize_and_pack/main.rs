//! A folder of files to packed rows: what was read and left out, the cells, and rows with the
//! documents in them.
//!
//! ```text
//! cargo run --release --example tokenize_and_pack                # on a small folder that it writes
//! cargo run --release --example tokenize_and_pack -- my/files    # on JSON lines of your own
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use fulmar::data::{
    BuildRecipe, MixtureConfig, Row, RowLengths, RowSource, SourceConfig, Store, Tokenizer,
};

/// Rows whose mixture is exact: small, as the folder is.
const BLOCK_ROWS: u64 = 64;

/// Characters of a document that are shown.
const SHOWN: usize = 48;

/// Makes a token store of a folder of files, and shows packed rows of it.
#[derive(Parser)]
#[command(
    after_help = "Example: cargo run --release --example tokenize_and_pack -- my/files --seq-len 2048"
)]
struct Args {
    /// A folder with JSON lines (`.jsonl`, `.jsonl.zst`) at any depth; without one, a small folder
    /// is written and read.
    folder: Option<PathBuf>,
    /// The tokenizer; that of the shipped corpus when absent.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Tokens of a row.
    #[arg(long, value_name = "N", default_value_t = 256)]
    seq_len: usize,
    /// Rows to show.
    #[arg(long, value_name = "N", default_value_t = 4)]
    rows: u64,
    /// Where the store is made, or found from an earlier time.
    #[arg(long, value_name = "DIR", default_value = "runs/tokenize_and_pack/store")]
    out: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => write_folder(Path::new("runs/tokenize_and_pack/files"))?,
    };

    // A recipe says what a store is made of. It could as well be a TOML file for `train data build`.
    let patterns = ["**/*.jsonl", "**/*.jsonl.zst"].map(str::to_owned);
    let there = |pattern: &String| has_match(&folder, pattern.trim_start_matches("**/*"));
    let recipe = BuildRecipe {
        tokenizer: args.tokenizer.as_deref().map(fs::canonicalize).transpose()?,
        sources: vec![SourceConfig {
            name: "files".to_owned(),
            paths: patterns.into_iter().filter(there).collect(),
            ..SourceConfig::default()
        }],
        ..BuildRecipe::default()
    };
    let tokenizer = recipe.open_tokenizer(&folder)?;
    let built = recipe.build(&folder, &tokenizer)?.run(&args.out)?;
    let (store, tokenised) = (Arc::new(built.store), built.tokenised);

    // Every document of every file is accounted for: kept, or left out for a reason.
    print!("{}", store.manifest().account());
    println!("\n{}: {tokenised} documents tokenised now", store.path().display());

    // Rows are packed without padding: documents lie end to end, marked by segment.
    let lengths = RowLengths::constant(args.seq_len);
    let mixture = MixtureConfig::proportional(&store, args.seq_len, BLOCK_ROWS);
    let rows = RowSource::new(store.clone(), &mixture, &lengths, 0)?;
    print_cells(&store, &rows);
    for index in 0..args.rows {
        print_row(&store, &tokenizer, &rows.row(index))?;
    }
    println!("\nrow {} is found as fast: {}", 1_u64 << 43, digest(&rows, 1 << 43));
    Ok(())
}

fn print_cells(store: &Store, rows: &RowSource) {
    let heads = ["documents", "tokens", "rows", "left out"];
    println!("\n{:<20}{:>12}{:>12}{:>12}{:>12}", "cell", heads[0], heads[1], heads[2], heads[3]);
    for (cell, pages) in store.cells().iter().zip(rows.pages()) {
        println!(
            "{:<20}{:>12}{:>12}{:>12}{:>12}",
            cell.name(),
            cell.num_documents(),
            cell.num_tokens(),
            pages.num_pages,
            pages.left_out_tokens,
        );
    }
}

/// The documents of a row, each with the tokens it has there and the beginning of them as text.
fn print_row(store: &Store, tokenizer: &Tokenizer, row: &Row) -> Result<(), Box<dyn Error>> {
    let cell = &store.cells()[row.cell as usize];
    println!("\nrow {}: page {} of {}, epoch {}", row.index, row.page, cell.name(), row.epoch);
    let pieces = row.segment_ids.chunk_by(|a, b| a == b);
    let mut at = 0;
    for piece in pieces {
        let tokens = &row.tokens[at..at + piece.len()];
        at += piece.len();
        let document = row.first_document + u64::from(piece[0]);
        let text = tokenizer.decode(tokens)?;
        let shown: String = text.chars().take(SHOWN).collect();
        println!("  {:<16}{:>6} tokens  {shown:?}", cell.document_id(document), tokens.len());
    }
    Ok(())
}

fn digest(rows: &RowSource, index: u64) -> String {
    format!("{:016x}", rows.batch(index..index + 1).digest())
}

/// Whether a folder has a file, at any depth, whose name ends so.
fn has_match(folder: &Path, end: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() { has_match(&path, end) } else { name.ends_with(end) }
    })
}

/// Files as one meets them: several folders, blank lines, documents without text.
fn write_folder(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let line = |id: usize, domain: &str, quality: usize, text: &str| {
        format!(
            "{{\"id\":\"{domain}-{id}\",\"domain\":\"{domain}\",\"quality\":{quality},\"text\":\"{text}\"}}\n"
        )
    };
    for (name, domain, documents) in
        [("letters/one", "letters", 60), ("letters/two", "letters", 45), ("notes", "notes", 80)]
    {
        let mut lines = String::new();
        for id in 0..documents {
            let text = match id % 20 {
                19 => String::new(),
                _ => format!("This is number {id} of the {domain}. ").repeat(id % 7 + 1),
            };
            lines += &line(id, domain, id % 2, &text);
            if id % 9 == 8 {
                lines.push('\n');
            }
        }
        let path = folder.join(format!("{name}.jsonl"));
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, lines)?;
    }
    Ok(folder.to_owned())
}
