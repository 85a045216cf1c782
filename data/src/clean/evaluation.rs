//! Evaluation texts, to be found in what is trained on.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::settings::ContaminationSettings;
use super::signature::Mixed;
use crate::{DataError, Document, Result, ngrams};

/// Longest quoted run in bytes.
const QUOTE_BYTES: usize = 160;

/// An index of the word runs of evaluation texts.
///
/// Runs are kept as 64-bit hashes: a run of one of M indexed ones is taken for it wrongly once in
/// 2^64 / M. Memory: 40 bytes a distinct run.
pub struct EvaluationTexts {
    settings: ContaminationSettings,
    texts: Vec<EvaluationText>,
    /// Each distinct run of each text, sorted.
    runs: Vec<(u64, u32)>,
    /// Where each distinct run begins in `runs`.
    starts: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    digest: blake3::Hasher,
}

struct EvaluationText {
    name: String,
    num_runs: usize,
}

/// What a document shares with an evaluation text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contamination {
    /// Index of the evaluation text that it shares most of.
    pub text: u32,
    /// Distinct runs that they share.
    pub shared: usize,
    /// The first of these runs, as the document has it, cut where it is long.
    pub quote: String,
}

impl EvaluationTexts {
    /// Indexes texts.
    ///
    /// # Errors
    /// The first error of `texts`; [`DataError::Setting`] if there is no text.
    pub fn new(
        settings: ContaminationSettings,
        texts: impl IntoIterator<Item = Result<Document>>,
    ) -> Result<Self> {
        let mut index = Self {
            settings,
            texts: Vec::new(),
            runs: Vec::new(),
            starts: HashMap::default(),
            digest: blake3::Hasher::new(),
        };
        for text in texts {
            index.add(&text?);
        }
        if index.texts.is_empty() {
            return Err(DataError::setting("evaluation", "no text", "at least one"));
        }
        index.runs.sort_unstable();
        for (start, (hash, _)) in index.runs.iter().enumerate() {
            index.starts.entry(*hash).or_insert(start as u32);
        }
        Ok(index)
    }

    fn add(&mut self, text: &Document) {
        let mut runs: Vec<u64> =
            ngrams::runs(&ngrams::words(&text.text), self.settings.ngram).collect();
        runs.sort_unstable();
        runs.dedup();
        let index = self.texts.len() as u32;
        self.digest.update(blake3::hash(text.text.as_bytes()).as_bytes());
        let name = format!("{}:{} ({})", text.file, text.record, text.id);
        self.texts.push(EvaluationText { name, num_runs: runs.len() });
        self.runs.extend(runs.into_iter().map(|hash| (hash, index)));
    }

    /// How it looks for them.
    pub fn settings(&self) -> ContaminationSettings {
        self.settings
    }

    /// Number of texts.
    pub fn num_texts(&self) -> usize {
        self.texts.len()
    }

    /// Texts with fewer words than a run, which are never found.
    pub fn num_too_short(&self) -> usize {
        self.texts.iter().filter(|text| text.num_runs == 0).count()
    }

    /// `<file>:<record> (<id>)` of a text.
    ///
    /// # Panics
    /// If there is no such text.
    pub fn name(&self, text: u32) -> &str {
        &self.texts[text as usize].name
    }

    /// Distinct runs of a text.
    ///
    /// # Panics
    /// If there is no such text.
    pub fn num_runs(&self, text: u32) -> usize {
        self.texts[text as usize].num_runs
    }

    /// Digest of all texts in their order, in hex.
    pub fn digest(&self) -> String {
        self.digest.finalize().to_hex().to_string()
    }

    /// Whether a text is contaminated, and by which evaluation text most.
    pub fn find(&self, text: &str) -> Option<Contamination> {
        let words = ngrams::words(text);
        let mut shared: Vec<(u32, u64)> = Vec::new();
        let mut first = None;
        for (place, hash) in ngrams::runs(&words, self.settings.ngram).enumerate() {
            let Some(&start) = self.starts.get(&hash) else { continue };
            first.get_or_insert(place);
            let same = self.runs[start as usize..].iter().take_while(|run| run.0 == hash);
            shared.extend(same.map(|&(hash, text)| (text, hash)));
        }
        let first = first?;
        shared.sort_unstable();
        shared.dedup();
        let counts = shared.chunk_by(|a, b| a.0 == b.0).map(|runs| (runs[0].0, runs.len()));
        let most = counts.filter(|&(text, count)| self.is_enough(text, count));
        // Of equals the earlier text.
        let (text_index, count) = most.max_by_key(|&(text, count)| (count, u32::MAX - text))?;
        let quote = quote(text, first, self.settings.ngram);
        Some(Contamination { text: text_index, shared: count, quote })
    }

    fn is_enough(&self, text: u32, count: usize) -> bool {
        let share = count as f64 / self.num_runs(text) as f64;
        count >= self.settings.min_count && share >= self.settings.min_share
    }
}

/// The words from number `first` on, as the text has them.
fn quote(text: &str, first: usize, num_words: usize) -> String {
    let mut at = Vec::new();
    ngrams::each_word(text, |_, range| at.push(range));
    let run = at[first].start..at[first + num_words - 1].end;
    let end = text.floor_char_boundary(run.end.min(run.start + QUOTE_BYTES));
    text[run.start..end].to_owned()
}
