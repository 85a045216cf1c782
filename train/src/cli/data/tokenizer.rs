//! `train data tokenizer`.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::Tokenizer;

use super::files::Files;
use crate::error::TrainError;
use crate::plan::grouped;

/// Flags of `data tokenizer`.
#[derive(Debug, Args)]
pub struct TokenizerArgs {
    /// What is learned from.
    #[command(flatten)]
    pub files: Files,
    /// Tokens of the vocabulary, with 256 bytes and two marks.
    #[arg(long, value_name = "N", default_value_t = 32_768)]
    pub vocab_size: usize,
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "tokenizer.json")]
    pub out: PathBuf,
    /// Learn from every Nth document; words must fit in memory.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub every: usize,
}

impl TokenizerArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        if self.out.exists() {
            return Err(TrainError::config(
                "--out",
                self.out.display(),
                "a file that is not there",
            ));
        }
        let reading = self.files.open()?;
        let documents = reading.documents();
        let mut place = 0;
        let chosen = documents.filter(|document| {
            place += 1;
            document.is_err() || (place - 1) % self.every.max(1) == 0
        });
        let (mut count, mut bytes) = (0_u64, 0);
        let texts = chosen.map(|document| {
            let document = document?;
            count += 1;
            bytes += document.text.len() as u64;
            Ok(document.text)
        });
        let tokenizer = Tokenizer::train_bpe(texts, self.vocab_size)?;
        std::fs::write(&self.out, tokenizer.json())
            .map_err(TrainError::io("write tokenizer", &self.out))?;
        let (tokens, asked) = (u64::from(tokenizer.vocab_size()), self.vocab_size as u64);
        let (tokens_said, out) = (grouped(tokens), self.out.display());
        println!("{out}: {tokens_said} tokens of {} documents, {bytes} bytes", grouped(count));
        reading.say_left_out();
        if tokens < asked {
            println!("the text has no pairs left for {}; give it more text", grouped(asked));
        }
        Ok(())
    }
}
