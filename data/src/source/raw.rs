//! The bytes of a file, decompressed, with the place in it to name when they end too early.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::format::{Compression, HEAD_BYTES};
use crate::{DataError, Result};

/// Window of a zstd frame that we still read: 2^31 bytes, what `zstd --long=31` asks for. A frame
/// takes what its header says, so that only such files need that much memory.
const MAX_ZSTD_WINDOW_LOG: u32 = 31;

/// Where a file's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    File(PathBuf),
    Static(&'static [u8]),
}

impl Contents {
    pub(crate) fn open(&self) -> Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::File(path) => Box::new(open_file(path)?),
            Self::Static(bytes) => Box::new(*bytes),
        })
    }

    /// Size in bytes, compressed where the file is.
    pub(crate) fn len(&self) -> Result<u64> {
        Ok(match self {
            Self::File(path) => {
                let facts = path.metadata().map_err(DataError::io("look at", path.as_path()))?;
                facts.len()
            }
            Self::Static(bytes) => bytes.len() as u64,
        })
    }

    /// The first bytes; fewer where the file has fewer.
    pub(crate) fn head(&self, name: &str) -> Result<Vec<u8>> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let mut start = self.open()?.take(HEAD_BYTES as u64);
        start.read_to_end(&mut head).map_err(DataError::io("read", name))?;
        Ok(head)
    }
}

/// Opens a file for reading; a folder is no file on any system.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let facts = file.metadata().map_err(DataError::io("look at", path))?;
    if facts.is_dir() {
        let source = io::ErrorKind::IsADirectory.into();
        return Err(DataError::Io { action: "open", path: path.to_owned(), source });
    }
    Ok(file)
}

/// A file while it is read, decompressed.
pub(crate) struct Unpacked {
    file: Arc<str>,
    inner: Box<dyn BufRead + Send>,
    /// Bytes of the file that the decoder was given.
    position: Arc<AtomicU64>,
    compression: Compression,
}

impl Unpacked {
    pub(crate) fn open(file: Arc<str>, contents: &Contents) -> Result<Self> {
        let failed = |action| DataError::io(action, &*file);
        let mut raw = BufReader::with_capacity(1 << 16, contents.open()?);
        let head = raw.fill_buf().map_err(failed("read"))?;
        let compression = Compression::detect(head)
            .map_err(|found| DataError::UnreadableFormat { file: file.to_string(), found })?;
        let position = Arc::new(AtomicU64::new(0));
        let raw = Counting { inner: raw, taken: 0, position: Arc::clone(&position) };
        let inner: Box<dyn BufRead + Send> = match compression {
            Compression::None => Box::new(raw),
            Compression::Gzip => unpacked(flate2::bufread::MultiGzDecoder::new(raw)),
            Compression::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(raw);
                let mut decoder = decoder.map_err(failed("decompress"))?;
                decoder.window_log_max(MAX_ZSTD_WINDOW_LOG).map_err(failed("decompress"))?;
                unpacked(decoder)
            }
        };
        Ok(Self { file, inner, position, compression })
    }

    pub(crate) fn reader(&mut self) -> &mut dyn BufRead {
        &mut *self.inner
    }

    /// Bytes of the file read so far.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// What an error of reading means, after that many whole records.
    pub(crate) fn explain(&self, source: io::Error, records: u64) -> DataError {
        let (file, archive) = (self.file.to_string(), self.compression.name());
        let at_byte = self.position();
        // An error with a system code came from the disk, not from the decoder.
        if self.compression == Compression::None || source.raw_os_error().is_some() {
            DataError::Io { action: "read", path: file.into(), source }
        } else if source.kind() == io::ErrorKind::UnexpectedEof {
            DataError::TruncatedArchive { file, archive, at_byte, records }
        } else {
            let reason = source.to_string();
            DataError::DamagedArchive { file, archive, at_byte, records, reason }
        }
    }
}

fn unpacked(decoder: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(1 << 17, decoder))
}

/// Counts the bytes that the decoder was given, also those that it had not taken when it gave up.
struct Counting<R> {
    inner: R,
    taken: u64,
    position: Arc<AtomicU64>,
}

impl<R: BufRead> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut given = self.fill_buf()?;
        let count = given.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let given = self.inner.fill_buf()?;
        self.position.store(self.taken + given.len() as u64, Ordering::Relaxed);
        Ok(given)
    }

    fn consume(&mut self, count: usize) {
        self.taken += count as u64;
        self.inner.consume(count);
    }
}
