//! A judge and a choice of cells, as small as they come.

use fulmar_data::{Assign, CellKey, Document, Judge, Reason, Result, Verdict};

/// Leaves out documents with a piece of text in their id.
pub(crate) struct Without(pub(crate) &'static str);

impl Judge for Without {
    fn judge(&self, document: &Document) -> Verdict {
        if document.id.contains(self.0) {
            let evidence = format!("{} in {}", self.0, document.id);
            return Verdict::LeaveOut { reason: Reason::Duplicate, evidence };
        }
        Verdict::Keep
    }

    fn digest(&self) -> String {
        format!("without {}", self.0)
    }
}

/// Numbered cells by the length of the text.
pub(crate) struct Numbered;

impl Assign for Numbered {
    fn cell(&self, document: &Document) -> Result<CellKey> {
        let domain = format!("c{:02}", document.text.len() % 5);
        Ok(CellKey { domain, quality: document.quality })
    }

    fn digest(&self) -> String {
        "numbered".to_owned()
    }
}
