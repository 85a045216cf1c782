//! A file of tensors, written from beginning to end and hashed on the way.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};

use burn::tensor::{Bytes, DType};
use fulmar_model::weights::Held;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::manifest::{FileEntry, Header, Kind, TensorEntry};
use crate::background::Pace;
use crate::error::TrainError;
use crate::storage::Storage;

/// The most of a tensor that is copied to the host at once.
pub(crate) const PIECE_BYTES: usize = 2 << 20;

/// Pieces that wait for the file, so that neither side waits for the other at each.
const WAITING_PIECES: usize = 2;

/// Pieces that are held at once: one is read and hashed, one written.
pub(crate) const PIECES: usize = WAITING_PIECES + 2;

/// A tensor that a file is to hold.
pub(super) struct Planned<S> {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) units: usize,
    pub(super) source: S,
}

impl<S> Planned<S> {
    pub(super) fn num_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

/// Where the bytes of a tensor come from.
pub(super) trait Source {
    /// Hands on all bytes in order, in pieces; what it held is free afterwards.
    fn pieces(self, each: &mut Take<'_>) -> Result<(), TrainError>;
}

/// Takes a piece.
pub(super) type Take<'a> = dyn FnMut(Bytes) -> Result<(), TrainError> + 'a;

/// Some of the flat entries of a tensor.
pub(super) struct HeldEntries {
    pub(super) held: Held,
    pub(super) entries: Range<usize>,
}

impl Source for HeldEntries {
    fn pieces(self, each: &mut Take<'_>) -> Result<(), TrainError> {
        let len = PIECE_BYTES / self.held.dtype().size();
        let Range { start, end } = self.entries;
        for first in (start..end).step_by(len) {
            let (bytes, _, _) = self.held.read_range(first..end.min(first + len)).into_parts();
            each(bytes)?;
        }
        Ok(())
    }
}

/// The type of a tensor in a file.
pub(super) fn stored_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::BF16 => Dtype::BF16,
        other => panic!("state is F32 or BF16, found {other:?}"),
    }
}

/// Writes an object without tensors.
pub(super) fn write_plain(
    storage: &dyn Storage,
    name: &str,
    bytes: &[u8],
) -> Result<FileEntry, TrainError> {
    storage.write_all(name, bytes).map_err(TrainError::storage("write", storage, name))?;
    Ok(FileEntry {
        bytes: bytes.len() as u64,
        header: Header { bytes: bytes.len() as u64, blake3: checksum(bytes) },
        tensors: BTreeMap::new(),
    })
}

/// Writes a safetensors object: each tensor is read and hashed here while the piece before is
/// written on a thread of its own.
pub(super) fn write_tensors<S: Source>(
    storage: &dyn Storage,
    name: &str,
    mut tensors: Vec<Planned<S>>,
    pace: &Pace,
) -> Result<FileEntry, TrainError> {
    // Wider types first, so that each tensor is aligned to its entries.
    tensors.sort_by(|a, b| b.dtype.cmp(&a.dtype).then_with(|| a.name.cmp(&b.name)));
    let header = header(&tensors);
    let mut entry = FileEntry {
        bytes: header.len() as u64,
        header: Header { bytes: header.len() as u64, blake3: checksum(&header) },
        tensors: BTreeMap::new(),
    };
    let (pieces, arriving) = sync_channel(WAITING_PIECES);
    std::thread::scope(|scope| {
        // Gone with this closure, so that the writer ends, whatever happens here.
        let pieces = pieces;
        let writer = scope.spawn(move || write_pieces(storage, name, &arriving));
        // A writer that has failed is told of by its result.
        let stopped = || TrainError::storage("write", storage, name)(io::ErrorKind::Other.into());
        let read = (|| {
            pieces.send(Some(Bytes::from_bytes_vec(header))).map_err(|_| stopped())?;
            for tensor in tensors {
                let Planned { kind, dtype, ref shape, units, .. } = tensor;
                let (num_bytes, shape) = (tensor.num_bytes(), shape.clone());
                let mut hasher = UnitHasher::new(num_bytes, units);
                tensor.source.pieces(&mut |piece| {
                    pace.work(piece.len(), || hasher.update(&piece));
                    pieces.send(Some(piece)).map_err(|_| stopped())
                })?;
                let bytes = entry.bytes..entry.bytes + num_bytes as u64;
                entry.bytes = bytes.end;
                let units = hasher.finish();
                let stored = TensorEntry { kind, dtype, shape, bytes, units };
                entry.tensors.insert(tensor.name, stored);
            }
            pieces.send(None).map_err(|_| stopped())
        })();
        drop(pieces);
        let written = writer.join().expect("a writer does not panic");
        written.map_err(TrainError::storage("write", storage, name))?;
        read
    })?;
    Ok(entry)
}

/// Writes until `None` comes; an object whose pieces end before is left unfinished.
fn write_pieces(
    storage: &dyn Storage,
    name: &str,
    pieces: &Receiver<Option<Bytes>>,
) -> io::Result<()> {
    let mut upload = storage.create(name)?;
    while let Ok(piece) = pieces.recv() {
        match piece {
            Some(piece) => upload.write_all(&piece)?,
            None => return upload.finish(),
        }
    }
    Ok(())
}

