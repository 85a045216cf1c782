//! The tokens around a document.

use serde::{Deserialize, Serialize};

/// The token before a document's text, unless a recipe names another.
pub const BEGIN_OF_TEXT: &str = "<|begin_of_text|>";

/// The token after a document's text, unless a recipe names another.
pub const END_OF_TEXT: &str = "<|end_of_text|>";

/// Which marks are put around a document's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentMarks {
    /// Begin-of-text in front, so that the first token of the text has a context. Default true.
    pub bos: bool,
    /// End-of-text behind, so that a model learns where to stop. Default true.
    pub eos: bool,
}

impl Default for DocumentMarks {
    fn default() -> Self {
        Self { bos: true, eos: true }
    }
}

/// What a tokenizer calls the two marks. One that has a single token for both is named twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkNames {
    /// Begin of text.
    pub bos: String,
    /// End of text.
    pub eos: String,
}

impl Default for MarkNames {
    fn default() -> Self {
        Self { bos: BEGIN_OF_TEXT.to_owned(), eos: END_OF_TEXT.to_owned() }
    }
}

/// Both at once, as in a recipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MarksConfig {
    /// [`DocumentMarks::bos`].
    pub bos: bool,
    /// [`DocumentMarks::eos`].
    pub eos: bool,
    /// [`MarkNames::bos`].
    pub bos_token: String,
    /// [`MarkNames::eos`].
    pub eos_token: String,
}

impl MarksConfig {
    /// Which marks are put.
    pub fn marks(&self) -> DocumentMarks {
        DocumentMarks { bos: self.bos, eos: self.eos }
    }

    /// What they are called.
    pub fn names(&self) -> MarkNames {
        MarkNames { bos: self.bos_token.clone(), eos: self.eos_token.clone() }
    }
}

impl Default for MarksConfig {
    fn default() -> Self {
        let (marks, names) = (DocumentMarks::default(), MarkNames::default());
        Self { bos: marks.bos, eos: marks.eos, bos_token: names.bos, eos_token: names.eos }
    }
}
