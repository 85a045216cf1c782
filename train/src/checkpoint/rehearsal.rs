//! A save before the first step: whatever keeps a target from taking checkpoints is found before
//! anything is trained.

use std::fmt::{self, Display};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::time::Instant;

use fulmar_ep::World;
use serde::{Deserialize, Serialize};

use super::MANIFEST;
use crate::error::TrainError;
use crate::storage::Storage;

const FOLDER: &str = "rehearsal";

/// Bytes that each rank writes.
const PART_BYTES: usize = 4096;

/// What a rehearsal found.
#[derive(Debug, Clone, PartialEq)]
pub struct Rehearsal {
    /// Where checkpoints go.
    pub place: String,
    /// Ranks that took part.
    pub ranks: usize,
    /// Seconds it took.
    pub secs: f64,
    /// Why nothing can be removed, if so; known to the first rank.
    pub removal_denied: Option<String>,
}

impl Display for Rehearsal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, ranks, secs, .. } = self;
        let who = if *ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") };
        write!(f, "checkpoints: {place}; a save rehearsed by {who} in {secs:.2} s")?;
        match &self.removal_denied {
            None => Ok(()),
            Some(cause) => {
                write!(f, "; removing is denied ({cause}): pruning will not work, saves will")
            }
        }
    }
}

/// Goes through a save with small objects on the real target; all ranks together. Each writes its
/// part, the first then writes the manifest, each reads its own and its neighbour's part and the
/// manifest and lists them all, and the first tries to remove them. They lie in
/// `rehearsal/attempt-<n>`, `n` the first free number from `attempt` on.
///
/// # Errors
/// On every rank what the first that failed could not do and where: [`TrainError::Storage`], of
/// several ranks in a [`TrainError::Rank`]; or a lost peer. That nothing can be removed is no error.
pub fn rehearse(
    storage: &dyn Storage,
    attempt: u64,
    world: &World,
) -> Result<Rehearsal, TrainError> {
    let started = Instant::now();
    let first = world.is_first();
    let number = if first { free_number(storage, attempt) } else { Ok(0) };
    let own = number.as_ref().map_or(0, |number| *number);
    together(world, number.map(drop))?;
    // What is written differs from what an earlier attempt left there.
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    let chosen = world.all.gather_u64("rehearsal", &[own, random])?.swap_remove(0);
    let play = Play {
        storage,
        folder: format!("{FOLDER}/attempt-{}", chosen[0]),
        random: chosen[1],
        ranks: world.layout.ranks(),
    };
    together(world, play.write_part(world.rank()))?;
    together(world, if first { play.write_manifest() } else { Ok(()) })?;
    together(world, play.read_back(world.rank()).and_then(|()| play.list()))?;
    let removal_denied = if first { play.remove().err().map(|failed| failed.told()) } else { None };
    Ok(Rehearsal {
        place: storage.locate(""),
        ranks: play.ranks,
        secs: started.elapsed().as_secs_f64(),
        removal_denied,
    })
}

/// What a rank could not do; goes from rank to rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Failed {
    doing: Doing,
    place: String,
    cause: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Doing {
    Write,
    Read,
    List,
    Remove,
}

impl Doing {
    fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read back",
            Self::List => "list",
            Self::Remove => "remove",
        }
    }
}

impl Failed {
    fn told(&self) -> String {
        format!("{}: {}", self.place, self.cause)
    }

    fn error(self) -> TrainError {
        let (doing, source) = (self.doing.word(), io::Error::other(self.cause));
        TrainError::Storage { doing, place: self.place, source }
    }
}

/// Ends an act: all ranks go on, or all end by the failure of the first that failed.
fn together(world: &World, own: Result<(), Failed>) -> Result<(), TrainError> {
    let told = own
        .map_or_else(|failed| serde_json::to_vec(&failed).expect("plain values"), |()| Vec::new());
    let all = world.all.gather_bytes("rehearsal of a save", &told)?;
    let Some(rank) = all.iter().position(|told| !told.is_empty()) else { return Ok(()) };
    let failed: Failed = serde_json::from_slice(&all[rank]).expect("the failure of a peer");
    match world.layout.ranks() {
        1 => Err(failed.error()),
        _ => Err(TrainError::Rank { rank, source: Box::new(failed.error()) }),
    }
}

/// The first number from `attempt` on under which nothing lies.
fn free_number(storage: &dyn Storage, attempt: u64) -> Result<u64, Failed> {
    let objects = storage.list(FOLDER).map_err(|cause| Failed {
        doing: Doing::List,
        place: storage.locate(FOLDER),
        cause: cause.to_string(),
    })?;
    let taken = |number: &u64| {
        let folder = format!("{FOLDER}/attempt-{number}/");
        objects.iter().any(|object| object.name.starts_with(&folder))
    };
    Ok((attempt..).find(|number| !taken(number)).expect("numbers do not end"))
}

