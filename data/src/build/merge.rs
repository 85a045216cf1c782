//! Parts → the store, cell by cell, so that the index of one shard is in memory at a time.

use std::{collections::BTreeSet, path::Path};

use super::{Build, Digests, account::Account, part::Part, work::WorkFolder};
use crate::{
    CellKey, DataError, Origin, QUARANTINE_FILE, Result, SourceEntry, Store, StoreWriter,
    TOKENIZER_FILE,
};

impl Build<'_> {
    /// Puts the store together and publishes it.
    pub(super) fn publish(
        &self,
        work: &WorkFolder,
        parts: &[Part],
        account: &Account,
        digests: &Digests,
        out_dir: &Path,
    ) -> Result<Store> {
        let staging = work.staging();
        std::fs::create_dir_all(&staging)
            .map_err(DataError::io("create folder", staging.as_path()))?;
        let mut writer =
            StoreWriter::create_in(staging, out_dir, self.tokenizer_entry()).limits(self.shards);
        let cells: BTreeSet<CellKey> =
            parts.iter().flat_map(|part| part.cells().iter().map(|cell| cell.key())).collect();
        for key in &cells {
            for part in parts {
                for cell in part.cells().iter().filter(|cell| cell.key() == *key) {
                    part.read_cell(&work.parts(), cell, |document| writer.append(key, document))?;
                }
            }
            writer.close_cell(key)?;
        }
        let json = self.tokenizer.json().as_bytes().to_vec();
        writer.add_file(TOKENIZER_FILE, [Ok(json)])?;
        let quarantined = parts.iter().map(|part| part.quarantined).sum();
        if quarantined > 0 {
            let lines = parts.iter().map(|part| part.read_quarantine(&work.parts()));
            writer.add_file(QUARANTINE_FILE, lines)?;
        }
        let files = self.sources.iter().zip(&digests.sources).zip(&account.finished);
        let sources = files.map(|((source, blake3), finished)| SourceEntry {
            name: source.name().to_owned(),
            blake3: blake3.clone(),
            ledger: finished.ledger,
            num_tokens: finished.num_tokens,
        });
        writer.finish(Origin {
            build_digest: digests.build.clone(),
            rules: self.rules(),
            sources: sources.collect(),
            quarantined,
        })
    }
}
