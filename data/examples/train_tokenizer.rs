//! Trains the tokenizer that ships with the corpus.
//!
//! ```text
//! cargo run --release -p fulmar-data --example train_tokenizer -- 4096 tokenizer-4096.json
//! ```

use std::{env, error::Error, fs};

use fulmar_data::{DocumentReader, Tokenizer, corpus};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(vocab_size), Some(path)) = (args.next(), args.next()) else {
        return Err("usage: train_tokenizer VOCAB_SIZE FILE".into());
    };
    let documents = DocumentReader::open(&corpus::train())?;
    let texts = documents.map(|document| document.map(|document| document.text));
    let tokenizer = Tokenizer::train_bpe(texts, vocab_size.parse()?)?;
    fs::write(path, tokenizer.json())?;
    Ok(())
}
