//! One token file, memory-mapped.

use std::{
    fs::{File, Metadata},
    path::{Path, PathBuf},
    time::SystemTime,
};

use memmap2::Mmap;

use super::{
    format::{FORMAT_VERSION, HEADER_BYTES, Header, Layout},
    manifest::ShardEntry,
    view::View,
};
use crate::{DataError, Result};

/// A piece of a cell: one token file.
#[derive(Debug)]
pub(super) struct Shard {
    path: PathBuf,
    entry: ShardEntry,
    map: Mmap,
    header: Header,
    layout: Layout,
    identity: Identity,
}

/// What the file system says of a file, which changes when somebody writes or replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device and inode, where there are such.
    place: Option<(u64, u64)>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let place = {
            use std::os::unix::fs::MetadataExt;
            Some((metadata.dev(), metadata.ino()))
        };
        #[cfg(not(unix))]
        let place = None;
        Self { bytes: metadata.len(), modified: metadata.modified().ok(), place }
    }
}

impl Shard {
    /// Opens a file and checks its size and its header, not what follows.
    pub(super) fn open(store: &Path, entry: &ShardEntry) -> Result<Self> {
        let path = store.join(&entry.file);
        let file = File::open(&path).map_err(DataError::io("open", path.as_path()))?;
        let metadata = file.metadata().map_err(DataError::io("inspect", path.as_path()))?;
        let (found, needed) = (metadata.len(), entry.file_bytes);
        if found != needed {
            return Err(DataError::FileSize { path, found, needed });
        }
        // SAFETY: the mapping is read-only, its size was checked above, and a published store is
        // never written again by us. Another program that shortens the file while we run ends the
        // process by a signal, as for every memory-mapped file.
        let map =
            unsafe { Mmap::map(&file) }.map_err(DataError::io("map to memory", path.as_path()))?;
        let header = check_header(&path, entry, &map)?;
        let layout = Layout::of(&header).ok_or_else(|| DataError::ShardHeader {
            path: path.clone(),
            field: "num_tokens",
            found: header.num_tokens,
            needed: entry.num_tokens,
        })?;
        let (found, needed) = (layout.ids.end as u64, entry.file_bytes);
        if found != needed {
            return Err(DataError::ShardHeader { path, field: "sections in bytes", found, needed });
        }
        let identity = Identity::of(&metadata);
        Ok(Self { path, entry: entry.clone(), map, header, layout, identity })
    }

    /// Reads all bytes and compares their checksum with the manifest.
    pub(super) fn verify(&self) -> Result<()> {
        let found = blake3::hash(&self.map).to_hex().to_string();
        if found == self.entry.blake3 {
            return Ok(());
        }
        let (path, needed) = (self.path.clone(), self.entry.blake3.clone());
        Err(DataError::Checksum { path, found, needed })
    }

    /// Compares what the file system says of the file with what it said when it was opened.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let metadata = std::fs::metadata(&self.path)
            .map_err(DataError::io("find, in the middle of reading,", self.path.as_path()))?;
        let (before, now) = (self.identity, Identity::of(&metadata));
        let what = if before.place != now.place {
            "was replaced by another file"
        } else if before.bytes != now.bytes {
            "changed its size"
        } else if before.modified != now.modified {
            "was written to"
        } else {
            return Ok(());
        };
        Err(DataError::ShardChanged { path: self.path.clone(), what })
    }

    pub(super) fn entry(&self) -> &ShardEntry {
        &self.entry
    }

    pub(super) fn view(&self) -> View<'_> {
        View::new(&self.map, &self.layout, &self.header)
    }
}

/// Compares version and header with the manifest, in this order: a file of another version is not
/// called damaged.
fn check_header(path: &Path, entry: &ShardEntry, bytes: &[u8]) -> Result<Header> {
    let path = path.to_owned();
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
        let (found, needed) = (bytes.len() as u64, HEADER_BYTES as u64);
        return Err(DataError::FileSize { path, found, needed });
    };
    let header = Header::decode(head);
    if !header.is_sealed(head) {
        return Err(DataError::DamagedHeader { path });
    }
    if header.version != FORMAT_VERSION {
        let (found, needed) = (header.version, FORMAT_VERSION);
        return Err(DataError::StoreVersion { path, found, needed });
    }
    let fields = [
        ("num_tokens", header.num_tokens, entry.num_tokens),
        ("num_documents", header.num_documents, entry.num_documents),
        ("source_bytes", header.source_bytes, entry.source_bytes),
    ];
    match fields.into_iter().find(|(_, found, needed)| found != needed) {
        Some((field, found, needed)) => Err(DataError::ShardHeader { path, field, found, needed }),
        None => Ok(header),
    }
}
