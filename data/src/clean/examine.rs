//! What is asked of each document on its own: pure functions, in parallel.

use rayon::prelude::*;

use super::evaluation::{Contamination, EvaluationTexts};
use super::signature::Signer;
use crate::{DataError, Document, Result};

/// Text that is read before it is worked on, at least one document.
const BATCH_BYTES: usize = 8 << 20;

/// A document's text as 128 bits of BLAKE3, and what it shares with evaluation texts.
pub(super) struct Examined {
    pub(super) text: u128,
    pub(super) contamination: Option<Contamination>,
}

/// Examines documents in their order.
pub(super) fn examine(
    documents: &[Document],
    evaluation: Option<&EvaluationTexts>,
) -> Vec<Examined> {
    let one = |document: &Document| Examined {
        text: digest(&document.text),
        contamination: evaluation.and_then(|texts| texts.find(&document.text)),
    };
    documents.par_iter().map(one).collect()
}

/// Signatures of some of the documents, in order.
pub(super) fn sign(
    documents: &[Document],
    chosen: &[usize],
    signer: &Signer,
) -> Vec<Option<Box<[u16]>>> {
    chosen.par_iter().map(|&index| signer.sign(&documents[index].text)).collect()
}

fn digest(text: &str) -> u128 {
    let hash = blake3::hash(text.as_bytes());
    hash.as_bytes()[..16].iter().fold(0, |digest, byte| digest << 8 | u128::from(*byte))
}

/// The next documents, and the error that ended them.
pub(super) fn read_batch(
    documents: &mut dyn Iterator<Item = Result<Document>>,
) -> (Vec<Document>, Option<DataError>) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        match documents.next() {
            Some(Ok(document)) => {
                bytes += document.text.len();
                batch.push(document);
            }
            Some(Err(error)) => return (batch, Some(error)),
            None => break,
        }
    }
    (batch, None)
}
