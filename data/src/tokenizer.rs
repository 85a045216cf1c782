//! Text to token ids and back: byte-level byte-pair encoding with two document marks.

use std::path::Path;

use tokenizers::{
    AddedToken, Tokenizer as HfTokenizer, TokenizerBuilder,
    models::{
        ModelWrapper, TrainerWrapper,
        bpe::{BPE, BpeTrainer},
    },
    pre_tokenizers::byte_level::ByteLevel,
};

use crate::{
    BEGIN_OF_TEXT, DataError, DocumentMarks, END_OF_TEXT, MarkNames, Result, corpus, pieces,
};

/// Bytes of text that the library is given at once, where it can be: of a longer text the first place
/// behind them where it may be cut ends a piece.
const PIECE_BYTES: usize = 1 << 18;

/// 256 bytes and the two marks.
const MIN_VOCAB_SIZE: usize = 258;

/// A tokenizer in the format of the Hugging Face `tokenizers` library.
///
/// The two document marks are known by id and never found in text: a document that contains the
/// words `<|end_of_text|>` is encoded as ordinary tokens. So are all tokens that the file calls
/// special. Truncation, padding and marks that the file would add by itself are not applied: a
/// text is encoded whole.
///
/// ```
/// let tokenizer = fulmar_data::Tokenizer::shipped()?;
/// let ids = tokenizer.encode("To be, or not to be")?;
/// assert_eq!(tokenizer.decode(&ids)?, "To be, or not to be");
/// # Ok::<(), fulmar_data::DataError>(())
/// ```
#[derive(Clone)]
pub struct Tokenizer {
    inner: HfTokenizer,
    json: String,
    digest: String,
    bos_id: u32,
    eos_id: u32,
    vocab_size: u32,
    /// Whether long texts may be encoded in pieces.
    in_pieces: bool,
}

