//! Expert stacks in files: slices named by the global indices of their experts.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::TensorData;

/// The name of the slice of `stack` that holds `experts`.
pub fn slice_name(stack: &str, experts: Range<usize>) -> String {
    format!("{stack}@{}..{}", experts.start, experts.end)
}

/// Stack and experts of a slice's name.
pub fn parse(name: &str) -> Option<(&str, Range<usize>)> {
    let (stack, range) = name.rsplit_once('@')?;
    let (start, end) = range.split_once("..")?;
    Some((stack, start.parse().ok()?..end.parse().ok()?))
}

/// The experts `wanted` of a stack from slices of any size that together hold them.
///
/// # Errors
/// Which experts are missing, or held twice, or in slices of another shape.
pub fn assemble(
    slices: &BTreeMap<usize, (Range<usize>, TensorData)>,
    wanted: Range<usize>,
) -> Result<TensorData, String> {
    let mut bytes = Vec::new();
    let mut next = wanted.start;
    let mut shape: Option<Vec<usize>> = None;
    let mut dtype = None;
    for (range, data) in slices.values() {
        let take = range.start.max(wanted.start)..range.end.min(wanted.end);
        if take.is_empty() {
            continue;
        }
        if take.start != next {
            return Err(format!("experts {next}..{} are missing or held twice", take.start));
        }
        let dims = data.shape().to_vec();
        if dims.first() != Some(&range.len()) || shape.as_ref().is_some_and(|s| s[..] != dims[1..])
        {
            return Err(format!("slice {range:?} has shape {dims:?}"));
        }
        if let Some(needed) = dtype.filter(|dtype| *dtype != data.dtype()) {
            return Err(format!("slice {range:?} is {:?}, needed {needed:?}", data.dtype()));
        }
        let stride = data.as_bytes().len() / range.len();
        let from = (take.start - range.start) * stride;
        bytes.extend_from_slice(&data.as_bytes()[from..][..take.len() * stride]);
        next = take.end;
        dtype = Some(data.dtype());
        shape = Some(dims[1..].to_vec());
    }
    match (shape, dtype) {
        (Some(mut shape), Some(dtype)) if next == wanted.end => {
            shape.insert(0, wanted.len());
            Ok(TensorData::from_bytes_vec(bytes, shape, dtype))
        }
        _ => Err(format!("experts {next}..{} are missing", wanted.end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(experts: Range<usize>) -> (usize, (Range<usize>, TensorData)) {
        let values: Vec<f32> = experts.clone().map(|e| 10.0 + e as f32).collect();
        let shape = [experts.len(), 1, 1];
        (experts.start, (experts, TensorData::new(values, shape)))
    }

    #[test]
    fn six_experts_in_slices_of_any_size_are_found_at_any_range() {
        for cuts in [vec![0, 6], vec![0, 2, 4, 6], vec![0, 1, 2, 3, 4, 5, 6], vec![0, 5, 6]] {
            let slices: BTreeMap<_, _> = cuts.windows(2).map(|w| slice(w[0]..w[1])).collect();
            for wanted in [0..6, 2..5, 5..6] {
                let data = assemble(&slices, wanted.clone()).expect("whole");
                let expected: Vec<f32> = wanted.map(|e| 10.0 + e as f32).collect();
                assert_eq!(data.iter::<f32>().collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn missing_experts_are_named() {
        let slices: BTreeMap<_, _> = [slice(0..2), slice(4..6)].into();
        assert_eq!(assemble(&slices, 0..6), Err("experts 2..4 are missing or held twice".into()));
        assert_eq!(assemble(&slices, 4..8), Err("experts 6..8 are missing".into()));
    }

    #[test]
    fn a_slice_of_another_type_is_refused() {
        let (start, (range, data)) = slice(2..4);
        let other = (start, (range, data.convert_dtype(burn::tensor::DType::BF16)));
        let slices: BTreeMap<_, _> = [slice(0..2), other].into();
        assert_eq!(assemble(&slices, 0..4), Err("slice 2..4 is BF16, needed F32".into()));
    }

    #[test]
    fn names_round_trip() {
        assert_eq!(parse(&slice_name("a.b.m", 3..9)), Some(("a.b.m", 3..9)));
        assert_eq!(parse("a.b"), None);
    }
}
