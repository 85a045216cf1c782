//! Documents that are left out, with all that is needed to look at them.

use std::sync::{Arc, Mutex, PoisonError};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use super::{fault::Place, mapping::LeftOut, records::Record};
use crate::{DataError, Document, Reason, Result};

/// Bytes kept of a record that cannot be read, to repair it by.
const FAULTY_BYTES: usize = 1 << 20;

/// Bytes kept of a record that is sound, which its file and number find again.
const SOUND_BYTES: usize = 1 << 10;

/// A document that is left out.
///
/// As JSON, `raw` is text, or `raw_base64` where it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Line", into = "Line")]
pub struct Reject {
    /// Name of the file.
    pub file: String,
    /// Its place in the file, counted from 1: [`Document::record`].
    pub record: u64,
    /// Where the record begins in the decompressed file, or where its fault is; for a table, where the
    /// page begins in the file that holds its text. 0 for what a judge left out.
    pub byte: u64,
    /// What it is counted under.
    pub reason: Reason,
    /// What was found, in words.
    pub evidence: String,
    /// The record as it lies in the file: a line with its end, a text file, a row as JSON, or the value of a row
    /// that is not UTF-8. At most 1 MiB of a record that cannot be read, 1 KiB of one that is sound.
    pub raw: Vec<u8>,
    /// Bytes of the whole record.
    pub raw_bytes: u64,
}

impl Reject {
    /// A document that was read and is left out all the same, by a judge.
    pub fn of(document: &Document, reason: Reason, evidence: impl Into<String>) -> Self {
        let text = document.text.as_bytes();
        Self {
            file: document.file.to_string(),
            record: document.record,
            byte: 0,
            reason,
            evidence: evidence.into(),
            raw: start_of(text, SOUND_BYTES),
            raw_bytes: text.len() as u64,
        }
    }

    pub(crate) fn new(record: &Record, why: &LeftOut, (raw, raw_bytes): (&[u8], u64)) -> Self {
        let (reason, evidence, kept) = match why {
            LeftOut::Fault(fault) => (fault.reason(), fault.to_string(), FAULTY_BYTES),
            LeftOut::Unwanted(reason, evidence) => (*reason, evidence.clone(), SOUND_BYTES),
        };
        let Record { file, number, byte, .. } = record;
        let (file, raw) = (file.to_string(), start_of(raw, kept));
        Self { file, record: *number, byte: *byte, reason, evidence, raw, raw_bytes }
    }
}

/// The first bytes, without a part of a character at their end.
fn start_of(bytes: &[u8], max: usize) -> Vec<u8> {
    let Some(start) = bytes.get(..max) else { return bytes.to_vec() };
    let whole = match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => max,
    };
    start[..whole].to_vec()
}

/// A [`Reject`] as JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    file: String,
    record: u64,
    byte: u64,
    reason: Reason,
    evidence: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw_base64: Option<String>,
    raw_bytes: u64,
}

impl From<Reject> for Line {
    fn from(reject: Reject) -> Self {
        let Reject { file, record, byte, reason, evidence, raw, raw_bytes } = reject;
        let (raw, raw_base64) = match String::from_utf8(raw) {
            Ok(text) => (Some(text), None),
            Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
        };
        Self { file, record, byte, reason, evidence, raw, raw_base64, raw_bytes }
    }
}

impl TryFrom<Line> for Reject {
    type Error = base64::DecodeError;

    fn try_from(line: Line) -> Result<Self, base64::DecodeError> {
        let Line { file, record, byte, reason, evidence, raw, raw_base64, raw_bytes } = line;
        let raw = match raw_base64 {
            Some(encoded) => BASE64_STANDARD.decode(encoded)?,
            None => raw.unwrap_or_default().into_bytes(),
        };
        Ok(Self { file, record, byte, reason, evidence, raw, raw_bytes })
    }
}

/// Where rejects go.
pub trait RejectSink: Send {
    /// Takes one.
    ///
    /// # Errors
    /// If it cannot be kept; reading then ends.
    fn take(&mut self, reject: Reject) -> Result<()>;
}

/// In memory, for few.
impl RejectSink for Vec<Reject> {
    fn take(&mut self, reject: Reject) -> Result<()> {
        self.push(reject);
        Ok(())
    }
}

/// One sink for several readers, which is looked at afterwards.
impl<S: RejectSink> RejectSink for Arc<Mutex<S>> {
    fn take(&mut self, reject: Reject) -> Result<()> {
        self.lock().unwrap_or_else(PoisonError::into_inner).take(reject)
    }
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is a document of the pool.
    Document(Document),
    /// It is left out.
    Reject(Reject),
}

/// A fault as the error that it is in strict mode.
pub(crate) fn error_of(place: Place, why: LeftOut) -> Result<LeftOut> {
    match why {
        LeftOut::Fault(fault) => Err(DataError::BadRecord { place, fault }),
        unwanted => Ok(unwanted),
    }
}
