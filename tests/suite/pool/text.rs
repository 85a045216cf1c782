//! Text that nobody wrote: words drawn from a made-up language, so that two documents share a run of
//! words only where one was planted.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Words of the language.
const NUM_WORDS: usize = 20_000;

const ONSETS: [&str; 16] =
    ["b", "br", "c", "d", "dr", "f", "g", "h", "k", "l", "m", "n", "p", "s", "st", "t"];
const VOWELS: [&str; 8] = ["a", "e", "i", "o", "u", "ai", "ea", "ö"];

/// A writer of documents.
pub(super) struct Author {
    words: Vec<String>,
    random: ChaCha8Rng,
    altered: u64,
}

impl Author {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut pick = |of: &[&'static str]| of[random.random_range(0..of.len())];
        let mut word = |syllables| -> String {
            (0..syllables).flat_map(|_| [pick(&ONSETS), pick(&VOWELS)]).collect()
        };
        let words = (0..NUM_WORDS).map(|index| word(1 + index % 4)).collect();
        Self { words, random, altered: 0 }
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    /// So many words. Frequent ones are few, as in every language: of uniform numbers the square.
    pub(super) fn words(&mut self, count: usize) -> Vec<String> {
        let mut word = || {
            let uniform: f64 = self.random.random();
            self.words[(uniform * uniform * NUM_WORDS as f64) as usize].clone()
        };
        (0..count).map(|_| word()).collect()
    }

    /// A document of 150 to 550 words.
    pub(super) fn document(&mut self) -> String {
        let count = 150 + self.below(400);
        sentences(&self.words(count))
    }

    /// The document with one word in 150 altered, never twice alike: nearly the same.
    pub(super) fn altered(&mut self, document: &str) -> String {
        let mut words: Vec<String> = document.split(' ').map(str::to_owned).collect();
        for _ in 0..(words.len() / 150).max(1) {
            let place = self.below(words.len());
            self.altered += 1;
            words[place] = format!("x{}", self.altered);
        }
        words.join(" ")
    }
}

/// Words with full stops and lines, for the look of text.
pub(super) fn sentences(words: &[String]) -> String {
    let mut text = String::new();
    for (place, word) in words.iter().enumerate() {
        text.push_str(word);
        text.push_str(match place {
            _ if place + 1 == words.len() => ".",
            _ if place % 12 == 11 => ". ",
            _ => " ",
        });
    }
    text
}