/// The length of the header and the header, as the format of safetensors has it.
fn header<S>(tensors: &[Planned<S>]) -> Vec<u8> {
    let mut start = 0;
    let infos = tensors.iter().map(|tensor| {
        let data_offsets = (start, start + tensor.num_bytes());
        start = data_offsets.1;
        let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
        (tensor.name.clone(), TensorInfo { dtype, shape, data_offsets })
    });
    let metadata = Metadata::new(None, infos.collect()).expect("offsets follow from shapes");
    let mut text = serde_json::to_vec(&metadata).expect("plain values");
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    header
}

/// BLAKE3 in hexadecimal.
pub(super) fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Checksums of the units of a tensor whose bytes come in pieces of any size.
pub(super) struct UnitHasher {
    unit_bytes: usize,
    hasher: blake3::Hasher,
    units: Vec<String>,
}

impl UnitHasher {
    /// Of `units` equal parts of a tensor.
    pub(super) fn new(num_bytes: usize, units: usize) -> Self {
        let unit_bytes = num_bytes / units.max(1);
        assert!(unit_bytes > 0, "a unit of {num_bytes} bytes in {units} units, needed 1 or more");
        Self { unit_bytes, hasher: blake3::Hasher::new(), units: Vec::with_capacity(units) }
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = self.unit_bytes - self.hasher.count() as usize;
            let (of_unit, rest) = bytes.split_at(left.min(bytes.len()));
            self.hasher.update(of_unit);
            if of_unit.len() == left {
                self.units.push(self.hasher.finalize().to_hex().to_string());
                self.hasher.reset();
            }
            bytes = rest;
        }
    }

    /// The checksums of the units that are whole so far.
    pub(super) fn units(&self) -> &[String] {
        &self.units
    }

    pub(super) fn finish(self) -> Vec<String> {
        assert_eq!(self.hasher.count(), 0, "the last unit of a tensor lacks bytes");
        self.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LocalStorage;

    struct Fixed(Vec<Vec<u8>>);

    impl Source for Fixed {
        fn pieces(self, each: &mut Take<'_>) -> Result<(), TrainError> {
            self.0.into_iter().try_for_each(|piece| each(Bytes::from_bytes_vec(piece)))
        }
    }

    fn planned(name: &str, dtype: Dtype, units: usize, pieces: &[&[u8]]) -> Planned<Fixed> {
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let bytes = pieces.iter().map(Vec::len).sum::<usize>();
        let shape = vec![units, bytes * 8 / dtype.bitsize() / units];
        Planned {
            name: name.to_owned(),
            kind: Kind::Weight,
            dtype,
            shape,
            units,
            source: Fixed(pieces),
        }
    }

    #[test]
    fn any_reader_of_safetensors_finds_the_tensors_where_the_manifest_has_them() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage = LocalStorage::new(folder.path());
        let tensors = vec![
            planned("half", Dtype::BF16, 1, &[&[1, 2]]),
            planned("stack@2..4", Dtype::F32, 2, &[&[0, 1, 2], &[3, 4, 5, 6, 7]]),
            planned("b", Dtype::F32, 1, &[&[8, 9, 10, 11]]),
        ];
        let entry = write_tensors(&storage, "file", tensors, &Pace::none()).expect("written");
        let bytes = (&storage as &dyn Storage).read_all("file").expect("read");
        assert_eq!(entry.bytes, bytes.len() as u64);
        assert_eq!(entry.header.blake3, checksum(&bytes[..entry.header.bytes as usize]));
        let read = safetensors::SafeTensors::deserialize(&bytes).expect("a safetensors file");
        assert_eq!(read.len(), 3);
        for (name, tensor) in &entry.tensors {
            let view = read.tensor(name).expect("as in the manifest");
            assert_eq!((view.dtype(), view.shape()), (tensor.dtype, &tensor.shape[..]));
            let range = tensor.bytes.start as usize..tensor.bytes.end as usize;
            assert_eq!(view.data(), &bytes[range.clone()]);
            assert_eq!(range.start % 2, 0);
            let units = view.data().chunks(range.len() / tensor.units.len()).map(checksum);
            assert_eq!(units.collect::<Vec<_>>(), tensor.units);
        }
        assert_eq!(read.tensor("stack@2..4").expect("there").data(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    struct Broken;

    impl Source for Broken {
        fn pieces(self, each: &mut Take<'_>) -> Result<(), TrainError> {
            each(Bytes::from_bytes_vec(vec![0; 2]))?;
            Err(TrainError::Panic { message: "no more".to_owned() })
        }
    }

    #[test]
    fn a_source_that_fails_leaves_the_file_unfinished_and_its_reason() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage = LocalStorage::new(folder.path());
        let name = "a".to_owned();
        let (kind, dtype, shape) = (Kind::Weight, Dtype::F32, vec![4]);
        let tensor = Planned { name, kind, dtype, shape, units: 1, source: Broken };
        let error =
            write_tensors(&storage, "file", vec![tensor], &Pace::none()).expect_err("broken");
        assert!(error.to_string().contains("no more"), "{error}");
    }
}
