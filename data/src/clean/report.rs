//! What a person reads about a cleaning pass.

use std::fmt;

use serde::Serialize;

use super::bands::Comparisons;
use super::decisions::Decision;
use super::evaluation::EvaluationTexts;
use crate::Reason;

/// Examples of each reason and source.
const NUM_EXAMPLES: usize = 3;

/// Groups that are shown.
const NUM_GROUPS: usize = 10;

/// The reasons of a cleaning pass.
pub(super) const REASONS: [Reason; 3] =
    [Reason::Duplicate, Reason::NearDuplicate, Reason::Contaminated];

/// Counts, examples and the largest groups.
#[derive(Clone, Debug, Serialize)]
pub struct CleanReport {
    /// In reading order.
    pub sources: Vec<SourceReport>,
    /// The largest groups of near duplicates, at most ten.
    pub groups: Vec<LargestGroup>,
    /// Groups of near duplicates.
    pub num_groups: u64,
    /// What the comparison of signatures came to.
    pub comparisons: Comparisons,
    /// Evaluation texts looked for.
    pub evaluation_texts: u64,
    /// Those with fewer words than a run, which cannot be found.
    pub evaluation_texts_too_short: u64,
    /// Evaluation texts that were found, in their order.
    pub found: Vec<FoundText>,
    #[serde(skip)]
    names: Vec<String>,
}

/// The account of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Its files.
    pub files: u64,
    /// Documents read.
    pub documents: u64,
    /// UTF-8 bytes of their text.
    pub text_bytes: u64,
    /// Left out as duplicates.
    pub duplicate: u64,
    /// Left out as near duplicates.
    pub near_duplicate: u64,
    /// Left out as contaminated.
    pub contaminated: u64,
    /// Found and kept, since the source is exempt; a document counts once a reason.
    pub exempted: u64,
    /// Documents kept.
    pub kept: u64,
    /// UTF-8 bytes of their text.
    pub kept_bytes: u64,
    /// The first few left out, by reason.
    pub examples: Vec<Example>,
}

/// One document that is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// `<file>:<record>`.
    pub document: String,
    /// Why.
    pub reason: Reason,
    /// What it was found by.
    pub evidence: String,
}

/// A group of near duplicates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LargestGroup {
    /// `<file>:<record>` of the first, which is kept.
    pub first: String,
    /// Documents, the first one too, exact duplicates not.
    pub documents: u64,
}

/// An evaluation text that documents hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundText {
    /// `<file>:<record> (<id>)`.
    pub name: String,
    /// Documents that share most with this text, exempt ones too.
    pub documents: u64,
    #[serde(skip)]
    index: u32,
}

impl CleanReport {
    pub(super) fn new(evaluation: Option<&EvaluationTexts>) -> Self {
        let num_texts = evaluation.map_or(0, EvaluationTexts::num_texts);
        let names = (0..num_texts as u32)
            .filter_map(|text| evaluation.map(|texts| texts.name(text).to_owned()));
        Self {
            sources: Vec::new(),
            groups: Vec::new(),
            num_groups: 0,
            comparisons: Comparisons::default(),
            evaluation_texts: num_texts as u64,
            evaluation_texts_too_short: evaluation.map_or(0, |texts| texts.num_too_short() as u64),
            found: Vec::new(),
            names: names.collect(),
        }
    }

    pub(super) fn add_source(&mut self, name: &str, files: usize) {
        let (name, files) = (name.to_owned(), files as u64);
        self.sources.push(SourceReport { name, files, ..SourceReport::default() });
    }

    pub(super) fn read(&mut self, source: usize, text_bytes: usize) {
        let source = &mut self.sources[source];
        source.documents += 1;
        source.text_bytes += text_bytes as u64;
        source.kept += 1;
        source.kept_bytes += text_bytes as u64;
    }

    pub(super) fn left_out(&mut self, source: usize, decision: &Decision, text_bytes: u64) {
        let source = &mut self.sources[source];
        source.kept -= 1;
        source.kept_bytes -= text_bytes;
        let reason = decision.reason;
        *source.count(reason) += 1;
        let shown = source.examples.iter().filter(|example| example.reason == reason).count();
        if shown < NUM_EXAMPLES {
            let document = format!("{}:{}", decision.file, decision.record);
            source.examples.push(Example { document, reason, evidence: decision.evidence.clone() });
        }
    }

