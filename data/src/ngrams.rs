//! A text as numbers: its words or characters, and runs of them.
//!
//! Hashing is our own and fixed for ever: model files and decisions files hold what follows from it.

use crate::shuffle::mix;

/// Start and factor of FNV-1a (Fowler, Noll and Vo), 64 bits.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_FACTOR: u64 = 0x0000_0100_0000_01b3;

/// Base of the rolling polynomial over units, an odd number with its bits well spread.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes of the words of a text, in order.
///
/// A word is a run of letters and digits, in lower case; all between words is left out, so that
/// punctuation, line breaks and white space do not count.
pub(crate) fn words(text: &str) -> Vec<u64> {
    let mut words = Vec::with_capacity(text.len() / 5);
    each_word(text, |hash, _| words.push(hash));
    words
}

/// Calls `found` with the hash and the bytes of each word.
pub(crate) fn each_word(text: &str, mut found: impl FnMut(u64, std::ops::Range<usize>)) {
    let mut open: Option<(usize, u64)> = None;
    for (at, character) in text.char_indices() {
        if character.is_alphanumeric() {
            let (start, hash) = open.unwrap_or((at, FNV_START));
            open = Some((start, feed(hash, character)));
        } else if let Some((start, hash)) = open.take() {
            found(mix(hash), start..at);
        }
    }
    if let Some((start, hash)) = open {
        found(mix(hash), start..text.len());
    }
}

/// Hashes of the characters of a text, in order: lower case, a run of what is neither letter nor
/// digit as one.
pub(crate) fn characters(text: &str) -> Vec<u64> {
    let mut characters = Vec::with_capacity(text.len());
    let mut in_gap = true;
    for character in text.chars() {
        if character.is_alphanumeric() {
            characters.push(mix(feed(FNV_START, character)));
        } else if !in_gap {
            characters.push(mix(FNV_START));
        }
        in_gap = !character.is_alphanumeric();
    }
    if in_gap && !characters.is_empty() {
        characters.pop();
    }
    characters
}

fn feed(hash: u64, character: char) -> u64 {
    let byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(FNV_FACTOR);
    if character.is_ascii() {
        return byte(hash, character.to_ascii_lowercase() as u8);
    }
    let mut buffer = [0; 4];
    character
        .to_lowercase()
        .fold(hash, |hash, lower| lower.encode_utf8(&mut buffer).bytes().fold(hash, byte))
}

/// Hash of a whole string.
pub(crate) fn whole(text: &str) -> u64 {
    let byte = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_FACTOR);
    mix(text.bytes().fold(FNV_START, byte))
}

/// Hashes of every run of `len` units, in order; none if there are fewer units.
///
/// # Panics
/// If `len` is 0.
pub(crate) fn runs(units: &[u64], len: usize) -> impl Iterator<Item = u64> {
    assert!(len > 0, "a run of no units");
    let (first, rest) = units.split_at_checked(len).unwrap_or((&[], &[]));
    let push = |sum: u64, unit: u64| sum.wrapping_mul(BASE).wrapping_add(unit);
    let start = first.iter().fold(0, |sum, &unit| push(sum, unit));
    let highest = (1..len).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let rolled = rest.iter().zip(units).scan(start, move |sum, (&unit, &gone)| {
        *sum = push(sum.wrapping_sub(gone.wrapping_mul(highest)), unit);
        Some(*sum)
    });
    (!first.is_empty()).then_some(start).into_iter().chain(rolled).map(mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_ignore_case_punctuation_and_white_space() {
        let [one, two] = ["To be, or NOT—to be?\r\n", "to  be or not to be"].map(words);
        assert_eq!((one.len(), &one), (6, &two));
        assert_eq!(one[0], one[4]);
        assert_ne!(one[0], one[1]);
        assert_eq!(words("ÜBER"), words("über"));
        assert!(words(" ?! ").is_empty());
        let mut spelt = Vec::new();
        each_word("a, bé 7", |_, at| spelt.push(at));
        assert_eq!(spelt, [0..1, 3..6, 7..8]);
    }

    #[test]
    fn characters_take_a_gap_as_one() {
        assert_eq!(characters("  A--b\n"), characters("a b"));
        assert_eq!(characters("a b").len(), 3);
        assert_ne!(characters("a b"), characters("ab"));
    }

    #[test]
    fn a_run_depends_on_its_units_alone() {
        let units = words("a b c d a b c");
        let all: Vec<u64> = runs(&units, 3).collect();
        assert_eq!(all.len(), 5);
        assert_eq!(all[0], all[4]);
        assert_eq!(all[1], runs(&words("b c d"), 3).next().expect("one run"));
        assert_eq!(runs(&units, 7).count(), 1);
        assert_eq!(runs(&units, 8).count(), 0);
        let mut distinct = all[..4].to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 4, "the order of units counts");
    }

    #[test]
    fn hashes_are_fixed_for_ever() {
        // Pinned when written: model files and decisions files depend on them.
        let units = words("The quality of mercy is not strain'd");
        assert_eq!(units[0], PINNED_WORD);
        assert_eq!(runs(&units, 5).next(), Some(PINNED_RUN));
    }

    const PINNED_WORD: u64 = 10_383_438_331_419_178_197;
    const PINNED_RUN: u64 = 182_414_181_616_728_851;
}
