use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType};

/// Tensors whose rows follow each other, as one argument of an operation.
#[derive(Debug, Clone, ExtensionType)]
#[allow(missing_docs, reason = "their number")]
pub enum Parts<B: Backend> {
    One(FloatTensor<B>),
    Two(FloatTensor<B>, FloatTensor<B>),
    Three(FloatTensor<B>, FloatTensor<B>, FloatTensor<B>),
    Four(FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>),
}

/// The most tensors there can be.
pub(super) const MOST_PARTS: usize = 4;

impl<B: Backend> Parts<B> {
    /// One to [`MOST_PARTS`] tensors.
    pub(super) fn new(tensors: Vec<FloatTensor<B>>) -> Self {
        let mut tensors = tensors.into_iter();
        match [(); MOST_PARTS].map(|()| tensors.next()) {
            [Some(a), None, None, None] => Self::One(a),
            [Some(a), Some(b), None, None] => Self::Two(a, b),
            [Some(a), Some(b), Some(c), None] => Self::Three(a, b, c),
            [Some(a), Some(b), Some(c), Some(d)] => Self::Four(a, b, c, d),
            _ => unreachable!("at least one tensor"),
        }
    }

    pub(super) fn into_vec(self) -> Vec<FloatTensor<B>> {
        match self {
            Self::One(a) => vec![a],
            Self::Two(a, b) => vec![a, b],
            Self::Three(a, b, c) => vec![a, b, c],
            Self::Four(a, b, c, d) => vec![a, b, c, d],
        }
    }
}
