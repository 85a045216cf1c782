use thiserror::Error;

/// What a caller of a kernel can get wrong.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum KernelError {
    /// Two arguments disagree on a dimension they share.
    #[error("{op}: `{argument}` has shape {found:?}, needed {needed}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The argument that does not fit.
        argument: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The shape rule it breaks.
        needed: String,
    },
    /// An index or a range's end lies outside what it points into.
    #[error("{op}: `{argument}[{position}]` is {found}, needed {least} to {most}")]
    Index {
        /// The operation.
        op: &'static str,
        /// The argument that holds the index.
        argument: &'static str,
        /// Where in the argument, counted in row-major order.
        position: usize,
        /// The value there.
        found: i64,
        /// The smallest value allowed.
        least: i64,
        /// The largest value allowed.
        most: i64,
    },
    /// One direction of a two-way map has an entry that the other does not answer.
    #[error("{op}: `{argument}[{position}]` is {found}, whose own entry does not point back")]
    OneWay {
        /// The operation.
        op: &'static str,
        /// The direction with the entry.
        argument: &'static str,
        /// Where in the argument, counted in row-major order.
        position: usize,
        /// The value there.
        found: i64,
    },
    /// Two groups share a row.
    #[error("{op}: groups {first} and {second} share rows, needed disjoint ranges")]
    Overlap {
        /// The operation.
        op: &'static str,
        /// The group that starts first.
        first: usize,
        /// The group that starts within it.
        second: usize,
    },
}
