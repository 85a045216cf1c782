//! Where a text can be cut without a change in its tokens.
//!
//! Two kinds of places, for tokenizers that cut words by one of the patterns below and never join
//! what was cut:
//!
//! - in front of a space between two ASCII letters. No word of these patterns goes on behind a letter
//!   with a space, and the space begins a word with the letter behind it;
//! - behind a line feed between a character that is no white space and an ASCII letter or an
//!   ideograph. The line feed ends a word there: that of itself, or in the later patterns that of the
//!   punctuation before it. The look-ahead of `\s+(?!\S)` gives the same at the end of a piece, where
//!   nothing follows, since the line feed is alone.
//!
//! Nothing in the patterns looks back, so that what follows is cut as it would have been.

use serde_json::Value;

/// GPT-4's way to find words, as in Llama 3; the others differ in how many digits make one.
const WORDS: [&str; 3] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
];

/// Whether texts may be cut at these places for a tokenizer: one without normalizer, without tokens
/// that are found in text before words are, and with one of the patterns.
pub(crate) fn are_safe(tokenizer: &tokenizers::Tokenizer) -> bool {
    let finds_tokens = tokenizer.get_added_tokens_decoder().values().any(|token| !token.special);
    let pre_tokenizer = serde_json::to_value(tokenizer.get_pre_tokenizer()).unwrap_or_default();
    tokenizer.get_normalizer().is_none() && !finds_tokens && cuts_words(&pre_tokenizer)
}

/// Whether a pre-tokenizer is byte-level with the words of GPT-2, which are its own, or behind a
/// split by one of the patterns.
fn cuts_words(pre_tokenizer: &Value) -> bool {
    let byte_level = |step: &Value, regex| {
        step["type"] == "ByteLevel"
            && step["add_prefix_space"] == false
            && step["use_regex"] == Value::Bool(regex)
    };
    let split = |step: &Value| {
        step["type"] == "Split"
            && step["behavior"] == "Isolated"
            && step["invert"] == false
            && step["pattern"]["Regex"].as_str().is_some_and(|regex| WORDS.contains(&regex))
    };
    match pre_tokenizer["pretokenizers"].as_array().map(Vec::as_slice) {
        Some([first, second]) => split(first) && byte_level(second, false),
        _ => byte_level(pre_tokenizer, true),
    }
}

/// The pieces of a text: each ends at the first place to cut behind `bytes` bytes.
pub(crate) fn of(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match place_behind(text, bytes) {
            Some(at) => {
                rest = Some(&text[at..]);
                Some(&text[..at])
            }
            None => rest.take(),
        }
    })
}

/// The first place at or behind `bytes` where a text may be cut; not its ends.
fn place_behind(text: &str, bytes: usize) -> Option<usize> {
    let all = text.as_bytes();
    (bytes.max(2)..all.len()).find(|&at| {
        let (before, here) = (all[at - 1], all[at]);
        if here == b' ' {
            let behind = all.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
            return before.is_ascii_alphabetic() && behind;
        }
        // A line feed is a whole character, so that `at` is a border of characters.
        before == b'\n' && {
            let first = text[at..].chars().next();
            let begins_word =
                |c: char| c.is_ascii_alphabetic() || ('\u{4e00}'..='\u{9fff}').contains(&c);
            let last = text[..at - 1].chars().next_back();
            first.is_some_and(begins_word) && last.is_some_and(|c| !c.is_whitespace())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokenizer;

    #[test]
    fn cut_texts_have_the_tokens_of_whole_ones() {
        // What the patterns distinguish, in every order of five.
        let pieces = [
            "a", "Word", " ", "  ", "\n", "\r\n", "\t", ".", "'s", "1234", "中", "é", "\u{301}",
            "\u{a0}",
        ];
        let tokenizer = tokenizers::Tokenizer::from_bytes(crate::corpus::TOKENIZER_JSON)
            .expect("the shipped tokenizer");
        let mut others = vec![tokenizer.clone()];
        for words in WORDS {
            let mut json = serde_json::to_value(&tokenizer).expect("a tokenizer as JSON");
            json["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            ]});
            let other = serde_json::from_value(json).expect("another tokenizer");
            others.push(other);
        }
        let mut cuts = 0;
        for (which, tokenizer) in others.iter().enumerate() {
            assert!(are_safe(tokenizer), "{which}");
            let ids =
                |text: &str| tokenizer.encode_fast(text, false).expect("tokens").get_ids().to_vec();
            let count = pieces.len();
            for order in (which..count.pow(5)).step_by(17) {
                let text: String =
                    (0..5).map(|place| pieces[order / count.pow(place) % count]).collect();
                let cut: Vec<&str> = of(&text, 0).collect();
                assert_eq!(cut.concat(), text);
                cuts += cut.len() - 1;
                let together: Vec<u32> = cut.iter().flat_map(|piece| ids(piece)).collect();
                assert_eq!(together, ids(&text), "{text:?} as {cut:?}");
            }
        }
        assert!(cuts > 3_000, "{cuts}");
    }

    #[test]
    fn other_tokenizers_are_given_whole_texts() {
        let json: Value =
            serde_json::from_slice(crate::corpus::TOKENIZER_JSON).expect("the shipped tokenizer");
        let with = |field: &str, value: Value| {
            let mut json = json.clone();
            json[field] = value;
            let tokenizer = serde_json::from_value(json).expect("a tokenizer");
            are_safe(&tokenizer)
        };
        assert!(with("version", "1.0".into()));
        assert!(!with("normalizer", serde_json::json!({"type": "NFKC"})));
        assert!(!with("pre_tokenizer", serde_json::json!({"type": "Whitespace"})));
        assert!(!with("pre_tokenizer", Value::Null));
        let token = serde_json::json!({"id": 0, "content": "<|begin_of_text|>", "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false, "special": false});
        assert!(!with("added_tokens", serde_json::json!([token])));
    }

    #[test]
    fn a_long_text_is_encoded_in_pieces_as_it_is_whole() {
        let tokenizer = Tokenizer::shipped().expect("the shipped tokenizer");
        let text =
            "All the world's a stage,\nAnd all the men  and women merely players; ".repeat(9_000);
        let whole = tokenizers::Tokenizer::from_bytes(crate::corpus::TOKENIZER_JSON)
            .and_then(|library| library.encode_fast(text.as_str(), false))
            .expect("tokens");
        assert!(tokenizer.encode(&text).expect("tokens") == whole.get_ids());
    }
}
