//! Bytes out of files, verified by what is read of them and nothing more.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};

use rayon::prelude::*;

use super::manifest::{Manifest, TensorEntry};
use super::write::{UnitHasher, checksum};
use super::{file_name, slices};
use crate::error::TrainError;
use crate::storage::Storage;

/// The least and the most that is read at once, of a tensor an eighth.
const PIECE_BYTES: Range<u64> = 256 << 10..8 << 20;

/// The least of many units that one thread reads at once.
const UNITS_BYTES: usize = 1 << 20;

/// What one thread reads of a piece.
const CHUNK_BYTES: usize = 1 << 20;

/// Some consecutive units of a tensor in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The object in the storage.
    file: String,
    /// The tensor, for errors.
    tensor: String,
    /// The first expert, of a slice.
    first_expert: Option<usize>,
    start: u64,
    unit_bytes: u64,
    units: Vec<String>,
}

impl Stretch {
    /// All of a tensor that is no slice, or of a slice its experts `wanted`; none without any.
    fn new(
        step: u64,
        file: &str,
        (name, entry): (&str, &TensorEntry),
        wanted: Option<&Range<usize>>,
    ) -> Option<Self> {
        let mut units = 0..entry.units.len();
        let mut first_expert = None;
        if let (Some((_, held)), Some(wanted)) = (slices::parse(name), wanted) {
            let take = held.start.max(wanted.start)..held.end.min(wanted.end);
            if take.is_empty() {
                return None;
            }
            units = take.start - held.start..take.end - held.start;
            first_expert = Some(take.start);
        }
        let unit_bytes = (entry.bytes.end - entry.bytes.start) / entry.units.len().max(1) as u64;
        Some(Self {
            file: file_name(step, file),
            tensor: slices::tensor_of(name).to_owned(),
            first_expert,
            start: entry.bytes.start + units.start as u64 * unit_bytes,
            unit_bytes,
            units: entry.units[units].to_vec(),
        })
    }

    pub(super) fn num_bytes(&self) -> u64 {
        self.unit_bytes * self.units.len() as u64
    }

    fn pieces(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let (start, end) = (self.start, self.start + self.num_bytes());
        let piece = (self.num_bytes() / 8).clamp(PIECE_BYTES.start, PIECE_BYTES.end);
        (start..end).step_by(piece as usize).map(move |first| first..end.min(first + piece))
    }

    /// All of a tensor or slice of a file.
    pub(super) fn whole(step: u64, file: &str, name: &str, entry: &TensorEntry) -> Option<Self> {
        Self::new(step, file, (name, entry), slices::parse(name).as_ref().map(|(_, held)| held))
    }

    /// Reads and verifies all of it, on this thread.
    pub(super) fn verify(&self, storage: &dyn Storage) -> Result<(), TrainError> {
        let mut hasher = UnitHasher::new(self.num_bytes() as usize, self.units.len());
        self.pieces().try_for_each(|range| {
            let piece = storage.read(&self.file, range);
            self.hash(storage, &mut hasher, &piece.map_err(self.unread(storage))?)
        })
    }

    fn hash(
        &self,
        storage: &dyn Storage,
        hasher: &mut UnitHasher,
        piece: &[u8],
    ) -> Result<(), TrainError> {
        let verified = hasher.units().len();
        hasher.update(piece);
        self.compare(storage, &hasher.units()[verified..], verified)
    }

    fn unread(&self, storage: &dyn Storage) -> impl FnOnce(std::io::Error) -> TrainError + use<> {
        TrainError::storage("read", storage, &self.file)
    }

    /// Compares the checksums `found` of the units from `first` on.
    fn compare(
        &self,
        storage: &dyn Storage,
        found: &[String],
        first: usize,
    ) -> Result<(), TrainError> {
        let needed = &self.units[first..];
        let wrong = (0..found.len()).find(|unit| found[*unit] != needed[*unit]);
        let Some(unit) = wrong else { return Ok(()) };
        let expert = self.first_expert.map(|start| format!(", expert {}", start + first + unit));
        let (name, expert) = (&self.tensor, expert.unwrap_or_default());
        let (found, needed) = (&found[unit], &needed[unit]);
        let problem = format!("checksum of `{name}`{expert} {found}, needed {needed}");
        Err(TrainError::Checkpoint { path: storage.locate(&self.file).into(), problem })
    }
}

/// Where each tensor of a checkpoint lies, by the name that it has as a whole.
pub(super) struct Index<'a> {
    step: u64,
    tensors: BTreeMap<&'a str, Vec<(&'a str, &'a str, &'a TensorEntry)>>,
}

impl<'a> Index<'a> {
    pub(super) fn new(manifest: &'a Manifest) -> Self {
        let mut tensors: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (file, entry) in &manifest.files {
            for (name, tensor) in &entry.tensors {
                let whole = slices::tensor_of(name);
                tensors.entry(whole).or_default().push((&file[..], &name[..], tensor));
            }
        }
        let first = |name: &str| slices::parse(name).map_or(0, |(_, experts)| experts.start);
        for parts in tensors.values_mut() {
            parts.sort_by_key(|(_, name, _)| first(name));
        }
        Self { step: manifest.step, tensors }
    }

    /// The first part of a tensor; of a stack also how many experts all parts have together.
    pub(super) fn of(&self, tensor: &str) -> Option<(&'a TensorEntry, Option<usize>)> {
        let parts = self.tensors.get(tensor)?;
        let experts = |(_, name, _): &(&str, &str, &TensorEntry)| {
            slices::parse(name).map(|(_, experts)| experts.len())
        };
        Some((parts.first()?.2, parts.iter().map(experts).sum()))
    }

