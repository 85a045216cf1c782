//! The pass over all sources.

use std::collections::HashMap;
use std::sync::Arc;

use super::bands::near_duplicates;
use super::decisions::{Decision, Decisions};
use super::evaluation::EvaluationTexts;
use super::examine::{Examined, examine, read_batch, sign};
use super::report::{CleanReport, REASONS};
use super::settings::CleanSettings;
use super::signature::{Signer, similarity};
use super::source::CleanSource;
use crate::{DataError, Document, Reason, Result, SourceIdentity};

/// What came of a pass.
#[derive(Clone, Debug)]
pub struct Cleaned {
    /// Which documents are left out.
    pub decisions: Decisions,
    /// The same for a person.
    pub report: CleanReport,
}

/// Cleans sources in their order.
///
/// Evaluation texts are looked for if they are given, whatever `settings.contamination` says; it is
/// replaced by theirs.
///
/// # Errors
/// The first error in document order; [`DataError::Setting`]; [`DataError::UnknownFile`] if a
/// document is of a file that its source does not name, or two sources name the same file.
pub fn clean(
    settings: &CleanSettings,
    evaluation: Option<&EvaluationTexts>,
    sources: Vec<CleanSource<'_>>,
) -> Result<Cleaned> {
    let contamination = evaluation.map(EvaluationTexts::settings);
    let settings = CleanSettings { contamination, ..settings.clone() };
    settings.validate()?;
    let mut pass = Pass::new(&settings, evaluation);
    for source in sources {
        pass.read(source)?;
    }
    pass.group();
    Ok(pass.finish())
}

/// A document among those that are not contaminated and repeat no earlier one.
#[derive(Clone, Copy)]
struct Original {
    file: u32,
    record: u64,
    text_bytes: u64,
}

struct Pass<'a> {
    evaluation: Option<&'a EvaluationTexts>,
    settings: &'a CleanSettings,
    signer: Option<Signer>,
    files: Vec<File>,
    by_name: HashMap<Arc<str>, u32>,
    exempt: Vec<Vec<Reason>>,
    /// Index in `originals` of the first document with a text.
    first_with: HashMap<u128, u32>,
    originals: Vec<Original>,
    signatures: Vec<Option<Box<[u16]>>>,
    decisions: Vec<Decision>,
    report: CleanReport,
}

struct File {
    identity: SourceIdentity,
    source: usize,
}

impl<'a> Pass<'a> {
    fn new(settings: &'a CleanSettings, evaluation: Option<&'a EvaluationTexts>) -> Self {
        Self {
            evaluation,
            settings,
            signer: settings.fuzzy.as_ref().map(Signer::new),
            files: Vec::new(),
            by_name: HashMap::new(),
            exempt: Vec::new(),
            first_with: HashMap::new(),
            originals: Vec::new(),
            signatures: Vec::new(),
            decisions: Vec::new(),
            report: CleanReport::new(evaluation),
        }
    }

    fn read(&mut self, source: CleanSource<'_>) -> Result<()> {
        let CleanSource { name, files, exempt, mut documents } = source;
        let index = self.exempt.len();
        if let Some(other) = exempt.iter().find(|reason| !REASONS.contains(reason)) {
            let rule = "duplicate, near_duplicate or contaminated";
            return Err(DataError::setting("exempt", other, rule));
        }
        self.exempt.push(exempt);
        self.report.add_source(&name, files.len());
        for identity in files {
            let name: Arc<str> = identity.name.as_str().into();
            if self.by_name.insert(name, self.files.len() as u32).is_some() {
                let (file, problem) = (identity.name, "named twice; name each file once");
                return Err(DataError::UnknownFile { file, problem });
            }
            self.files.push(File { identity, source: index });
        }
        loop {
            let (batch, error) = read_batch(&mut *documents);
            self.take(index, &batch)?;
            if let Some(error) = error {
                return Err(error);
            }
            if batch.is_empty() {
                return Ok(());
            }
        }
    }

