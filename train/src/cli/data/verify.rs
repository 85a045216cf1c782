//! `train data verify`.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::Store;
use serde_json::json;

use crate::error::TrainError;
use crate::telemetry::memory::human;

/// Flags of `data verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Folder of the store.
    pub store: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl VerifyArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let store = Store::open_unverified(&self.store)?;
        let shards = || store.manifest().cells.iter().flat_map(|cell| &cell.shards);
        let other = &store.manifest().files;
        let files = shards().count() + other.len();
        let bytes = shards().map(|shard| shard.file_bytes).sum::<u64>()
            + other.iter().map(|file| file.file_bytes).sum::<u64>();
        let mut damage = store.damage();
        let problems: Vec<String> = damage.iter().map(ToString::to_string).collect();
        if self.json {
            let whole = problems.is_empty();
            let said =
                json!({"files": files, "bytes": bytes, "whole": whole, "problems": problems});
            println!("{}", serde_json::to_string_pretty(&said).expect("plain values"));
        } else if problems.is_empty() {
            println!("{}: whole, {files} files, {} read", self.store.display(), human(bytes));
        } else {
            problems.iter().for_each(|problem| println!("{problem}"));
        }
        if damage.is_empty() { Ok(()) } else { Err(damage.remove(0).into()) }
    }
}