    /// Where a tensor lies, in order; of a stack, the experts `wanted`.
    pub(super) fn stretches(&self, tensor: &str, wanted: Option<&Range<usize>>) -> Vec<Stretch> {
        let parts = self.tensors.get(tensor).into_iter().flatten();
        let stretch = |(file, name, entry): &(&str, &str, &TensorEntry)| {
            Stretch::new(self.step, file, (name, entry), wanted)
        };
        parts.filter_map(stretch).collect()
    }
}

/// Reads some stretches in order, on a thread of its own, while here the piece before is hashed and
/// handed on with the index of its stretch. The checksum of a unit is compared with its last piece.
pub(super) fn read(
    storage: &dyn Storage,
    stretches: &[Stretch],
    mut each: impl FnMut(usize, Vec<u8>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let (pieces, arriving) = sync_channel(0);
    std::thread::scope(|scope| {
        // Gone with this closure, so that a reader whose piece nobody wants ends.
        let arriving = arriving;
        scope.spawn(move || {
            for stretch in stretches {
                for range in stretch.pieces() {
                    let piece = storage.read(&stretch.file, range);
                    let failed = piece.is_err();
                    if pieces.send(piece).is_err() || failed {
                        return;
                    }
                }
            }
        });
        for (index, stretch) in stretches.iter().enumerate() {
            let mut hasher = UnitHasher::new(stretch.num_bytes() as usize, stretch.units.len());
            for _ in stretch.pieces() {
                let piece = arriving.recv().expect("a reader sends each piece or an error");
                let piece = piece.map_err(stretch.unread(storage))?;
                stretch.hash(storage, &mut hasher, &piece)?;
                each(index, piece)?;
            }
        }
        Ok(())
    })
}

/// Reads all of some stretches to where they are wanted, one after the other and each in parallel:
/// memory that is new costs more time than the bytes.
pub(super) fn read_into(
    storage: &dyn Storage,
    stretches: &[Stretch],
    into: &mut [u8],
) -> Result<(), TrainError> {
    let mut rest = into;
    for stretch in stretches {
        let (own, after) = rest.split_at_mut(stretch.num_bytes() as usize);
        rest = after;
        match stretch.units.len() {
            1 => stretch.read_unit(storage, own)?,
            _ => stretch.read_units(storage, own)?,
        }
    }
    Ok(())
}

impl Stretch {
    /// Reads many units, a few by each thread, which hashes them while they are in its cache.
    fn read_units(&self, storage: &dyn Storage, into: &mut [u8]) -> Result<(), TrainError> {
        let unit_bytes = self.unit_bytes as usize;
        let at_once = (UNITS_BYTES / unit_bytes).max(1);
        let groups = into.par_chunks_mut(at_once * unit_bytes).enumerate();
        groups.try_for_each(|(group, into)| {
            let first = group * at_once;
            let start = self.start + (first * unit_bytes) as u64;
            let read = storage.read_into(&self.file, start, into);
            read.map_err(self.unread(storage))?;
            let found: Vec<String> = into.chunks(unit_bytes).map(checksum).collect();
            self.compare(storage, &found, first)
        })
    }

    /// Reads one unit in pieces, each in parallel. What is read is hashed on a thread of its own
    /// while more is read, and compared with the last piece.
    fn read_unit<'a>(&self, storage: &dyn Storage, into: &'a mut [u8]) -> Result<(), TrainError> {
        let (pieces, arriving) = sync_channel(2);
        let verify = move |arriving: &Receiver<&'a [u8]>| {
            let mut hasher = UnitHasher::new(self.num_bytes() as usize, 1);
            for _ in self.pieces() {
                // The reader has failed, and says why.
                let Ok(piece) = arriving.recv() else { return Ok(()) };
                hasher.update(piece);
            }
            self.compare(storage, hasher.units(), 0)
        };
        std::thread::scope(|scope| {
            // Gone with this closure, so that the other thread ends, whatever happens here.
            let (pieces, mut rest) = (pieces, into);
            let verifier = scope.spawn(move || verify(&arriving));
            let read = self.pieces().try_for_each(|range| {
                let len = (range.end - range.start) as usize;
                let (piece, after) = std::mem::take(&mut rest).split_at_mut(len);
                rest = after;
                let chunks = piece.par_chunks_mut(CHUNK_BYTES).enumerate();
                let read = chunks.try_for_each(|(chunk, into)| {
                    let start = range.start + (chunk * CHUNK_BYTES) as u64;
                    storage.read_into(&self.file, start, into)
                });
                read.map_err(self.unread(storage))?;
                // A verifier that has gone has found something wrong, and says so.
                pieces.send(&*piece).ok();
                Ok(())
            });
            drop(pieces);
            verifier.join().expect("a verifier does not panic").and(read)
        })
    }
}

/// Reads the beginning of a file, all of it if it has no tensors, and verifies it.
pub(super) fn header(
    storage: &dyn Storage,
    manifest: &Manifest,
    file: &str,
) -> Result<Vec<u8>, TrainError> {
    let name = file_name(manifest.step, file);
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let failed = |error| TrainError::storage("read", storage, &name)(error);
    let header = &manifest.files.get(file).ok_or_else(|| failed(missing()))?.header;
    let bytes = storage.read(&name, 0..header.bytes).map_err(failed)?;
    let found = checksum(&bytes);
    if found != header.blake3 {
        let problem = format!("checksum of the header {found}, needed {}", header.blake3);
        return Err(TrainError::Checkpoint { path: storage.locate(&name).into(), problem });
    }
    Ok(bytes)
}
