//! The file of all that was left out.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use super::reject::{Reject, RejectSink};
use crate::{DataError, Ledger, Result};

/// Writes rejects as JSON lines, one a line in the order they come, and counts them.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use fulmar_data::{DocumentReader, Quarantine, ReadOptions, Source};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("a.jsonl");
/// # std::fs::write(&path, "{\"text\":\"good\"}\n{\"text\":\"half a line\n")?;
/// # let quarantine_path = folder.path().join("quarantine.jsonl");
/// let quarantine = Arc::new(Mutex::new(Quarantine::create(&quarantine_path)?));
/// let reader = DocumentReader::open_with(&Source::file(&path), ReadOptions::default())?;
/// let mut reader = reader.rejects_to(Box::new(Arc::clone(&quarantine)));
/// assert_eq!(reader.by_ref().count(), 1);
/// assert_eq!(quarantine.lock().unwrap().finish()?.malformed, 1);
/// assert!(reader.ledger().closes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Quarantine {
    path: PathBuf,
    file: BufWriter<File>,
    counts: Ledger,
}

impl Quarantine {
    /// Starts a file, which must not be there yet.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let file = File::create_new(&path).map_err(DataError::io("create", path.as_path()))?;
        Ok(Self { path, file: BufWriter::new(file), counts: Ledger::default() })
    }

    /// Rejects written so far, by reason; `documents` has their sum.
    pub fn counts(&self) -> Ledger {
        self.counts
    }

    /// Sees to it that all lines are on disk, and returns [`Quarantine::counts`].
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn finish(&mut self) -> Result<Ledger> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        written.map_err(DataError::io("write", self.path.as_path()))?;
        Ok(self.counts)
    }
}

impl RejectSink for Quarantine {
    fn take(&mut self, reject: Reject) -> Result<()> {
        let reason = reject.reason;
        let failed = DataError::io("write", self.path.as_path());
        let written = serde_json::to_writer(&mut self.file, &reject).map_err(Into::into);
        written.and_then(|()| self.file.write_all(b"\n")).map_err(failed)?;
        self.counts.documents += 1;
        self.counts.leave_out(reason);
        Ok(())
    }
}
