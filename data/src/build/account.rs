//! What is known of each file while it is read, and what remains of it.

use serde::{Deserialize, Serialize};

use super::reading::Start;
use crate::{Ledger, Reason};

/// A file that is read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finished {
    pub(super) ledger: Ledger,
    pub(super) num_tokens: u64,
}

/// A file in the middle of its documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Open {
    /// Documents that were read of it, kept or not.
    pub(super) documents: u64,
    /// Those of them that judges have left out.
    pub(super) judged: Ledger,
    pub(super) num_tokens: u64,
}

/// Where a build stands: files in their order, the last one perhaps open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) finished: Vec<Finished>,
    pub(super) open: Open,
}

impl Account {
    /// Where reading goes on.
    pub(super) fn start(&self) -> Start {
        Start { source: self.finished.len(), after_documents: self.open.documents }
    }

    pub(super) fn keep(&mut self, tokens: usize) {
        self.open.documents += 1;
        self.open.num_tokens += tokens as u64;
    }

    /// Passes one that its reader has left out and counted.
    pub(super) fn pass(&mut self) {
        self.open.documents += 1;
    }

    pub(super) fn leave_out(&mut self, reason: Reason, source_bytes: u64) {
        self.open.documents += 1;
        self.open.judged.leave_out(reason);
        self.open.judged.text_bytes += source_bytes;
    }

    /// Closes the open file, of which `read` documents came.
    pub(super) fn finish(&mut self, read: Ledger) {
        let Open { judged, num_tokens, .. } = std::mem::take(&mut self.open);
        let ledger = read.without(&judged);
        assert!(ledger.closes(), "the account of a file does not close: {ledger:?}");
        self.finished.push(Finished { ledger, num_tokens });
    }
}
