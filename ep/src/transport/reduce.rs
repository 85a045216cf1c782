//! Elementwise sums and extremes of words, in the order of members.

/// What the words of a reduction are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the types' own names")]
pub enum Element {
    F32,
    F64,
    U64,
}

/// How elements are reduced, in the order of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Reduction {
    Sum,
    Max,
    Min,
}

/// Elements and what is done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduce {
    /// The type of an element.
    pub element: Element,
    /// What is done.
    pub reduction: Reduction,
}

/// Reduces consecutive runs of `words` words elementwise, first to last.
pub(super) fn reduced(parts: &[u32], words: usize, reduce: Reduce) -> Vec<u32> {
    if words == 0 {
        return Vec::new();
    }
    let mut parts = parts.chunks(words);
    let mut total = parts.next().map(<[u32]>::to_vec).unwrap_or_default();
    for part in parts {
        match reduce.element {
            Element::F32 => fold(
                &mut total,
                part,
                reduce.reduction,
                |[word]| f32::from_bits(word),
                |v| [v.to_bits()],
            ),
            Element::F64 => fold(
                &mut total,
                part,
                reduce.reduction,
                |w| f64::from_bits(wide(w)),
                |v| narrow(v.to_bits()),
            ),
            Element::U64 => fold(&mut total, part, reduce.reduction, wide, narrow),
        }
    }
    total
}

fn fold<T: Copy + PartialOrd + std::ops::Add<Output = T>, const N: usize>(
    total: &mut [u32],
    part: &[u32],
    reduction: Reduction,
    read: impl Fn([u32; N]) -> T,
    write: impl Fn(T) -> [u32; N],
) {
    let (totals, _) = total.as_chunks_mut::<N>();
    for (total, part) in totals.iter_mut().zip(part.as_chunks::<N>().0) {
        let (a, b) = (read(*total), read(*part));
        // What cannot be compared is NaN, and stays: a maximum must not hide it.
        let b_is_nan = b.partial_cmp(&b).is_none();
        *total = write(match reduction {
            Reduction::Sum => a + b,
            Reduction::Max if b > a || b_is_nan => b,
            Reduction::Min if b < a || b_is_nan => b,
            _ => a,
        });
    }
}

fn wide([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn narrow(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

impl Element {
    /// Words of an element.
    pub fn words(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::F64 | Self::U64 => 2,
        }
    }
}

/// u64 values as words.
pub(super) fn words_of(values: impl IntoIterator<Item = u64>) -> Vec<u32> {
    values.into_iter().flat_map(narrow).collect()
}

/// Words as u64 values.
pub(super) fn values_of(words: &[u32]) -> Vec<u64> {
    words.as_chunks::<2>().0.iter().map(|pair| wide(*pair)).collect()
}
