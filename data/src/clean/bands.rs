//! Candidates by equal bands, and what becomes of them.

use std::collections::HashMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::groups::Groups;
use super::settings::FuzzySettings;
use super::signature::similarity;
use crate::shuffle::mix;

/// Earlier documents of a bucket that a document is compared with. A bucket with more unlike ones (a
/// boilerplate that fills a band) would cost their square; documents that meet this limit are
/// counted.
const MAX_COMPARED: usize = 256;

/// What the comparison of candidates came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparisons {
    /// Pairs whose signatures were compared.
    pub compared: u64,
    /// Pairs at or above the threshold, each of which made one group of two.
    pub joined: u64,
    /// Times that a document was not compared with every unlike one that shares a band with it.
    pub limited: u64,
}

/// Groups of near duplicates: the transitive closure of all pairs that share a band and whose
/// estimated similarity reaches the threshold.
///
/// One band at a time: its keys are sorted, and each run of equal keys is a bucket. So only one band
/// is in memory, and no order of a hash table or of threads can matter.
pub(super) fn near_duplicates(
    signatures: &[Option<Box<[u16]>>],
    settings: &FuzzySettings,
) -> (Groups, Comparisons) {
    let mut groups = Groups::new(signatures.len());
    let mut comparisons = Comparisons::default();
    for band in 0..settings.num_bands {
        let rows = band * settings.band_rows..(band + 1) * settings.band_rows;
        let key = |(index, signature): (usize, &Option<Box<[u16]>>)| {
            let band = &signature.as_deref()?[rows.clone()];
            Some((band.iter().fold(0, |key, &row| mix(key ^ u64::from(row))), index as u32))
        };
        let mut keys: Vec<(u64, u32)> = signatures.par_iter().enumerate().filter_map(key).collect();
        keys.par_sort_unstable();
        for keys in keys.chunk_by(|a, b| a.0 == b.0).filter(|keys| keys.len() > 1) {
            let threshold = settings.threshold;
            let mut bucket = Bucket::new(signatures, threshold, &mut groups, &mut comparisons);
            keys.iter().for_each(|&(_, document)| bucket.add(document));
        }
    }
    (groups, comparisons)
}

/// Documents that share a band, by the groups that they are in.
struct Bucket<'a> {
    signatures: &'a [Option<Box<[u16]>>],
    threshold: f64,
    groups: &'a mut Groups,
    comparisons: &'a mut Comparisons,
    /// The documents of each group; empty once it is part of another.
    members: Vec<Vec<u32>>,
    /// Where in `members` a group is, by its first document.
    places: HashMap<u32, usize>,
}

impl<'a> Bucket<'a> {
    fn new(
        signatures: &'a [Option<Box<[u16]>>],
        threshold: f64,
        groups: &'a mut Groups,
        comparisons: &'a mut Comparisons,
    ) -> Self {
        let (members, places) = (Vec::new(), HashMap::new());
        Self { signatures, threshold, groups, comparisons, members, places }
    }

    /// Adds a document: it joins every group that holds a document like it. Groups are passed over
    /// whole once that is known, so that thousands of like documents cost no more than their number.
    fn add(&mut self, document: u32) {
        let mut own = self.places.get(&self.groups.first(document)).copied();
        let mut left = MAX_COMPARED;
        for place in 0..self.members.len() {
            if own == Some(place) || !self.holds_like(place, document, &mut left) {
                continue;
            }
            self.groups.join(self.members[place][0], document);
            self.comparisons.joined += 1;
            own = Some(match own {
                None => place,
                Some(own) => self.unite(own, place),
            });
        }
        if left == 0 {
            self.comparisons.limited += 1;
        }
        let place = own.unwrap_or_else(|| {
            self.members.push(Vec::new());
            self.members.len() - 1
        });
        self.members[place].push(document);
        self.places.insert(self.groups.first(document), place);
    }

    /// Whether a group holds a document like this one, as far as may be compared.
    fn holds_like(&mut self, place: usize, document: u32, left: &mut usize) -> bool {
        let signature = |index: u32| self.signatures[index as usize].as_deref().unwrap_or_default();
        for &member in self.members[place].iter().take(*left) {
            *left -= 1;
            self.comparisons.compared += 1;
            if similarity(signature(member), signature(document)) >= self.threshold {
                return true;
            }
        }
        false
    }

    /// Moves the documents of the later group to the earlier one.
    fn unite(&mut self, a: usize, b: usize) -> usize {
        let moved = std::mem::take(&mut self.members[a.max(b)]);
        self.members[a.min(b)].extend(moved);
        a.min(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signature of two bands: the first as told, the second of its own.
    fn signature(band: u16, own: u32) -> Option<Box<[u16]>> {
        let mixed = mix(u64::from(own));
        let rest = [mixed, mixed >> 16, mixed >> 32, mixed >> 48].map(|bits| bits as u16);
        Some([[band; 4], rest].concat().into_boxed_slice())
    }

    fn settings(threshold: f64) -> FuzzySettings {
        FuzzySettings { num_bands: 2, band_rows: 4, threshold, ..FuzzySettings::default() }
    }

    #[test]
    fn thousands_of_like_documents_cost_their_number() {
        let all: Vec<_> = (0..5_000).map(|i| signature(7, i)).collect();
        let (mut groups, comparisons) = near_duplicates(&all, &settings(0.5));
        assert!((0..5_000).all(|document| groups.first(document) == 0));
        assert_eq!(comparisons, Comparisons { compared: 4_999, joined: 4_999, limited: 0 });
    }

    #[test]
    fn thousands_of_unlike_documents_with_one_band_meet_the_limit() {
        let all: Vec<_> = (0..1_000).map(|i| signature(7, i)).collect();
        let (mut groups, comparisons) = near_duplicates(&all, &settings(0.7));
        assert!((0..1_000).all(|document| groups.first(document) == document));
        // Document 256 is compared with all before it, and has no comparison left.
        let limited = 1_000 - 256;
        let compared = (0..256).sum::<u64>() + limited * 256;
        assert_eq!(comparisons, Comparisons { compared, joined: 0, limited });
    }

    #[test]
    fn a_document_between_two_groups_makes_them_one() {
        let rows = |rows: [u16; 4]| Some([[9; 4], rows].concat().into_boxed_slice());
        // The first two agree in five of eight places, each with the third in six.
        let all = [rows([1, 2, 3, 3]), rows([1, 4, 5, 5]), None, rows([1, 2, 5, 7])];
        let (mut groups, comparisons) = near_duplicates(&all, &settings(0.75));
        let firsts: Vec<u32> = (0..4).map(|document| groups.first(document)).collect();
        assert_eq!(firsts, [0, 0, 2, 0]);
        assert_eq!(comparisons, Comparisons { compared: 3, joined: 2, limited: 0 });
    }
}
