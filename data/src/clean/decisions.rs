//! The decisions file: which documents are left out, and why.
//!
//! JSON lines. The first is a header; each other names a document, in the order of file and record:
//!
//! ```text
//! {"decisions_version":1,"settings":{..},"evaluation":null,"files":[{"name":..,"blake3":..,"reading":..}],"num_decisions":1,"blake3":".."}
//! {"file":"books.jsonl","record":7,"reason":"duplicate","evidence":"repeats books.jsonl:2"}
//! ```
//!
//! `blake3` is that of all bytes behind the header, so that a file cut short is found out.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::settings::CleanSettings;
use crate::{DataError, Document, Judge, Reason, Result, SourceIdentity, Verdict};

/// Version of decisions files; a build reads its own version only.
pub const DECISIONS_VERSION: u32 = 1;

/// One document that is left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// Name of its file.
    pub file: String,
    /// Its place in the file, from 1.
    pub record: u64,
    /// Why.
    pub reason: Reason,
    /// What it was found by.
    pub evidence: String,
}

/// The outcome of a cleaning pass: a pure function of sources, evaluation texts and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    header: Header,
    decisions: Vec<Decision>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    decisions_version: u32,
    settings: CleanSettings,
    /// [`EvaluationTexts::digest`](super::EvaluationTexts::digest), if there were any.
    evaluation: Option<String>,
    files: Vec<SourceIdentity>,
    num_decisions: u64,
    blake3: String,
}

/// Read before all else, since another version may have other fields.
#[derive(Deserialize)]
struct Version {
    decisions_version: u32,
}

impl Decisions {
    pub(super) fn new(
        settings: CleanSettings,
        evaluation: Option<String>,
        files: Vec<SourceIdentity>,
        mut decisions: Vec<Decision>,
    ) -> Self {
        decisions.sort_unstable();
        let header = Header {
            decisions_version: DECISIONS_VERSION,
            settings,
            evaluation,
            files,
            num_decisions: decisions.len() as u64,
            blake3: blake3::hash(&body(&decisions)).to_hex().to_string(),
        };
        Self { header, decisions }
    }

    /// All documents that are left out, in the order of file and record.
    pub fn all(&self) -> &[Decision] {
        &self.decisions
    }

    /// The files that were cleaned, in reading order.
    pub fn files(&self) -> &[SourceIdentity] {
        &self.header.files
    }

    /// What was looked for.
    pub fn settings(&self) -> &CleanSettings {
        &self.header.settings
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = json(&self.header);
        bytes.extend(body(&self.decisions));
        bytes
    }

    /// Digest of the file, in hex.
    pub fn digest(&self) -> String {
        blake3::hash(&self.to_bytes()).to_hex().to_string()
    }

