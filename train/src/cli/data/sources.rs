//! `train data sources`.

use clap::Args;
use fulmar_data::SourceFile;
use serde_json::json;

use super::files::Reading;
use crate::error::TrainError;
use crate::plan::grouped;
use crate::telemetry::memory::human;

/// Flags of `data sources`.
#[derive(Debug, Args)]
pub struct SourcesArgs {
    /// A data recipe (`.toml`), or files, folders and globs.
    #[arg(required = true)]
    pub paths: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl SourcesArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let pool = Reading::open(&self.paths)?.pool;
        let mut files = Vec::new();
        for source in &pool.sources {
            files.extend(source.files()?.into_iter().map(|file| (source.group(), file)));
        }
        if self.json {
            let lines: Vec<_> = files.iter().map(|(source, file)| as_json(source, file)).collect();
            println!("{}", serde_json::to_string_pretty(&lines).expect("plain values"));
            return Ok(());
        }
        println!("{:<16} {:<7} {:<11} {:>9}  file", "source", "format", "compression", "size");
        for (source, SourceFile { name, format, compression, bytes }) in &files {
            let (format, compression) = (format.name(), compression.name());
            println!("{source:<16} {format:<7} {compression:<11} {:>9}  {name}", human(*bytes));
        }
        let bytes: u64 = files.iter().map(|(_, file)| file.bytes).sum();
        println!("{} files, {} bytes", grouped(files.len() as u64), grouped(bytes));
        Ok(())
    }
}

fn as_json(source: &str, file: &SourceFile) -> serde_json::Value {
    let SourceFile { name, format, compression, bytes } = file;
    json!({
        "source": source, "file": name, "format": format, "compression": compression,
        "bytes": bytes,
    })
}
