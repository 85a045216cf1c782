//! A tokenizer of 128,256 tokens in the form of Llama 3's, and others that call things otherwise.

use std::sync::OnceLock;

use fulmar_data::{Build, DocumentMarks, MarkNames, Store, Tokenizer};
use serde_json::{Value, json};

use crate::{
    fixture::{Folder, Test, line},
    tokenizer::Random,
};

/// Where words end, as Llama 3 has it.
const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The characters that stand for bytes in byte-level BPE, in the order of their tokens.
fn alphabet() -> Vec<char> {
    let shown = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let (shown, hidden): (Vec<u8>, Vec<u8>) = (0..=255_u8).partition(shown);
    let hidden = (0..hidden.len()).filter_map(|place| char::from_u32(256 + place as u32));
    shown.into_iter().map(char::from).chain(hidden).collect()
}

/// 128,000 tokens, of which all but the bytes are pairs of bytes or a byte more than that; and 256
/// special ones.
fn llama_json() -> &'static Value {
    static JSON: OnceLock<Value> = OnceLock::new();
    JSON.get_or_init(|| {
        let bytes = alphabet();
        let (mut vocab, mut merges) = (serde_json::Map::new(), Vec::new());
        let mut names: Vec<String> = bytes.iter().map(|byte| byte.to_string()).collect();
        let pairs = bytes.iter().flat_map(|a| bytes.iter().map(move |b| (a.to_string(), *b)));
        let first = pairs.clone().map(|(a, b)| (format!("{a}{b}"), 'e'));
        for (left, right) in pairs.chain(first).chain([("th".to_owned(), 'a')]) {
            let merged = format!("{left}{right}");
            if names.len() < 128_000 {
                merges.push(json!([left, right.to_string()]));
                names.push(merged);
            }
        }
        for left in bytes.iter().flat_map(|a| bytes.iter().map(move |b| format!("{a}{b}"))) {
            if names.len() < 128_000 {
                merges.push(json!([left, "a"]));
                names.push(format!("{left}a"));
            }
        }
        for (id, name) in names.into_iter().enumerate() {
            vocab.insert(name, id.into());
        }
        let reserved = (0..254).map(|n| format!("<|reserved_special_token_{n}|>"));
        let special = ["<|begin_of_text|>".to_owned(), "<|end_of_text|>".to_owned()];
        let added = special.into_iter().chain(reserved).enumerate().map(|(place, content)| {
            json!({"id": 128_000 + place, "content": content, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false, "special": true})
        });
        let split = json!({"type": "Split", "pattern": {"Regex": PATTERN},
            "behavior": "Isolated", "invert": false});
        let byte_level = |regex| json!({"type": "ByteLevel", "add_prefix_space": false,
            "trim_offsets": true, "use_regex": regex});
        json!({
            "version": "1.0",
            // As files are saved that were once used with these set.
            "truncation": {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0},
            "padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
                "pad_id": 128_001, "pad_type_id": 0, "pad_token": "<|end_of_text|>"},
            "added_tokens": added.collect::<Vec<_>>(),
            "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level(false)]},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>",
                    "ids": [128_000], "tokens": ["<|begin_of_text|>"]}}},
            "decoder": byte_level(true),
            "model": {"type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
                "byte_fallback": false, "ignore_merges": true, "vocab": vocab, "merges": merges}
        })
    })
}

fn llama() -> Tokenizer {
    let json = llama_json().to_string();
    Tokenizer::from_bytes("llama.json", json.as_bytes()).expect("a tokenizer")
}

#[test]
fn a_vocabulary_of_128_256_tokens_is_stored_and_read_with_marks_by_id() -> Test {
    let folder = Folder::new();
    let tokenizer = llama();
    assert_eq!(tokenizer.vocab_size(), 128_256);
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (128_000, 128_001));
    let text = "The the tea, <|end_of_text|><|reserved_special_token_5|> 1234 日本語\r\n\r\n  \
        there's the end:\n <|begin_of_text|> and é.";
    let source = folder.source("x.jsonl", line("a", text, "d", 1));
    let build = Build::new(vec![source], &tokenizer, DocumentMarks::default());
    let store = build.run(folder.path("store"))?.store;
    let mut tokens = Vec::new();
    store.cells()[0].read_tokens(0..store.cells()[0].num_tokens(), &mut tokens);
    assert_eq!((tokens[0], tokens[tokens.len() - 1]), (128_000, 128_001));
    let inside = &tokens[1..tokens.len() - 1];
    assert!(inside.iter().all(|id| *id < 128_000), "{inside:?}");
    assert!(inside.iter().any(|id| *id > 65_536) && inside.len() > 16, "{inside:?}");
    assert_eq!(tokenizer.decode(&tokens)?, text);
    // The store brings its tokenizer along.
    let store = Store::open(folder.path("store"))?;
    let own = store.tokenizer()?;
    assert_eq!((own.digest(), own.bos_id()), (tokenizer.digest(), 128_000));
    assert_eq!(own.decode(&tokens)?, text);
    Ok(())
}

