use fulmar_data::{BEGIN_OF_TEXT, DataError, DocumentMarks, END_OF_TEXT, Tokenizer};

use crate::fixture::{Folder, Test, chain, corpus};

/// A splitmix64 stream, so that the cases are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[track_caller]
fn assert_round_trips(tokenizer: &Tokenizer, text: &str) {
    let ids = tokenizer.encode(text).expect("any text has tokens");
    assert_eq!(tokenizer.decode(&ids).expect("any ids have a text"), text);
    assert!(ids.iter().all(|id| (2..tokenizer.vocab_size()).contains(id)), "{text:?}: {ids:?}");
}

#[test]
fn any_utf8_round_trips() -> Test {
    let tokenizer = Tokenizer::shipped()?;
    for text in [
        "",
        " ",
        "\0",
        "a\r\nb\r\n\r\n\tc  \u{85}\u{2028}",
        "\u{1}\u{7f}\u{80}\u{9f}\u{a0}\u{ad}",
        "e\u{301} vs é, ﬁ, Å, ｆｕｌｌ",
        "👩‍👩‍👧‍👦🏳️‍🌈 🇫🇷",
        "ȷ ı İ ß ẞ ſ",
        "שלום עולם مرحبا العالم ภาษาไทย 日本語 한국어",
        "\u{feff}\u{fffd}\u{10ffff}\u{e000}",
        "Ġ Ċ ĉ Ń",
        "    indented\n\n\n  more   ",
    ] {
        assert_round_trips(&tokenizer, text);
    }
    let mut random = Random(1);
    for _ in 0..500 {
        let len = random.below(60);
        let mut character = || {
            let range = [0x80, 0x250, 0x3000, 0x11_0000][random.below(4) as usize];
            char::from_u32(random.below(range) as u32).unwrap_or('\u{fffd}')
        };
        let text: String = (0..len).map(|_| character()).collect();
        assert_round_trips(&tokenizer, &text);
    }
    Ok(())
}

#[test]
fn every_byte_has_a_token_after_training_on_a_few_words() -> Test {
    let tokenizer = Tokenizer::train_bpe([Ok("to be or not to be")], 258)?;
    assert_eq!(tokenizer.vocab_size(), 258);
    for code in (0..=0x10_ffff).step_by(7) {
        if let Some(character) = char::from_u32(code) {
            assert_round_trips(&tokenizer, &character.to_string());
        }
    }
    Ok(())
}

#[test]
fn document_marks_are_known_by_id_and_never_found_in_text() -> Test {
    let tokenizer = Tokenizer::shipped()?;
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (0, 1));
    for mark in [BEGIN_OF_TEXT, END_OF_TEXT] {
        assert_round_trips(&tokenizer, mark);
        assert_round_trips(&tokenizer, &format!("a{mark}b {mark}{mark}\n"));
    }
    // Also when the words were frequent in training.
    let text = format!("{END_OF_TEXT} ").repeat(50);
    let trained = Tokenizer::train_bpe((0..50).map(|_| Ok(&text)), 400)?;
    assert_eq!((trained.bos_id(), trained.eos_id()), (0, 1));
    assert_round_trips(&trained, &text);
    let ids = trained.encode_document(&text, DocumentMarks::default())?;
    assert_eq!((ids[0], ids[ids.len() - 1]), (0, 1));
    Ok(())
}

#[test]
fn training_gives_the_same_bytes_whatever_the_order_and_the_threads() -> Test {
    // Many words of equal counts, so that ties decide nearly every merge.
    let words: Vec<String> = (0..400).map(|i| format!("tie{i} knot{} ", i * 7919 % 400)).collect();
    let train = |texts: Vec<&String>, threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let trained = pool.install(|| Tokenizer::train_bpe(texts.into_iter().map(Ok), 700))?;
        Ok::<_, Box<dyn std::error::Error>>(trained.json().to_owned())
    };
    let first = train(words.iter().collect(), 1)?;
    for _ in 0..3 {
        assert_eq!(train(words.iter().collect(), 4)?, first);
        assert_eq!(train(words.iter().rev().collect(), 4)?, first);
    }
    Ok(())
}

#[test]
fn a_tokenizer_is_the_same_after_a_file() -> Test {
    let folder = Folder::new();
    let trained = Tokenizer::train_bpe(corpus().lines().map(Ok), 500)?;
    std::fs::write(folder.path("tokenizer.json"), trained.json())?;
    let read = Tokenizer::from_file(folder.path("tokenizer.json"))?;
    assert_eq!(read.digest(), trained.digest());
    assert_eq!(read.vocab_size(), 500);
    assert_eq!(read.encode("word7 and 3.")?, trained.encode("word7 and 3.")?);
    assert_ne!(read.digest(), Tokenizer::shipped()?.digest());
    Ok(())
}

#[test]
fn a_bad_tokenizer_file_is_named() {
    let folder = Folder::new();
    let error = Tokenizer::from_file(folder.path("absent.json")).expect_err("no file");
    assert!(chain(&error).contains("absent.json"), "{}", chain(&error));
    let error = Tokenizer::from_bytes("bad.json", b"{}").expect_err("no tokenizer");
    assert!(chain(&error).contains("`bad.json`"), "{}", chain(&error));
    let json = Tokenizer::shipped().expect("the shipped tokenizer").json().to_owned();
    let json = json.replace(END_OF_TEXT, "<|end|>");
    let error = Tokenizer::from_bytes("other.json", json.as_bytes()).expect_err("no end of text");
    assert!(error.to_string().contains("`other.json` has no token `<|end_of_text|>`"), "{error}");
}

#[test]
fn training_needs_258_tokens_and_passes_on_errors_of_its_texts() {
    let error = Tokenizer::train_bpe([Ok("a")], 257).expect_err("too small");
    assert!(error.to_string().contains("`vocab_size` is 257; need at least 258"), "{error}");
    let empty = || DataError::EmptyFile { file: "x".to_owned() };
    let error = Tokenizer::train_bpe([Ok("a"), Err(empty())], 300).expect_err("a bad text");
    assert!(matches!(error, DataError::EmptyFile { .. }));
}
