//! Which words make a cluster what it is, for a person to read.

use std::collections::{BTreeMap, HashSet};

use crate::ngrams;

/// Bytes of a text that words are taken of.
const HEAD_BYTES: usize = 4 << 10;

/// Words that are shown of a cluster.
const NUM_WORDS: usize = 12;

/// The distinct words of the beginning of a text, in lower case.
pub(super) fn of(text: &str) -> Vec<String> {
    let head = &text[..text.floor_char_boundary(HEAD_BYTES)];
    let mut words = HashSet::new();
    ngrams::each_word(head, |_, range| {
        words.insert(head[range].to_lowercase());
    });
    let mut words: Vec<String> = words.into_iter().collect();
    words.sort_unstable();
    words
}

/// For each cluster the words that its documents have more often than all have.
///
/// Of a word that n of the cluster's N documents hold, and a share p of all: n ln(n / (N p)), the
/// word's part in the log-likelihood ratio (Dunning 1993).
pub(super) fn telling(
    documents: &[&[String]],
    clusters: &[usize],
    num_clusters: usize,
) -> Vec<Vec<String>> {
    let mut sizes = vec![0_u64; num_clusters];
    let mut counts: BTreeMap<&str, BTreeMap<usize, u64>> = BTreeMap::new();
    for (words, &cluster) in documents.iter().zip(clusters) {
        sizes[cluster] += 1;
        for word in *words {
            *counts.entry(word).or_default().entry(cluster).or_default() += 1;
        }
    }
    let mut scored: Vec<Vec<(f64, &str)>> = vec![Vec::new(); num_clusters];
    for (word, by_cluster) in counts {
        let share = by_cluster.values().sum::<u64>() as f64 / documents.len() as f64;
        for (cluster, count) in by_cluster {
            let (count, size) = (count as f64, sizes[cluster] as f64);
            // What a single document holds says nothing about the cluster, unless that is all of it.
            let score = count * (count / (size * share)).ln();
            if score > 0.0 && (count > 1.0 || size == 1.0) {
                scored[cluster].push((score, word));
            }
        }
    }
    let best = |mut words: Vec<(f64, &str)>| {
        words.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        words.into_iter().take(NUM_WORDS).map(|(_, word)| word.to_owned()).collect()
    };
    scored.into_iter().map(best).collect()
}
