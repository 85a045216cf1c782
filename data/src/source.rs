//! A source: where the lines of a corpus come from, compressed or not.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{DataError, Result};

/// The first four bytes of a zstd frame (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The same of a frame to be skipped; the low four bits of its first byte are free.
const ZSTD_SKIPPABLE: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];

/// A corpus file in JSON lines, on disk or compiled in.
///
/// Whether it is compressed is decided by its first bytes, not by its name. Every frame of a zstd
/// file is read, as in files made by appending.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    contents: Contents,
}

#[derive(Clone, Debug)]
enum Contents {
    File(PathBuf),
    Bytes(&'static [u8]),
}

impl Source {
    /// A file on disk; it is opened when it is read.
    pub fn file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        Self { name: path.display().to_string(), contents: Contents::File(path.to_owned()) }
    }

    /// The contents of a file that is part of the program.
    pub fn bytes(name: impl Into<String>, bytes: &'static [u8]) -> Self {
        Self { name: name.into(), contents: Contents::Bytes(bytes) }
    }

    /// The name used in messages, ledgers and default document fields.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// BLAKE3 of the file as it lies there, in hex.
    ///
    /// # Errors
    /// [`DataError::Io`] if the file cannot be read.
    pub fn digest(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        io::copy(&mut self.open_raw()?, &mut hasher)
            .map_err(DataError::io("read", self.name.as_str()))?;
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Opens the file and finds out whether it is compressed.
    pub(crate) fn open(&self) -> Result<LineReader> {
        let position = Arc::new(AtomicU64::new(0));
        let raw = Counting { inner: self.open_raw()?, position: Arc::clone(&position) };
        let mut raw = BufReader::with_capacity(1 << 16, raw);
        let head = raw.fill_buf().map_err(DataError::io("read", self.name.as_str()))?;
        let compressed = is_zstd(head);
        let text: Box<dyn BufRead + Send> = if compressed {
            let decoder = zstd::stream::read::Decoder::with_buffer(raw)
                .map_err(DataError::io("decompress", self.name.as_str()))?;
            Box::new(BufReader::with_capacity(1 << 17, decoder))
        } else {
            Box::new(raw)
        };
        Ok(LineReader { name: self.name.clone(), text, position, compressed, lines: 0 })
    }

    fn open_raw(&self) -> Result<Box<dyn Read + Send>> {
        Ok(match &self.contents {
            Contents::File(path) => {
                Box::new(File::open(path).map_err(DataError::io("open", path.as_path()))?)
            }
            Contents::Bytes(bytes) => Box::new(*bytes),
        })
    }
}

fn is_zstd(head: &[u8]) -> bool {
    let Some([first, rest @ ..]) = head.first_chunk::<4>() else { return false };
    head.starts_with(&ZSTD_MAGIC)
        || (first & 0xf0 == ZSTD_SKIPPABLE[0] && *rest == ZSTD_SKIPPABLE[1..])
}

/// Counts the bytes taken from the file, to say where an archive ends.
struct Counting<R> {
    inner: R,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// The decompressed lines of a source.
pub(crate) struct LineReader {
    name: String,
    text: Box<dyn BufRead + Send>,
    position: Arc<AtomicU64>,
    compressed: bool,
    lines: u64,
}

impl LineReader {
    /// Reads the next line, with its newline if it has one, into `line`. False at the end.
    pub(crate) fn read_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        match self.text.read_until(b'\n', line) {
            Ok(0) => Ok(false),
            Ok(_) => {
                self.lines += 1;
                Ok(true)
            }
            Err(source) => Err(self.explain(source)),
        }
    }

    fn explain(&self, source: io::Error) -> DataError {
        let (file, lines) = (self.name.clone(), self.lines);
        let at_byte = self.position.load(Ordering::Relaxed);
        // An error with a system code came from the disk, not from the decoder.
        if !self.compressed || source.raw_os_error().is_some() {
            DataError::Io { action: "read", path: file.into(), source }
        } else if source.kind() == io::ErrorKind::UnexpectedEof {
            DataError::TruncatedArchive { file, at_byte, lines }
        } else {
            DataError::DamagedArchive { file, at_byte, lines, source }
        }
    }
}
