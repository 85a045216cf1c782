//! Jobs → documents as tokens in their cells, on every thread.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, Sender},
    },
};

use super::{
    Build,
    budget::Budget,
    reading::{Job, Then},
};
use crate::{CellKey, DataError, Document, Reject, Result, Verdict, read};

/// What became of a job.
pub(super) struct Done {
    pub(super) number: u64,
    pub(super) source: u32,
    pub(super) outcomes: Vec<Result<Outcome>>,
    pub(super) bytes: u64,
    pub(super) then: Then,
}

/// What became of a document.
pub(super) enum Outcome {
    Kept {
        id: String,
        record: u64,
        cell: CellKey,
        source_bytes: u64,
        tokens: Vec<u32>,
    },
    /// By a judge.
    LeftOut(Reject),
    /// By its reader, which counts it.
    Unread(Reject),
}

/// A finished job, or what a thread panicked with.
pub(super) type Message = Result<Done, Box<dyn Any + Send>>;

impl Build<'_> {
    /// Works on jobs until there are no more, or until nobody wants them.
    pub(super) fn encode_jobs(
        &self,
        jobs: &Mutex<Receiver<Job>>,
        budget: &Budget,
        done: &Sender<Message>,
    ) {
        loop {
            // The lock is held while waiting: the others would wait for the same.
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = job else { return };
            if budget.is_stopped() {
                continue;
            }
            // Unwind safety: after a panic the job is gone, and the build ends.
            let message = catch_unwind(AssertUnwindSafe(|| self.encode_job(job)));
            if done.send(message).is_err() {
                return;
            }
        }
    }

    fn encode_job(&self, job: Job) -> Done {
        let Job { number, source, documents, bytes, then } = job;
        let encode = |outcome| match outcome {
            read::Outcome::Document(document) => self.encode(document),
            read::Outcome::Reject(reject) => Ok(Outcome::Unread(reject)),
        };
        let outcomes = documents.into_iter().map(encode).collect();
        Done { number, source, outcomes, bytes, then }
    }

    /// Judges, sorts and tokenises one document: a pure function of it.
    fn encode(&self, document: Document) -> Result<Outcome> {
        let source_bytes = document.text.len() as u64;
        for judge in &self.judges {
            if let Verdict::LeaveOut { reason, evidence } = judge.judge(&document) {
                return Ok(Outcome::LeftOut(Reject::of(&document, reason, evidence)));
            }
        }
        let cell = match &self.assign {
            Some(assign) => assign.cell(&document)?,
            None => document.cell(),
        };
        let tokens = self.tokenizer.encode_document(&document.text, self.marks)?;
        self.check_ids(&document.id, &tokens)?;
        let Document { id, record, .. } = document;
        Ok(Outcome::Kept { id, record, cell, source_bytes, tokens })
    }

    /// Refuses ids beyond the vocabulary of the model, and marks elsewhere than at the ends.
    fn check_ids(&self, document: &str, tokens: &[u32]) -> Result<()> {
        let (bos_id, eos_id) = (self.tokenizer.bos_id(), self.tokenizer.eos_id());
        let text = usize::from(self.marks.bos)..tokens.len() - usize::from(self.marks.eos);
        for &id in &tokens[text] {
            if id == bos_id || id == eos_id {
                return Err(DataError::MarkInText { document: document.to_owned(), id });
            }
        }
        let vocab_size = self.vocab_size;
        match tokens.iter().find(|&&id| id >= vocab_size) {
            Some(&id) => Err(DataError::TokenId { document: document.to_owned(), id, vocab_size }),
            None => Ok(()),
        }
    }
}
