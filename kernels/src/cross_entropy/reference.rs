use burn::tensor::{Int, Tensor};

use super::{CrossEntropy, TokenLosses};

/// The meaning of [`cross_entropy`](super::cross_entropy()) in plain tensor operations.
pub fn reference(
    hidden: Tensor<2>,
    head: Tensor<2>,
    targets: Tensor<1, Int>,
    weight: Tensor<1>,
    z_coefficient: f64,
) -> CrossEntropy {
    let shape = hidden.dims();
    let ignored = weight.clone().equal_elem(0.0);
    // Masked, not multiplied by 0: what is ignored may be NaN.
    let hidden = hidden.mask_fill(ignored.clone().unsqueeze_dim::<2>(1).expand(shape), 0.0);
    let losses = token_losses_reference(hidden, head, targets.mask_fill(ignored, 0));
    let cross_entropy_sum = (losses.nll * weight.clone()).sum();
    let z_sum = (losses.log_sum_exp.clone() * losses.log_sum_exp * weight).sum();
    CrossEntropy {
        total: cross_entropy_sum.clone() + z_sum.clone().mul_scalar(z_coefficient),
        cross_entropy_sum: cross_entropy_sum.inner(),
        z_sum: z_sum.inner(),
    }
}

/// The meaning of [`token_losses`](super::token_losses()) in plain tensor operations. What is
/// differentiated is [`reference()`].
pub fn token_losses_reference(
    hidden: Tensor<2>,
    head: Tensor<2>,
    targets: Tensor<1, Int>,
) -> TokenLosses {
    let logits = hidden.matmul(head);
    // A shift by any constant leaves value and gradient as they are.
    let max = logits.clone().inner().max_dim(1);
    let shifted = logits - max.clone();
    let log_sum = shifted.clone().exp().sum_dim(1).log();
    TokenLosses {
        nll: (log_sum.clone() - shifted.gather(1, targets.unsqueeze_dim(1))).squeeze_dim(1),
        log_sum_exp: (log_sum + max).squeeze_dim(1),
    }
}
