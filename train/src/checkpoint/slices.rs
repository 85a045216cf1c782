//! Expert stacks in files: slices named by the global indices of their experts.

use std::ops::Range;

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

/// The tensor that a name in a file stands for or is a slice of.
pub fn tensor_of(name: &str) -> &str {
    parse(name).map_or(name, |(stack, _)| stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(parse(&slice_name("a.b.m", 3..9)), Some(("a.b.m", 3..9)));
        assert_eq!(parse("a.b"), None);
        assert_eq!((tensor_of("a.b.m@3..9"), tensor_of("a.b")), ("a.b.m", "a.b"));
    }
}
