//! Files of documents, as the commands that read them all take them.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::{Document, Source, documents};

/// Files of documents.
#[derive(Debug, Args)]
pub struct Files {
    /// Files of JSON lines, zstd or not, read in this order.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

impl Files {
    pub(super) fn sources(&self) -> Vec<Source> {
        sources(&self.files)
    }

    pub(super) fn documents(&self) -> impl Iterator<Item = fulmar_data::Result<Document>> + use<> {
        documents(self.sources())
    }
}

pub(super) fn sources(files: &[PathBuf]) -> Vec<Source> {
    files.iter().map(Source::file).collect()
}