impl Tokenizer {
    /// The tokenizer of the shipped corpus: 4,096 tokens.
    ///
    /// # Errors
    /// None with an unaltered crate.
    pub fn shipped() -> Result<Self> {
        Self::from_bytes("tokenizer-4096.json", corpus::TOKENIZER_JSON)
    }

    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Tokenizer`] when it is not a tokenizer,
    /// [`DataError::MissingSpecialToken`] when it lacks [`BEGIN_OF_TEXT`] or [`END_OF_TEXT`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_file_with(path, &MarkNames::default())
    }

    /// As [`Tokenizer::from_file`], of a tokenizer that calls its marks otherwise.
    ///
    /// # Errors
    /// As [`Tokenizer::from_file`].
    pub fn from_file_with(path: impl AsRef<Path>, marks: &MarkNames) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(DataError::io("read tokenizer", path))?;
        Self::from_bytes_with(&path.display().to_string(), &bytes, marks)
    }

    /// Reads the contents of a `tokenizer.json`; `name` is for messages.
    ///
    /// # Errors
    /// As [`Tokenizer::from_file`].
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self> {
        Self::from_bytes_with(name, bytes, &MarkNames::default())
    }

    /// As [`Tokenizer::from_bytes`], of a tokenizer that calls its marks otherwise.
    ///
    /// # Errors
    /// As [`Tokenizer::from_file`].
    pub fn from_bytes_with(name: &str, bytes: &[u8], marks: &MarkNames) -> Result<Self> {
        Self::named(name, parse(name, bytes)?, marks)
    }

    /// As [`Tokenizer::from_bytes`], with marks known by their ids.
    pub(crate) fn with_mark_ids(name: &str, bytes: &[u8], bos: u32, eos: u32) -> Result<Self> {
        Self::new(name, parse(name, bytes)?, bos, eos)
    }

    /// Trains byte-level BPE on the texts of some documents.
    ///
    /// The initial alphabet is all 256 bytes, so that any UTF-8 text round-trips. The result is a
    /// function of the multiset of texts: equal counts are decided by token id.
    ///
    /// # Errors
    /// [`DataError::VocabSize`] below 258, the first error of `texts`, or
    /// [`DataError::Tokenizer`].
    pub fn train_bpe<I, S>(texts: I, vocab_size: usize) -> Result<Self>
    where
        I: IntoIterator<Item = Result<S>>,
        I::IntoIter: Send,
        S: AsRef<str> + Send,
    {
        if vocab_size < MIN_VOCAB_SIZE {
            return Err(DataError::VocabSize { found: vocab_size, needed: MIN_VOCAB_SIZE });
        }
        let byte_level = || ByteLevel::default().add_prefix_space(false);
        let untrained = TokenizerBuilder::new()
            .with_model(BPE::default())
            .with_normalizer(None::<tokenizers::NormalizerWrapper>)
            .with_pre_tokenizer(Some(byte_level()))
            .with_post_processor(None::<tokenizers::PostProcessorWrapper>)
            .with_decoder(Some(byte_level()))
            .build();
        let mut inner = HfTokenizer::from(untrained.map_err(refused("build BPE"))?);
        let mut trainer = TrainerWrapper::BpeTrainer(
            BpeTrainer::builder()
                .vocab_size(vocab_size)
                .show_progress(false)
                .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
                .special_tokens(
                    [BEGIN_OF_TEXT, END_OF_TEXT].map(|mark| AddedToken::from(mark, true)).into(),
                )
                .build(),
        );
        // The library takes texts, not results: an error ends the texts and is returned here.
        let mut error = None;
        let good = texts.into_iter().map_while(|text| text.map_err(|e| error = Some(e)).ok());
        let trained = inner.train(&mut trainer, good).map(|_| ());
        if let Some(error) = error {
            return Err(error);
        }
        trained.map_err(refused("train BPE"))?;
        Self::named("trained BPE", inner, &MarkNames::default())
    }

    fn named(name: &str, inner: HfTokenizer, marks: &MarkNames) -> Result<Self> {
        let id_of = |token: &str| {
            inner.token_to_id(token).ok_or_else(|| DataError::MissingSpecialToken {
                file: name.to_owned(),
                token: token.to_owned(),
            })
        };
        let (bos_id, eos_id) = (id_of(&marks.bos)?, id_of(&marks.eos)?);
        Self::new(name, inner, bos_id, eos_id)
    }

    fn new(name: &str, mut inner: HfTokenizer, bos_id: u32, eos_id: u32) -> Result<Self> {
        if let ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some_and(|dropout| dropout > 0.0)
        {
            return Err(DataError::TokenizerDropout { file: name.to_owned() });
        }
        // Not the number of tokens: a vocabulary may have gaps.
        let vocab_size = inner.get_vocab(true).into_values().max().map_or(0, |id| id + 1);
        inner.with_truncation(None).map_err(refused("leave out truncation"))?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(true);
        let json = inner.to_string(true).map_err(refused("write it as JSON"))?;
        let digest = blake3::hash(json.as_bytes()).to_hex().to_string();
        let in_pieces = pieces::are_safe(&inner);
        Ok(Self { inner, json, digest, bos_id, eos_id, vocab_size, in_pieces })
    }

    /// Token ids of a text, without document marks.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`] when the tokenizer has no token for a part of the text; byte-level
    /// tokenizers always have one.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.encode_into(text, &mut ids)?;
        Ok(ids)
    }

    /// Appends the token ids of a text. The library takes some 100 bytes for a byte of text: a long
    /// text goes through it in pieces, where that changes no id.
    fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let piece_bytes = if self.in_pieces { PIECE_BYTES } else { usize::MAX };
        for piece in pieces::of(text, piece_bytes) {
            // `encode_fast` leaves out character offsets, which nobody reads here.
            let encoding =
                self.inner.encode_fast(piece, false).map_err(refused("encode a text"))?;
            ids.extend_from_slice(encoding.get_ids());
        }
        Ok(())
    }

    /// Token ids of a document with its marks.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_document(&self, text: &str, marks: DocumentMarks) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        ids.extend(marks.bos.then_some(self.bos_id));
        self.encode_into(text, &mut ids)?;
        ids.extend(marks.eos.then_some(self.eos_id));
        Ok(ids)
    }

    /// The text of some ids; document marks are left out. Bytes that are no UTF-8, as in half a
    /// character, become U+FFFD.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`] from the tokenizer's decoder.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(refused("decode ids"))
    }

    /// One more than the largest token id.
    pub fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    /// Id of the mark before a text.
    pub fn bos_id(&self) -> u32 {
        self.bos_id
    }

    /// Id of the mark behind a text.
    pub fn eos_id(&self) -> u32 {
        self.eos_id
    }

    /// BLAKE3 of [`Tokenizer::json`], in hex: equal for equal tokenizers however they were loaded.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The canonical `tokenizer.json`.
    pub fn json(&self) -> &str {
        &self.json
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

fn parse(name: &str, bytes: &[u8]) -> Result<HfTokenizer> {
    HfTokenizer::from_bytes(bytes).map_err(refused(format!("read `{name}` as one")))
}

fn refused(
    action: impl Into<String>,
) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> DataError {
    let action = action.into();
    move |source| DataError::Tokenizer { action, source }
}
