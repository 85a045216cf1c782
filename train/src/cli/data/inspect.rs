//! `train data inspect`.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::Store;

use crate::error::TrainError;
use crate::plan::grouped;

/// Flags of `data inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Folder of the store.
    pub store: PathBuf,
}

impl InspectArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let store = Store::open(&self.store)?;
        println!("{:<24} {:>12} {:>20}", "cell", "documents", "tokens");
        for cell in store.cells() {
            let (documents, tokens) = (grouped(cell.num_documents()), grouped(cell.num_tokens()));
            println!("{:<24} {documents:>12} {tokens:>20}", cell.name());
        }
        Ok(())
    }
}
