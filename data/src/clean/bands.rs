//! Candidates by equal bands, and what becomes of them.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::groups::Groups;
use super::settings::FuzzySettings;
use super::signature::similarity;
use crate::shuffle::mix;

/// Earlier members of a bucket that a document is compared with, beyond those of its own group. A
/// bucket with more unlike documents (a boilerplate that fills a band) would cost their square; what
/// is not compared is counted.
const MAX_COMPARED: usize = 256;

/// What the comparison of candidates came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparisons {
    /// Pairs whose signatures were compared.
    pub compared: u64,
    /// Pairs at or above the threshold that joined two groups.
    pub joined: u64,
    /// Pairs left out, as a bucket held too many unlike documents.
    pub left_out: u64,
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
        for bucket in keys.chunk_by(|a, b| a.0 == b.0) {
            join_bucket(bucket, signatures, settings.threshold, &mut groups, &mut comparisons);
        }
    }
    (groups, comparisons)
}

fn join_bucket(
    bucket: &[(u64, u32)],
    signatures: &[Option<Box<[u16]>>],
    threshold: f64,
    groups: &mut Groups,
    comparisons: &mut Comparisons,
) {
    let signature = |index: u32| signatures[index as usize].as_deref().unwrap_or_default();
    for (place, &(_, later)) in bucket.iter().enumerate() {
        let mut left = MAX_COMPARED;
        for &(_, earlier) in &bucket[..place] {
            if groups.first(earlier) == groups.first(later) {
                continue;
            }
            if left == 0 {
                comparisons.left_out += 1;
                continue;
            }
            left -= 1;
            comparisons.compared += 1;
            if similarity(signature(earlier), signature(later)) >= threshold {
                groups.join(earlier, later);
                comparisons.joined += 1;
            }
        }
    }
}
