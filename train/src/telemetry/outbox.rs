//! A file of records (lines, events) that survives a full disk: what could not be written is kept
//! and tried again.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::Path;

/// Bytes that are kept for later; beyond, the oldest whole records are given up and counted. Of the
/// order of ten thousand steps of a small model, and nothing beside the memory of a large one.
const MOST_KEPT_BYTES: usize = 32 << 20;

/// Records on their way to a file.
#[derive(Debug)]
pub(super) struct Outbox<W> {
    file: W,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Bytes of the first waiting record that have been written.
    written: usize,
    lost: u64,
    failures: u64,
}

impl<W: Write> Outbox<W> {
    pub(super) fn new(file: W) -> Self {
        let waiting = VecDeque::new();
        Self { file, waiting, waiting_bytes: 0, written: 0, lost: 0, failures: 0 }
    }

    pub(super) fn file(&self) -> &W {
        &self.file
    }

    /// What went wrong so far, for people; none if nothing did.
    pub(super) fn troubles(&self, path: &Path) -> Option<String> {
        let (path, failures, lost) = (path.display(), self.failures, self.lost);
        let waiting = self.waiting.len();
        (failures > 0).then(|| {
            format!(
                "{path}: {failures} writes failed, {lost} records given up, {waiting} unwritten"
            )
        })
    }

    /// Writes a record after all that wait.
    ///
    /// # Errors
    /// If it could not be written; it waits then.
    pub(super) fn push(&mut self, record: Vec<u8>) -> io::Result<()> {
        self.waiting_bytes += record.len();
        self.waiting.push_back(record);
        let result = self.write();
        // A record that has been begun must be ended.
        let first = usize::from(self.written > 0);
        while self.waiting_bytes > MOST_KEPT_BYTES && self.waiting.len() > first {
            let record = self.waiting.remove(first).expect("checked");
            self.waiting_bytes -= record.len();
            self.lost += 1;
        }
        result
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// At the first failure; the rest waits.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while let Some(record) = self.waiting.front() {
            match self.file.write(&record[self.written..]) {
                Ok(0) => return self.failed(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.failed(error),
            }
            if self.written == record.len() {
                self.waiting_bytes -= record.len();
                self.written = 0;
                self.waiting.pop_front();
            }
        }
        self.file.flush()
    }

    fn failed(&mut self, error: io::Error) -> io::Result<()> {
        self.failures += 1;
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that holds `room` bytes and takes at most 7 at once.
    struct Disk {
        room: usize,
        held: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(7).min(self.room - self.held.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.held.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(n: usize) -> Vec<u8> {
        format!("line number {n}\n").into_bytes()
    }

    #[test]
    fn a_disk_that_is_full_for_a_while_costs_no_record() {
        let mut outbox = Outbox::new(Disk { room: 35, held: Vec::new() });
        let results = [0, 1, 2, 3].map(|n| outbox.push(line(n)).is_ok());
        assert_eq!(results, [true, true, false, false], "the third is cut short");
        let said = outbox.troubles(Path::new("log")).expect("two failures");
        assert_eq!(said, "log: 2 writes failed, 0 records given up, 2 unwritten");
        outbox.file.room = 1000;
        outbox.push(line(4)).expect("there is room again");
        let expected = (0..5).flat_map(line).collect::<Vec<u8>>();
        assert_eq!(outbox.file.held, expected);
        let said = outbox.troubles(Path::new("log")).expect("still said");
        assert_eq!(said, "log: 2 writes failed, 0 records given up, 0 unwritten");
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_given_up_is_counted() {
        let mut outbox = Outbox::new(Disk { room: 3, held: Vec::new() });
        let record = [vec![b'x'; 1 << 20], vec![b'\n']].concat();
        for _ in 0..40 {
            outbox.push(record.clone()).expect_err("no room");
        }
        assert!(outbox.waiting_bytes <= MOST_KEPT_BYTES);
        assert_eq!((outbox.lost + outbox.waiting.len() as u64, outbox.failures), (40, 40));
        assert!(outbox.lost > 0);
        outbox.file.room = usize::MAX;
        outbox.write().expect("room");
        let mut kept = outbox.file.held.split_inclusive(|byte| *byte == b'\n');
        assert!(kept.all(|kept| kept == record), "each is whole");
    }

    #[test]
    fn nothing_is_said_of_a_disk_with_room() {
        let mut outbox = Outbox::new(Vec::new());
        outbox.push(line(0)).expect("room");
        assert_eq!((outbox.troubles(Path::new("log")), outbox.file), (None, line(0)));
    }
}
