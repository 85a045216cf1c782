//! The writing end of a build: jobs in their order → account and parts.

use std::{collections::BTreeMap, time::Instant};

use super::{
    Build,
    account::{Account, Finished},
    encoding::{Done, Outcome},
    part::{Part, PartBuffer},
    reading::{Start, Then},
    work::WorkFolder,
};
use crate::{
    NewDocument, Result,
    store::{check_cell, token_bytes},
};

/// Takes jobs in order, and makes parts of them.
pub(super) struct Writing<'a> {
    build: &'a Build<'a>,
    work: &'a WorkFolder,
    parts: &'a mut Vec<Part>,
    account: Account,
    folded_names: BTreeMap<String, String>,
    part: PartBuffer,
    /// Files that had ended when the part began.
    finished_before: usize,
    began: Instant,
}

impl<'a> Writing<'a> {
    /// Goes on behind the parts there are.
    pub(super) fn new(
        build: &'a Build<'a>,
        work: &'a WorkFolder,
        parts: &'a mut Vec<Part>,
    ) -> Result<Self> {
        let (mut account, mut folded_names) = (Account::default(), BTreeMap::new());
        for part in parts.iter() {
            account.finished.extend(&part.finished);
            account.open = part.open;
            for cell in part.cells() {
                check_cell(&cell.key(), "", &mut folded_names)?;
            }
        }
        let finished_before = account.finished.len();
        let (part, began) = (PartBuffer::default(), Instant::now());
        Ok(Self { build, work, parts, account, folded_names, part, finished_before, began })
    }

    /// Where reading goes on.
    pub(super) fn start(&self) -> Start {
        self.account.start()
    }

    /// Writes the last part.
    pub(super) fn finish(mut self) -> Result<Account> {
        self.end_part()?;
        Ok(self.account)
    }

    pub(super) fn take(&mut self, done: Done) -> Result<()> {
        for outcome in done.outcomes {
            self.take_outcome(done.source, outcome?)?;
        }
        match done.then {
            Then::More => {}
            Then::End(read) => {
                self.account.finish(read);
                self.say_end(done.source as usize);
            }
            Then::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn take_outcome(&mut self, source: u32, outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Unread(reject) => {
                self.account.pass();
                self.part.quarantine(&reject);
            }
            Outcome::LeftOut(reject) => {
                self.account.leave_out(reject.reason, reject.raw_bytes);
                self.part.quarantine(&reject);
            }
            Outcome::Kept { id, record, cell, source_bytes, tokens } => {
                check_cell(&cell, &id, &mut self.folded_names)?;
                self.account.keep(tokens.len());
                let tokens = &tokens;
                let document = NewDocument { id: &id, source, record, source_bytes, tokens };
                let width = token_bytes(self.build.tokenizer.vocab_size());
                self.part.append(cell, &document, width);
            }
        }
        if self.part.held_bytes >= self.build.settings.part_bytes {
            self.end_part()?;
        }
        Ok(())
    }

    /// Writes what there is, if there is anything, as a part.
    fn end_part(&mut self) -> Result<()> {
        let nothing = self.part.num_documents == 0
            && self.part.is_without_lines()
            && self.finished_before == self.account.finished.len();
        if nothing {
            return Ok(());
        }
        let number = self.parts.len() as u64;
        let width = token_bytes(self.build.tokenizer.vocab_size());
        let buffer = std::mem::take(&mut self.part);
        let documents = buffer.num_documents;
        let folder = self.work.parts();
        let part = buffer.write(&folder, number, width, &self.account, self.finished_before)?;
        self.finished_before = self.account.finished.len();
        self.parts.push(part);
        tracing::info!(
            part = number,
            documents,
            seconds = self.began.elapsed().as_secs_f32(),
            "part is whole"
        );
        Ok(())
    }

    fn say_end(&self, source: usize) {
        if let Some(Finished { ledger, num_tokens }) = self.account.finished.last() {
            tracing::info!(
                source = self.build.sources[source].name(),
                documents = ledger.documents,
                empty = ledger.empty,
                kept = ledger.kept,
                text_bytes = ledger.text_bytes,
                tokens = num_tokens,
                "tokenised"
            );
        }
    }
}
