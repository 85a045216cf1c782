//! The metrics once more as TensorBoard's event files, `tensorboard/attempt-<n>/` in the run's
//! folder: each attempt is a run there.
//!
//! A file is a row of records (length, checksum, message, checksum), each message an `Event` in
//! protocol buffers. Messages are encoded by `prost` and checksums computed by `crc32c`. The crates
//! that write whole event files (`tensorboard-rs`, `tfrecord`, `tboard`) had their last releases in
//! 2022 to 2024 and bring image codecs, a download in a build script or a `protoc`; what is left
//! beside these two is the framing below.

mod proto;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message as _;

use super::outbox::Outbox;
use super::{Metrics, names};
use crate::error::TrainError;
use proto::{Event, Summary, Value, What};

/// Writes the event file of one attempt.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    outbox: Outbox<File>,
}

impl TensorBoard {
    /// A new event file for an attempt of the run in `folder`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(folder: &Path, attempt: u64) -> Result<Self, TrainError> {
        let folder = folder.join(format!("tensorboard/attempt-{attempt}"));
        std::fs::create_dir_all(&folder).map_err(TrainError::io("create", &folder))?;
        // TensorBoard looks for `tfevents` in names and reads the files of a folder in their order.
        let path = folder.join(format!("events.out.tfevents.{:010}.fulmar", wall_time() as u64));
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let outbox = Outbox::new(file.map_err(TrainError::io("create", &path))?);
        let mut board = Self { path, outbox };
        // What cannot be written is written with the first metrics.
        let _ = board.append(0, What::FileVersion("brain.Event:2".to_owned()));
        Ok(board)
    }

    /// Every metric that is a number, at `step`.
    ///
    /// # Errors
    /// If the file cannot be written; the event is kept and written with the next one.
    pub fn write(&mut self, step: u64, metrics: &Metrics) -> Result<(), TrainError> {
        let value = |(tag, value): (&String, &serde_json::Value)| {
            let number = names::value(value)?;
            Some(Value { tag: tag.clone(), simple_value: Some(number as f32) })
        };
        let value = metrics.iter().filter_map(value).collect();
        self.append(step as i64, What::Summary(Summary { value }))
    }

    /// What went wrong so far, for people; none if nothing did.
    pub fn troubles(&self) -> Option<String> {
        self.outbox.troubles(&self.path)
    }

    fn append(&mut self, step: i64, what: What) -> Result<(), TrainError> {
        let event = Event { wall_time: wall_time(), step, what: Some(what) };
        let written = self.outbox.push(record(&event.encode_to_vec()));
        written.map_err(TrainError::io("write", &self.path))
    }
}

/// Seconds since 1970, which TensorBoard shows beside steps.
fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Length and message, each with its masked CRC-32C, all little-endian.
fn record(message: &[u8]) -> Vec<u8> {
    let len = (message.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(message.len() + 16);
    record.extend_from_slice(&len);
    record.extend_from_slice(&masked_crc(&len).to_le_bytes());
    record.extend_from_slice(message);
    record.extend_from_slice(&masked_crc(message).to_le_bytes());
    record
}

/// Masked, so that a checksum of data that holds checksums stays a good one: as TensorFlow's
/// `tsl/lib/hash/crc32c.h` has it.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_its_version_and_then_every_number_with_its_step() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut metrics = Metrics::new();
        metrics.insert("moe/valid_assignments".to_owned(), 131_072.into());
        metrics.insert("train/loss".to_owned(), 2.5.into());
        metrics.insert("data/digest".to_owned(), "00ff".into());
        metrics.insert("grad/norm/total".to_owned(), "NaN".into());
        metrics.insert("optim/skipped_step".to_owned(), 0.into());
        let mut board = TensorBoard::create(folder.path(), 3).expect("created");
        board.write(7, &metrics).expect("written");
        assert!(board.path.starts_with(folder.path().join("tensorboard/attempt-3")));

        let events = events(&std::fs::read(&board.path).expect("read"));
        assert_eq!(events[0].what, Some(What::FileVersion("brain.Event:2".to_owned())));
        let [_, Event { step: 7, what: Some(What::Summary(summary)), .. }] = &events[..] else {
            panic!("{events:?}")
        };
        let tags: Vec<&str> = summary.value.iter().map(|value| value.tag.as_str()).collect();
        assert_eq!(
            tags,
            ["grad/norm/total", "moe/valid_assignments", "optim/skipped_step", "train/loss"]
        );
        let values: Vec<_> = summary.value.iter().map(|value| value.simple_value).collect();
        assert!(values[0].is_some_and(f32::is_nan), "what is not finite is not hidden");
        assert_eq!(values[1..], [Some(131_072.0), Some(0.0), Some(2.5)]);
    }

    #[test]
    fn a_checksum_is_masked_as_tensorflow_does_it() {
        // CRC-32C of "123456789" is 0xe3069283 in every table of checksums.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        // ((crc >> 15) | (crc << 17)) + 0xa282ead8, modulo 2^32, by hand.
        assert_eq!(masked_crc(b"123456789"), 0xc78a_b0e5);
    }

    /// The events of a file, each checksum checked.
    fn events(mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (len, rest) = bytes.split_at(8);
            let count = u64::from_le_bytes(len.try_into().expect("8 bytes")) as usize;
            let (message, after) = rest[4..].split_at(count);
            assert_eq!(rest[..4], masked_crc(len).to_le_bytes());
            assert_eq!(after[..4], masked_crc(message).to_le_bytes());
            events.push(Event::decode(message).expect("an event"));
            bytes = &after[4..];
        }
        events
    }
}
