//! Comparisons that show where two arrays part.

/// Fails unless `found` differs from `expected` by at most `tolerance` times the largest entry of
/// `expected`.
///
/// # Panics
/// With name, index, found and expected of the entry that differs most.
pub fn assert_close(name: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    let scale = expected.iter().fold(0.0f32, |max, v| max.max(v.abs())).max(f32::MIN_POSITIVE);
    assert_within(name, found, expected, tolerance * scale);
}

/// Fails unless every entry of `found` is within `bound` of `expected`'s.
///
/// # Panics
/// With name, index, found and expected of the entry that differs most.
pub fn assert_within(name: &str, found: &[f32], expected: &[f32], bound: f32) {
    assert_eq!(found.len(), expected.len(), "{name}: number of entries");
    let distance = |i: usize| match (found[i] - expected[i]).abs() {
        distance if distance.is_nan() => f32::INFINITY,
        distance => distance,
    };
    let worst = (0..found.len()).max_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    if let Some(i) = worst.filter(|&i| distance(i) > bound) {
        panic!("{name}[{i}]: found {}, expected {}, allowed {bound}", found[i], expected[i]);
    }
}

/// Fails unless the two have the same bits.
///
/// # Panics
/// With name, index, found and expected of the first entry that differs.
pub fn assert_same_bits(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}: number of entries");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert_eq!(f.to_bits(), e.to_bits(), "{name}[{i}]: found {f}, expected {e}");
    }
}