/// A rehearsal on one rank.
struct Play<'a> {
    storage: &'a dyn Storage,
    folder: String,
    random: u64,
    ranks: usize,
}

impl Play<'_> {
    fn part(&self, rank: usize) -> String {
        format!("{}/part-{rank}-of-{}", self.folder, self.ranks)
    }

    fn manifest(&self) -> String {
        format!("{}/{MANIFEST}", self.folder)
    }

    /// What a rank writes.
    fn bytes_of(&self, rank: usize) -> Vec<u8> {
        let mut bytes = vec![0; PART_BYTES];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.random.to_le_bytes()).update(&rank.to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes);
        bytes
    }

    /// What the first rank writes when all parts are there.
    fn text(&self) -> Vec<u8> {
        let parts: Vec<String> = (0..self.ranks).map(|rank| self.part(rank)).collect();
        let text = serde_json::json!({ "random": self.random, "parts": parts });
        text.to_string().into_bytes()
    }

    fn failed(&self, doing: Doing, name: &str, cause: impl Display) -> Failed {
        Failed { doing, place: self.storage.locate(name), cause: cause.to_string() }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failed> {
        let written = self.storage.write_all(name, bytes);
        written.map_err(|cause| self.failed(Doing::Write, name, cause))
    }

    fn write_part(&self, rank: usize) -> Result<(), Failed> {
        self.write(&self.part(rank), &self.bytes_of(rank))
    }

    fn write_manifest(&self) -> Result<(), Failed> {
        self.write(&self.manifest(), &self.text())
    }

    /// The manifest, the own part and that of the next rank, which may lie on another machine.
    fn read_back(&self, rank: usize) -> Result<(), Failed> {
        self.compare(&self.manifest(), 0, &self.text())?;
        for writer in [rank, (rank + 1) % self.ranks] {
            self.compare(&self.part(writer), writer, &self.bytes_of(writer))?;
        }
        Ok(())
    }

    fn compare(&self, name: &str, writer: usize, needed: &[u8]) -> Result<(), Failed> {
        let failed = |cause: String| {
            let all = "all ranks must see one and the same target";
            let cause = if self.ranks == 1 {
                cause
            } else {
                format!("{cause}; rank {writer} wrote it, and {all}")
            };
            self.failed(Doing::Read, name, cause)
        };
        let found = self.storage.read_all(name).map_err(|cause| failed(cause.to_string()))?;
        if found != needed {
            let at = found.iter().zip(needed).position(|(found, needed)| found != needed);
            let at = at.unwrap_or(found.len().min(needed.len()));
            let (found, needed) = (found.len(), needed.len());
            let cause = format!("{found} bytes, needed {needed}; they differ at byte {at}");
            return Err(failed(cause));
        }
        // Restoring reads ranges.
        let range = needed.len() as u64 / 3..needed.len() as u64 / 2;
        let part = &needed[range.start as usize..range.end as usize];
        let found =
            self.storage.read(name, range.clone()).map_err(|cause| failed(cause.to_string()))?;
        if found == part {
            Ok(())
        } else {
            Err(failed(format!("bytes {range:?} are others than in the whole")))
        }
    }

    /// All that was written, with its sizes.
    fn list(&self) -> Result<(), Failed> {
        let failed = |cause: String| self.failed(Doing::List, &self.folder, cause);
        let found = self.storage.list(&self.folder).map_err(|cause| failed(cause.to_string()))?;
        let parts = (0..self.ranks).map(|rank| (self.part(rank), PART_BYTES as u64));
        for (name, bytes) in parts.chain([(self.manifest(), self.text().len() as u64)]) {
            match found.iter().find(|object| object.name == name) {
                Some(object) if object.bytes == bytes => {}
                Some(object) => {
                    let found = object.bytes;
                    return Err(failed(format!("{name} has {found} bytes, needed {bytes}")));
                }
                None => return Err(failed(format!("{name} was written and is not in the list"))),
            }
        }
        Ok(())
    }

    /// Tries to remove everything, the manifest first, as pruning does.
    fn remove(&self) -> Result<(), Failed> {
        let parts = (0..self.ranks).map(|rank| self.part(rank));
        for name in [self.manifest()].into_iter().chain(parts) {
            let removed = self.storage.remove(&name);
            removed.map_err(|cause| self.failed(Doing::Remove, &name, cause))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
