//! What every format gives: one record after the other.

use std::{borrow::Cow, sync::Arc};

use super::{fault::Unit, field::Field, mapping::LeftOut};
use crate::{Ledger, Result};

/// A record of a file, before it is a document.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) file: Arc<str>,
    /// Counted from 1.
    pub(crate) number: u64,
    /// Where it lies, or where its fault does: the offset in the decompressed file; in a table, that of
    /// the page that holds its text.
    pub(crate) byte: u64,
    /// What it is called unless a field says so.
    pub(crate) id: Option<String>,
    /// A value for each column of the mapping.
    pub(crate) fields: Vec<Field>,
    /// Why there are no fields.
    pub(crate) problem: Option<LeftOut>,
}

/// Reads the records of a source.
pub(crate) trait Records: Send {
    /// The next record, which is counted; none at the end.
    fn next(&mut self, ledger: &mut Ledger) -> Result<Option<Record>>;

    /// The record read last as it lies in the file, or a part of it, and the bytes of the whole.
    fn raw<'a>(&'a self, record: &'a Record) -> (Cow<'a, [u8]>, u64);

    /// What its records are called.
    fn unit(&self) -> Unit;
}
