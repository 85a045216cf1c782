//! A file that is written past the system's cache.
//!
//! What goes through the cache is copied once more and written out by threads of the system that
//! give way to nobody, both beside training; and a checkpoint pushes what others read out of memory.

use std::fs::File;
use std::io::{self, Write};

#[cfg(target_os = "linux")]
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// What is written at once. A smaller file is written at its end, through the cache.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// What memory and place in the file are multiples of: enough for every disk.
const ALIGNMENT: usize = 4096;

/// A new file that is written from beginning to end. A system or a file system that does not write
/// past its cache writes through it.
pub(super) struct PastCache {
    file: File,
    memory: Vec<u8>,
    /// Where memory begins that is aligned, and how much of it waits to be written.
    start: usize,
    filled: usize,
}

impl PastCache {
    /// Writes to `file`, which is empty.
    pub(super) fn new(file: File) -> Self {
        Self { file, memory: Vec::new(), start: 0, filled: 0 }
    }

    /// Writes what is left; the file is whole, and durable.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write_rest()?;
        self.file.sync_all()
    }

    /// Writes what waits, through the cache.
    fn write_rest(&mut self) -> io::Result<()> {
        let filled = std::mem::take(&mut self.filled);
        self.set_past(false)?;
        self.file.write_all(&self.memory[self.start..self.start + filled])
    }

    fn reserve(&mut self) {
        self.memory = vec![0; BUFFER_BYTES + ALIGNMENT];
        self.start = self.memory.as_ptr().align_offset(ALIGNMENT);
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        self.filled = 0;
        let past = self.set_past(true).is_ok();
        let bytes = &self.memory[self.start..self.start + BUFFER_BYTES];
        let written = match (&self.file).write(bytes) {
            // Some file systems take the flag and refuse the write.
            Err(error) if past && error.kind() == io::ErrorKind::InvalidInput => 0,
            // To the caller it would be one to make again, of bytes that are not here any more.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            written => written?,
        };
        if written < bytes.len() {
            // A short write, as before a disk is full, may leave a place that is not aligned.
            self.set_past(false)?;
            (&self.file).write_all(&bytes[written..])?;
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn set_past(&self, past: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, past);
        Ok(fcntl_setfl(&self.file, flags)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn set_past(&self, past: bool) -> io::Result<()> {
        if past { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
    }
}

/// A file that is given up holds what was written, as any file does.
impl Drop for PastCache {
    fn drop(&mut self) {
        if self.filled > 0 {
            self.write_rest().ok();
        }
    }
}

impl Write for PastCache {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.memory.is_empty() {
            self.reserve();
        }
        let now = bytes.len().min(BUFFER_BYTES - self.filled);
        let from = self.start + self.filled;
        self.memory[from..from + now].copy_from_slice(&bytes[..now]);
        self.filled += now;
        if self.filled == BUFFER_BYTES {
            self.write_buffer()?;
        }
        Ok(now)
    }

    /// Nothing is written before a buffer is full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_hold_what_was_written_in_pieces_of_any_length() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        for len in [0, 1, 4_095, BUFFER_BYTES - 1, BUFFER_BYTES, 2 * BUFFER_BYTES + 4_097] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 / 3) as u8).collect();
            for piece in [1_000_003, 3 << 20] {
                let mut file = PastCache::new(File::create(&path).expect("a file"));
                bytes.chunks(piece).for_each(|piece| file.write_all(piece).expect("written"));
                file.finish().expect("durable");
                assert!(std::fs::read(&path).expect("read") == bytes, "{len} by {piece}");
            }
        }
    }
}
