//! A safetensors file read tensor by tensor.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use crate::error::TrainError;

/// Bytes of the field in front that says how long the header is.
const LENGTH_BYTES: u64 = 8;
/// Longest header that is believed: the format's own limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Bytes read at once; a multiple of the size of every type.
const BUFFER_BYTES: usize = 1 << 20;

/// The header of a file; tensors are read when they are asked for.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: PathBuf,
    metadata: Metadata,
    /// Where the first tensor begins.
    start: u64,
}

impl TensorFile {
    /// Reads the header.
    ///
    /// # Errors
    /// If the file cannot be read, is no safetensors file, or has another size than its header says.
    pub(super) fn open(path: &Path) -> Result<Self, TrainError> {
        let refused = |problem: String| TrainError::interchange(path, problem);
        let io = |error| TrainError::io("read", path)(error);
        let mut file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        let mut length = [0; LENGTH_BYTES as usize];
        if size < LENGTH_BYTES {
            return Err(refused(format!("{size} bytes, needed a safetensors file")));
        }
        file.read_exact(&mut length).map_err(io)?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER_BYTES || LENGTH_BYTES + length > size {
            return Err(refused(format!("a header of {length} bytes in a file of {size} bytes")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(io)?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| refused(format!("no safetensors header ({error})")))?;
        let start = LENGTH_BYTES + length;
        let needed = start + metadata.data_len() as u64;
        if size != needed {
            return Err(refused(format!("{size} bytes, needed {needed} by its header")));
        }
        Ok(Self { path: path.to_owned(), metadata, start })
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors, in the order of the file.
    pub(super) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// Bytes of all tensors.
    pub(super) fn data_bytes(&self) -> u64 {
        self.metadata.data_len() as u64
    }

    /// Type, shape and place of a tensor.
    pub(super) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.metadata.info(name)
    }

    /// Reads a tensor of a type that weights have, as f32.
    ///
    /// # Errors
    /// If it is missing, of another type, or cannot be read.
    pub(super) fn read(&self, name: &str) -> Result<TensorData, TrainError> {
        let refused =
            |problem: String| TrainError::interchange(&self.path, format!("`{name}`: {problem}"));
        let info = self.info(name).ok_or_else(|| refused("is missing".to_owned()))?;
        let values = match info.dtype {
            Dtype::F32 => self.values(info, f32::from_le_bytes),
            // The upper half of an f32.
            Dtype::BF16 => self.values(info, |[low, high]| f32::from_le_bytes([0, 0, low, high])),
            other => return Err(refused(format!("is {other:?}, needed F32 or BF16"))),
        };
        let values = values.map_err(TrainError::io("read", &self.path))?;
        Ok(TensorData::new(values, info.shape.clone()))
    }

    /// The entries of a tensor of `N` bytes each, through a small buffer.
    fn values<const N: usize>(
        &self,
        info: &TensorInfo,
        value: fn([u8; N]) -> f32,
    ) -> io::Result<Vec<f32>> {
        let (first, end) = info.data_offsets;
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.start + first as u64))?;
        let mut values = Vec::with_capacity((end - first) / N);
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut left = end - first;
        while left > 0 {
            let part = &mut buffer[..left.min(BUFFER_BYTES)];
            file.read_exact(part)?;
            values.extend(part.as_chunks().0.iter().map(|bytes| value(*bytes)));
            left -= part.len();
        }
        Ok(values)
    }
}
