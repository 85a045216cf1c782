//! Documents, as the commands that read them all take them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use fulmar_data::{Document, Ledger, Pool, Reason, documents_with};

use crate::error::TrainError;
use crate::plan::grouped;

/// Documents to read.
#[derive(Debug, Args)]
pub struct Files {
    /// A data recipe (.toml), or files, folders and globs, read in this order.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
}

impl Files {
    pub(super) fn open(&self) -> Result<Reading, TrainError> {
        Reading::open(&self.files)
    }
}

/// Files that are found, and what their readers have left out so far.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) pool: Pool,
    pub(super) left_out: Arc<Mutex<Ledger>>,
}

impl Reading {
    /// What a data recipe reads, or plain files.
    pub(super) fn open(paths: &[String]) -> Result<Self, TrainError> {
        let is_recipe = |path: &str| Path::new(path).extension().is_some_and(|end| end == "toml");
        let pool = match paths {
            [recipe] if is_recipe(recipe) => Pool::of_recipe(recipe)?,
            files => Pool::of_files(files)?,
        };
        Ok(Self { pool, left_out: Arc::default() })
    }

    pub(super) fn documents(&self) -> impl Iterator<Item = fulmar_data::Result<Document>> + use<> {
        documents_with(self.pool.sources.clone(), self.pool.options, &self.left_out)
    }

    /// What readers have left out, by reason.
    pub(super) fn left_out(&self) -> Vec<(Reason, u64)> {
        let ledger = *self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = Reason::ALL.map(|reason| (reason, ledger.left_out(reason)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Says what readers have left out, if they have.
    pub(super) fn say_left_out(&self) {
        let counts = self.left_out();
        if counts.is_empty() {
            return;
        }
        let said = counts.iter().map(|(reason, count)| format!("{} {reason}", grouped(*count)));
        let said: Vec<String> = said.collect();
        println!("left out by readers: {}; `train data build` lists each", said.join(", "));
    }
}