#[test]
fn an_id_beyond_the_models_vocabulary_names_the_document() {
    let folder = Folder::new();
    let tokenizer = llama();
    let jsonl = line("fine", "a", "d", 1) + &line("culprit", "the", "d", 1);
    let source = folder.source("x.jsonl", jsonl);
    let marks = DocumentMarks { bos: false, eos: false };
    let build = Build::new(vec![source], &tokenizer, marks).vocab_size(60_000);
    let error = build.run(folder.path("store")).expect_err("`the` is a later token");
    let id = tokenizer.encode("the").expect("tokens")[0];
    let said = format!("document `culprit`: token id {id} is outside the vocabulary of 60000");
    assert!(error.to_string().contains(&said), "{error}");
    assert!(!folder.path("store").exists() && !folder.path(".store.partial").exists());
}

/// Words split at spaces; the marks `<s>` and `</s>`, the second of which the file does not call
/// special.
fn word_level() -> Value {
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": special})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<s>", true), added(1, "</s>", false)],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "?",
            "vocab": {"<s>": 0, "</s>": 1, "?": 2, "good": 3, "day": 4}}
    })
}

#[test]
fn marks_have_the_names_that_the_recipe_gives_and_are_refused_inside_a_text() -> Test {
    let folder = Folder::new();
    let json = word_level().to_string();
    let error = Tokenizer::from_bytes("words.json", json.as_bytes()).expect_err("other names");
    assert!(error.to_string().contains("no token `<|begin_of_text|>`"), "{error}");
    let names = MarkNames { bos: "<s>".to_owned(), eos: "</s>".to_owned() };
    let tokenizer = Tokenizer::from_bytes_with("words.json", json.as_bytes(), &names)?;
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.vocab_size()), (0, 1, 5));
    let marks = DocumentMarks::default();
    assert_eq!(tokenizer.encode_document("good day", marks)?, [0, 3, 4, 1]);
    let run = |name: &str, text: &str| {
        let source = folder.source("x.jsonl", line("letter", text, "d", 1));
        Build::new(vec![source], &tokenizer, marks).run(folder.path(name))
    };
    let store = run("store", "good <s> day")?.store;
    assert_eq!(store.tokenizer()?.eos_id(), 1);
    let error = run("other", "good </s> day").expect_err("a mark in the text");
    assert!(error.to_string().contains("document `letter`: its text holds token 1"), "{error}");
    Ok(())
}

#[test]
fn a_tokenizer_that_draws_lots_is_refused() {
    let mut json = llama_json().clone();
    json["model"]["dropout"] = 0.1.into();
    let error = Tokenizer::from_bytes("llama.json", json.to_string().as_bytes());
    let error = error.expect_err("dropout").to_string();
    assert!(error.contains("`llama.json`: `model.dropout` is above 0"), "{error}");
}

#[test]
fn byte_level_bpe_is_trained_with_as_many_tokens_as_asked() -> Test {
    // Words of nine letters by chance, so that every pair occurs and hardly a word twice.
    let mut random = Random(5);
    let mut letter = || char::from(b"abcdefghijklmnopqrstuvwxyzABCDEF"[random.below(32) as usize]);
    let mut word = || -> String { (0..9).map(|_| letter()).collect() };
    let text: String = (0..40_000).map(|_| word() + " ").collect();
    for vocab_size in [4_096, 131_072] {
        let tokenizer = Tokenizer::train_bpe([Ok(&text)], vocab_size)?;
        assert_eq!(tokenizer.vocab_size() as usize, vocab_size);
        let sample = &text[..4_000];
        assert_eq!(tokenizer.decode(&tokenizer.encode(sample)?)?, sample);
    }
    Ok(())
}
