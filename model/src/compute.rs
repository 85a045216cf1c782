//! The arithmetic of dense products.

use burn::tensor::{FloatDType, Tensor};
use serde::{Deserialize, Serialize};

/// What the dense products of a model compute in: projections, experts, attention's scores and
/// weighted values, the low-rank gates of norms. Weights are f32 whichever it is, and so are the
/// router, norms, softmax, the loss with the head's product in it, and the residual stream
/// (SPEC section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compute {
    /// Operands, sums and results in f32.
    #[default]
    F32,
    /// Operands and results rounded to bf16, sums in f32, in backward too.
    Bf16,
}

impl Compute {
    /// `x` as an operand of a product; its gradient has the type of `x`.
    pub fn operand<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::F32 => x,
            Self::Bf16 => x.cast(FloatDType::BF16),
        }
    }

    /// The result of a product of [`operand`](Self::operand)s in f32, for all that is no product.
    pub fn result<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::F32 => x,
            Self::Bf16 => x.cast(FloatDType::F32),
        }
    }

    /// `x weight` in f32, from f32 or an [`operand`](Self::operand).
    pub fn product(self, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
        self.result(self.operand(x).matmul(self.operand(weight)))
    }
}