    /// Writes the file, all of it or nothing; an earlier file is replaced.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        crate::whole_file::write(path.as_ref(), &self.to_bytes())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`DataError::Io`]; [`DataError::Decisions`] if it is of another version, or any byte of it is
    /// not as it was written.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(DataError::io("read", path))?;
        let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let (header, body) = bytes.split_at(end);
        let unreadable = |error: serde_json::Error| DataError::decisions(path, error.to_string());
        let version: Version = serde_json::from_slice(header).map_err(unreadable)?;
        if version.decisions_version != DECISIONS_VERSION {
            let found = version.decisions_version;
            let reason = format!("version {found}, this build reads version {DECISIONS_VERSION}");
            return Err(DataError::decisions(path, reason));
        }
        let header: Header = serde_json::from_slice(header).map_err(unreadable)?;
        let found = blake3::hash(body).to_hex().to_string();
        if found != header.blake3 {
            let needed = &header.blake3;
            let reason = format!("its lines have checksum {found}, the header says {needed}");
            return Err(DataError::decisions(path, reason));
        }
        let lines = body.split_inclusive(|&byte| byte == b'\n');
        let decisions: std::result::Result<Vec<Decision>, _> =
            lines.map(serde_json::from_slice).collect();
        let read = Self { header, decisions: decisions.map_err(unreadable)? };
        read.check(path)?;
        Ok(read)
    }

    /// The rules that a checksum does not keep.
    fn check(&self, path: &Path) -> Result<()> {
        let (found, needed) = (self.decisions.len() as u64, self.header.num_decisions);
        if found != needed {
            let reason = format!("it has {found} decisions, the header says {needed}");
            return Err(DataError::decisions(path, reason));
        }
        let out_of_order = |pair: &&[Decision]| {
            let [a, b] = [&pair[0], &pair[1]].map(|d| (&d.file, d.record));
            a >= b
        };
        if let Some(pair) = self.decisions.windows(2).find(out_of_order) {
            let Decision { file, record, .. } = &pair[1];
            let reason = format!("`{file}` record {record} is out of order");
            return Err(DataError::decisions(path, reason));
        }
        Ok(())
    }

    /// Binds the decisions to the files of a build, by name, or by contents where a name is new.
    ///
    /// # Errors
    /// [`DataError::DecisionsSource`] if a file of the build was not cleaned as it is now and is read
    /// now, or a cleaned file is not in the build: what repeats a document there would be lost with it.
    pub fn bind(&self, files: &[SourceIdentity]) -> Result<BoundDecisions> {
        let mut cleaned = Cleaned::new(self.files());
        // Names first: of files with the same contents each keeps its own decisions.
        let named: Vec<_> = files.iter().map(|file| cleaned.take_named(file)).collect();
        let mut by_file = HashMap::new();
        for (file, named) in files.iter().zip(named) {
            let found = named.or_else(|| cleaned.take_alike(file));
            let Some(it) = found else { return Err(self.stranger(file)) };
            let start = self.decisions.partition_point(|decision| decision.file < it.name);
            let own = self.decisions[start..].iter().take_while(|d| d.file == it.name);
            let by_record = own.map(|d| (d.record, d.reason, d.evidence.clone())).collect();
            by_file.insert(file.name.clone(), by_record);
        }
        if let Some(left) = cleaned.left() {
            return Err(DataError::DecisionsSource {
                file: left.name.clone(),
                found: "not in the build".to_owned(),
                needed: format!("the file that was cleaned, of digest {}", left.blake3),
            });
        }
        Ok(BoundDecisions { by_file, digest: self.digest() })
    }

    /// Why a file of a build is not one of those that were cleaned.
    fn stranger(&self, file: &SourceIdentity) -> DataError {
        let named = self.files().iter().find(|it| it.name == file.name);
        let (found, needed) = match named {
            Some(it) if it.blake3 == file.blake3 => (
                "other columns, rules or limits".to_owned(),
                "those it was cleaned with".to_owned(),
            ),
            Some(it) => {
                let needed = format!("digest {}, which was cleaned", it.blake3);
                (format!("digest {}", file.blake3), needed)
            }
            None => {
                let needed = "one of the files that were cleaned".to_owned();
                (format!("digest {}", file.blake3), needed)
            }
        };
        DataError::DecisionsSource { file: file.name.clone(), found, needed }
    }
}

/// The files that were cleaned, each to be taken once.
struct Cleaned<'a> {
    files: Vec<Option<&'a SourceIdentity>>,
    by_name: HashMap<&'a str, usize>,
    /// Later files first.
    by_contents: HashMap<(&'a str, &'a str), Vec<usize>>,
}

impl<'a> Cleaned<'a> {
    fn new(files: &'a [SourceIdentity]) -> Self {
        let by_name = files.iter().enumerate().map(|(at, file)| (&*file.name, at)).collect();
        let mut by_contents: HashMap<_, Vec<usize>> = HashMap::new();
        for (at, file) in files.iter().enumerate().rev() {
            by_contents.entry((&*file.blake3, &*file.reading)).or_default().push(at);
        }
        Self { files: files.iter().map(Some).collect(), by_name, by_contents }
    }

    fn take_named(&mut self, file: &SourceIdentity) -> Option<&'a SourceIdentity> {
        let found = &mut self.files[*self.by_name.get(&*file.name)?];
        if found.is_some_and(|it| it == file) { found.take() } else { None }
    }

    fn take_alike(&mut self, file: &'a SourceIdentity) -> Option<&'a SourceIdentity> {
        let alike = self.by_contents.get_mut(&(&*file.blake3, &*file.reading))?;
        loop {
            if let Some(it) = self.files[alike.pop()?].take() {
                return Some(it);
            }
        }
    }

    fn left(&self) -> Option<&'a SourceIdentity> {
        self.files.iter().flatten().next().copied()
    }
}

/// Decisions about the very files of a build.
#[derive(Clone, Debug)]
pub struct BoundDecisions {
    by_file: HashMap<String, Vec<(u64, Reason, String)>>,
    digest: String,
}

impl Judge for BoundDecisions {
    /// # Panics
    /// If the document is of a file that the decisions were not bound to.
    fn judge(&self, document: &Document) -> Verdict {
        let Some(of_file) = self.by_file.get(&*document.file) else {
            panic!("decisions: document of `{}`, need one of the files bound", document.file);
        };
        match of_file.binary_search_by_key(&document.record, |(record, ..)| *record) {
            Err(_) => Verdict::Keep,
            Ok(at) => {
                let (_, reason, evidence) = of_file[at].clone();
                Verdict::LeaveOut { reason, evidence }
            }
        }
    }

    fn digest(&self) -> String {
        self.digest.clone()
    }
}

fn body(decisions: &[Decision]) -> Vec<u8> {
    decisions.iter().flat_map(json).collect()
}

/// A value as a line of JSON.
fn json(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("strings, numbers and lists");
    line.write_all(b"\n").expect("memory");
    line
}