    pub(super) fn exempted(&mut self, source: usize) {
        self.sources[source].exempted += 1;
    }

    pub(super) fn found(&mut self, text: u32) {
        match self.found.binary_search_by_key(&text, |found| found.index) {
            Ok(at) => self.found[at].documents += 1,
            Err(at) => {
                let name = self.names[text as usize].clone();
                self.found.insert(at, FoundText { name, documents: 1, index: text });
            }
        }
    }

    /// Takes the largest of all groups, which come in the order of their sizes.
    pub(super) fn near_groups(&mut self, groups: Vec<(String, u64)>) {
        self.num_groups = groups.len() as u64;
        let largest = groups.into_iter().take(NUM_GROUPS);
        self.groups = largest.map(|(first, documents)| LargestGroup { first, documents }).collect();
    }

    /// All sources together.
    pub fn total(&self) -> SourceReport {
        let mut total = SourceReport { name: "total".to_owned(), ..SourceReport::default() };
        for source in &self.sources {
            total.files += source.files;
            total.documents += source.documents;
            total.text_bytes += source.text_bytes;
            total.duplicate += source.duplicate;
            total.near_duplicate += source.near_duplicate;
            total.contaminated += source.contaminated;
            total.exempted += source.exempted;
            total.kept += source.kept;
            total.kept_bytes += source.kept_bytes;
        }
        total
    }

    /// The report as pretty JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers")
    }
}

impl SourceReport {
    fn count(&mut self, reason: Reason) -> &mut u64 {
        match reason {
            Reason::Duplicate => &mut self.duplicate,
            Reason::NearDuplicate => &mut self.near_duplicate,
            Reason::Contaminated => &mut self.contaminated,
            other => unreachable!("a cleaning pass leaves nothing out as {other}"),
        }
    }

    /// Whether every document is kept or left out for one reason.
    pub fn closes(&self) -> bool {
        let left_out = self.duplicate + self.near_duplicate + self.contaminated;
        self.documents == self.kept + left_out
    }
}

impl fmt::Display for CleanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<30} {:>11} {:>10} {:>10} {:>12} {:>9} {:>11} {:>9}",
            "source",
            "documents",
            "duplicate",
            "near",
            "contaminated",
            "exempted",
            "kept",
            "of bytes"
        )?;
        let total = (self.sources.len() > 1).then(|| self.total());
        for source in self.sources.iter().chain(&total) {
            let share = 100.0 * source.kept_bytes as f64 / source.text_bytes.max(1) as f64;
            writeln!(
                f,
                "{:<30} {:>11} {:>10} {:>10} {:>12} {:>9} {:>11} {share:>8.2}%",
                source.name,
                source.documents,
                source.duplicate,
                source.near_duplicate,
                source.contaminated,
                source.exempted,
                source.kept
            )?;
        }
        self.write_examples(f)?;
        self.write_groups(f)?;
        self.write_evaluation(f)
    }
}

impl CleanReport {
    fn write_examples(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for reason in REASONS {
            let examples = self.sources.iter().flat_map(|source| &source.examples);
            for example in examples.filter(|example| example.reason == reason) {
                writeln!(f, "{reason}: {} {}", example.document, example.evidence)?;
            }
        }
        Ok(())
    }

    fn write_groups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num_groups > 0 {
            writeln!(f, "groups of near duplicates: {}, the largest", self.num_groups)?;
        }
        for LargestGroup { first, documents } in &self.groups {
            writeln!(f, "{documents:>11} like {first}")?;
        }
        if self.comparisons.limited > 0 {
            let limited = self.comparisons.limited;
            writeln!(f, "{limited} times too many unlike documents shared a band to compare all")?;
        }
        Ok(())
    }

    fn write_evaluation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.evaluation_texts == 0 {
            return Ok(());
        }
        let (texts, short) = (self.evaluation_texts, self.evaluation_texts_too_short);
        let found = self.found.len();
        writeln!(f, "{texts} evaluation texts, {short} too short to look for, {found} found:")?;
        for FoundText { name, documents, .. } in self.found.iter().take(NUM_GROUPS) {
            writeln!(f, "{documents:>11} share most with {name}")?;
        }
        Ok(())
    }
}
