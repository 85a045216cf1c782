//! What the disk does with a plain file.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use rustix::fs::{Advice, Mode, OFlags, fadvise, open};

/// Bytes written or read at once.
const BLOCK: usize = 4 << 20;

/// Writes `bytes` to a new file and waits until they are durable.
pub(crate) fn write(path: &Path, bytes: u64) {
    // Not zeros, which some disks do not write.
    let block: Vec<u8> = (0..BLOCK).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let mut file = File::create(path).expect("a file");
    let mut left = bytes as usize;
    while left > 0 {
        let now = left.min(BLOCK);
        file.write_all(&block[..now]).expect("written");
        left -= now;
    }
    file.sync_all().expect("synced");
}

/// Reads a file into memory that is as new as that of a state.
pub(crate) fn read_to_stay(path: &Path) -> Vec<Vec<u8>> {
    let file = File::open(path).expect("a file");
    let mut blocks = Vec::new();
    loop {
        let mut block = Vec::with_capacity(16 * BLOCK);
        (&file).take(16 * BLOCK as u64).read_to_end(&mut block).expect("read");
        if block.is_empty() {
            return blocks;
        }
        blocks.push(block);
    }
}

/// Reads a file past the system's cache, over and over into the same few bytes: what the disk gives,
/// without the system's reading ahead.
pub(crate) fn read_past_cache(path: &Path) {
    const ALIGNMENT: usize = 4096;
    let file = open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
    let mut file = File::from(file.expect("a file system that reads past its cache"));
    let mut memory = vec![0; BLOCK + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    while file.read(&mut memory[start..start + BLOCK]).expect("read") > 0 {}
}

/// Reads a file, over and over into the same few bytes.
pub(crate) fn read(path: &Path) {
    let mut file = File::open(path).expect("a file");
    let mut block = vec![0; BLOCK];
    while file.read(&mut block).expect("read") > 0 {}
}

/// Asks the system to forget what it has of a file in memory.
pub(crate) fn drop_cache(path: &Path) {
    let file = File::open(path).expect("a file");
    file.sync_all().expect("synced");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice is taken");
}
