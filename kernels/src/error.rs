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
}
