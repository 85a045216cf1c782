//! A document as a vector of unit length.

use serde::{Deserialize, Serialize};

use crate::{DataError, Document, Result, ngrams};

/// Bytes of a text that features are taken of, from its beginning: what a document is about and how
/// it is written shows there, and no document costs more.
pub const FEATURE_BYTES: usize = 1 << 16;

/// What a document is seen as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Features {
    /// Hashed n-grams of its text.
    Text(TextFeatures),
    /// Its given embedding, of so many numbers.
    Embedding(usize),
}

/// Hashed n-grams of words (Weinberger et al. 2009): each falls by its hash into one of `dim`
/// places, with a sign so that those that meet there cancel on average.
///
/// A place counts n as ln(1 + n); the whole is scaled to length 1. A text without words is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextFeatures {
    /// Words of the longest n-gram; all shorter ones count too.
    pub max_words: usize,
    /// Length of the vector.
    pub dim: usize,
}

impl Features {
    /// Length of the vectors.
    pub fn dim(self) -> usize {
        match self {
            Self::Text(text) => text.dim,
            Self::Embedding(dim) => dim,
        }
    }

    pub(super) fn validate(self) -> Result<()> {
        if self.dim() == 0 || self.dim() > 1 << 20 {
            return Err(DataError::setting("dim", self.dim(), "1 to 1,048,576"));
        }
        match self {
            Self::Text(TextFeatures { max_words: max_words @ (0 | 9..), .. }) => {
                Err(DataError::setting("max_words", max_words, "1 to 8"))
            }
            _ => Ok(()),
        }
    }

    /// The vector of a document, not yet scaled.
    ///
    /// # Errors
    /// [`DataError::Unassigned`] if the embedding is missing, of another length or not finite.
    fn raw(self, document: &Document) -> Result<Vec<f32>> {
        let dim = match self {
            Self::Text(text) => return Ok(text.counts(&document.text)),
            Self::Embedding(dim) => dim,
        };
        let need = format!("an embedding of {dim} finite numbers");
        match &document.embedding {
            None => Err(DataError::unassigned(document, format!("no embedding, need {need}"))),
            Some(given) if given.len() != dim => {
                let found = given.len();
                Err(DataError::unassigned(document, format!("{found} numbers, need {need}")))
            }
            Some(given) if given.iter().any(|x| !x.is_finite()) => {
                let problem = format!("a number that is not finite, need {need}");
                Err(DataError::unassigned(document, problem))
            }
            Some(given) => Ok(given.clone()),
        }
    }

    /// The vector of a document, scaled to length 1.
    ///
    /// # Errors
    /// [`DataError::Unassigned`] if the embedding is missing, of another length or not finite.
    pub(super) fn of(self, document: &Document) -> Result<Vec<f32>> {
        let mut vector = self.raw(document)?;
        to_unit_length(&mut vector);
        Ok(vector)
    }
}

/// Scales to length 1; what has no length stays.
pub(super) fn to_unit_length(vector: &mut [f32]) {
    let length = vector.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}

impl TextFeatures {
    fn counts(self, text: &str) -> Vec<f32> {
        let head = head(text);
        let words = ngrams::words(head);
        let mut vector = vec![0.0_f32; self.dim];
        for len in 1..=self.max_words {
            for hash in ngrams::runs(&words, len) {
                // The place from the low bits, the sign from the highest one.
                let place = (hash % self.dim as u64) as usize;
                vector[place] += if hash >> 63 == 0 { 1.0 } else { -1.0 };
            }
        }
        vector.iter_mut().for_each(|x| *x = x.signum() * x.abs().ln_1p());
        vector
    }
}

/// The part of a text that features are taken of.
pub(super) fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(FEATURE_BYTES)]
}