    /// Decides about a batch, in order, but for near duplicates.
    fn take(&mut self, source: usize, batch: &[Document]) -> Result<()> {
        let mut unique = Vec::new();
        for (at, examined) in examine(batch, self.evaluation).into_iter().enumerate() {
            let document = &batch[at];
            let file = self.by_name.get(&document.file).copied();
            let Some(file) = file.filter(|&file| self.files[file as usize].source == source) else {
                let file = document.file.to_string();
                let problem = "not among the files that its source names; name it there";
                return Err(DataError::UnknownFile { file, problem });
            };
            self.report.read(source, document.text.len());
            let record = document.record;
            let original = Original { file, record, text_bytes: document.text.len() as u64 };
            if self.is_new(original, examined) {
                unique.push(at);
                self.originals.push(original);
            }
        }
        if let Some(signer) = &self.signer {
            self.signatures.extend(sign(batch, &unique, signer));
        }
        Ok(())
    }

    /// Whether a document is the first with its text and is not contaminated; else it is left out,
    /// or kept by an exemption.
    fn is_new(&mut self, document: Original, examined: Examined) -> bool {
        if let (Some(found), Some(texts)) = (examined.contamination, self.evaluation) {
            self.report.found(found.text);
            let (of, shared) = (texts.num_runs(found.text), found.shared);
            let name = texts.name(found.text);
            let evidence = format!("shares {shared} of {of} runs with {name}: {:?}", found.quote);
            if self.leave_out(document, Reason::Contaminated, evidence) {
                return false;
            }
        }
        if !self.settings.exact {
            return true;
        }
        let next = self.originals.len() as u32;
        let first = *self.first_with.entry(examined.text).or_insert(next);
        if first != next {
            let evidence = format!("repeats {}", self.place(first));
            self.leave_out(document, Reason::Duplicate, evidence);
        }
        first == next
    }

    /// Leaves a document out, unless its source is exempt.
    fn leave_out(&mut self, document: Original, reason: Reason, evidence: String) -> bool {
        let File { identity, source } = &self.files[document.file as usize];
        let (file, source, record) = (identity.name.clone(), *source, document.record);
        if self.exempt[source].contains(&reason) {
            self.report.exempted(source);
            return false;
        }
        let decision = Decision { file, record, reason, evidence };
        self.report.left_out(source, &decision, document.text_bytes);
        self.decisions.push(decision);
        true
    }

    /// Finds near duplicates among the originals, and leaves all but the first of a group out.
    fn group(&mut self) {
        let Some(fuzzy) = self.settings.fuzzy else { return };
        let (mut groups, comparisons) = near_duplicates(&self.signatures, &fuzzy);
        self.report.comparisons = comparisons;
        let mut sizes: HashMap<u32, u64> = HashMap::new();
        for index in 0..self.originals.len() as u32 {
            let first = groups.first(index);
            if first == index {
                continue;
            }
            *sizes.entry(first).or_insert(1) += 1;
            let signature = |index: u32| self.signatures[index as usize].as_deref();
            let alike = similarity(
                signature(first).unwrap_or_default(),
                signature(index).unwrap_or_default(),
            );
            let evidence = format!("like {}, similarity {alike:.2}", self.place(first));
            let document = self.originals[index as usize];
            self.leave_out(document, Reason::NearDuplicate, evidence);
        }
        let mut sizes: Vec<(u32, u64)> = sizes.into_iter().collect();
        // The largest first, of equals the earlier.
        sizes.sort_unstable_by_key(|&(first, size)| (u64::MAX - size, first));
        let groups = sizes.iter().map(|&(first, size)| (self.place(first), size)).collect();
        self.report.near_groups(groups);
    }

    fn place(&self, original: u32) -> String {
        let Original { file, record, .. } = self.originals[original as usize];
        format!("{}:{record}", self.files[file as usize].identity.name)
    }

    fn finish(self) -> Cleaned {
        let files = self.files.into_iter().map(|file| file.identity).collect();
        let evaluation = self.evaluation.map(EvaluationTexts::digest);
        let decisions = Decisions::new(self.settings.clone(), evaluation, files, self.decisions);
        Cleaned { decisions, report: self.report }
    }
}
