//! Linear head, softmax cross-entropy and z-loss in one operation.
//!
//! The kernels never hold the logits of all tokens at once. The reference, which backends without a
//! kernel of their own run, does: [tokens, vocabulary] in f32, and while tracked several tensors of
//! that size.
//!
//! The CPU holds the logits of 96 tokens, or of as many more as have 2^22 together. A GPU holds
//! those of a chunk of tokens, at most 256 MiB of them or one token's, and while tracked as much of
//! the head's gradient again as 32,768 columns have. The CPU refuses a target outside the
//! vocabulary. A GPU, which nobody waits for, reads and writes nothing outside, and answers with
//! NaN: the token's cross-entropy, and so the sums over it and the gradients.

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod reference;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Int, Tensor};

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::graph::{gradient, leaf};
pub use reference::{reference, token_losses_reference};

/// Weighted sums over tokens; each tensor has one element.
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// `sum w (ce + z_coefficient lse^2)`, differentiable in hidden and head.
    pub total: Tensor<1>,
    /// `sum w ce`, outside the graph.
    pub cross_entropy_sum: Tensor<1>,
    /// `sum w lse^2`, outside the graph.
    pub z_sum: Tensor<1>,
}

/// Losses token by token, outside the graph.
#[derive(Clone, Debug)]
pub struct TokenLosses {
    /// Cross-entropy in nats; `[tokens]`.
    pub nll: Tensor<1>,
    /// Logarithm of the sum of the exponentials of the logits; `[tokens]`.
    pub log_sum_exp: Tensor<1>,
}

/// With logits `hidden head`, `lse` their log-sum-exp and `ce = lse - logit[target]`: the weighted
/// sums over tokens of `ce`, of `lse^2`, and of `ce + z_coefficient lse^2`.
///
/// A token of weight 0 adds exactly nothing to sums and gradients, whatever its hidden state and
/// target are. There is no gradient for `weight`. A tracked call computes the gradients in its
/// forward pass and keeps them: as many values as `hidden` and `head` have. On a GPU the sums are
/// f32 whatever the type of `hidden` and `head`.
///
/// # Shapes
/// `hidden` [tokens, hidden], `head` [hidden, vocabulary], `targets` and `weight` `[tokens]`.
///
/// # Panics
/// If the shapes disagree; on the CPU also if a token with weight has a target outside the
/// vocabulary, which on a GPU makes sums and gradients NaN; see the [module](self).
///
/// # Source
/// SPEC section 2, loss.
pub fn cross_entropy(
    hidden: Tensor<2>,
    head: Tensor<2>,
    targets: Tensor<1, Int>,
    weight: Tensor<1>,
    z_coefficient: f64,
) -> CrossEntropy {
    check("cross_entropy", &hidden, &head, &targets);
    let ([t, _], found) = (hidden.dims(), weight.dims());
    assert!(found == [t], "cross_entropy: `weight` has shape {found:?}, needed [{t}] as `hidden`");
    let (total, cross_entropy_sum, z_sum) = Dispatch::cross_entropy(
        hidden.into_dispatch(),
        head.into_dispatch(),
        targets.into_dispatch(),
        weight.inner().into_dispatch(),
        z_coefficient,
    );
    CrossEntropy {
        total: Tensor::from_dispatch(total),
        cross_entropy_sum: Tensor::from_dispatch(cross_entropy_sum).inner(),
        z_sum: Tensor::from_dispatch(z_sum).inner(),
    }
}

/// The cross-entropy and the log-sum-exp of every token, for evaluation; nothing flows back.
///
/// # Shapes
/// `hidden` [tokens, hidden], `head` [hidden, vocabulary], `targets` and results `[tokens]`.
///
/// # Panics
/// If the shapes disagree; on the CPU also if a target is outside the vocabulary, which on a GPU
/// makes its cross-entropy NaN.
///
/// # Source
/// SPEC section 2, loss, and section 6.
pub fn token_losses(hidden: Tensor<2>, head: Tensor<2>, targets: Tensor<1, Int>) -> TokenLosses {
    check("token_losses", &hidden, &head, &targets);
    let (nll, log_sum_exp) = Dispatch::token_losses(
        hidden.inner().into_dispatch(),
        head.inner().into_dispatch(),
        targets.into_dispatch(),
    );
    TokenLosses { nll: Tensor::from_dispatch(nll), log_sum_exp: Tensor::from_dispatch(log_sum_exp) }
}

fn check(op: &str, hidden: &Tensor<2>, head: &Tensor<2>, targets: &Tensor<1, Int>) {
    let ([t, d], found) = (hidden.dims(), head.dims());
    assert!(found[0] == d, "{op}: `head` has shape {found:?}, needed [{d}, v] as `hidden`");
    let found = targets.dims();
    assert!(found == [t], "{op}: `targets` has shape {found:?}, needed [{t}] as `hidden`");
}

/// The operations as Burn dispatches them.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait CrossEntropyOps: Backend {
    /// `total`, `cross_entropy_sum` and `z_sum` of [`cross_entropy`](self::cross_entropy()).
    fn cross_entropy(
        hidden: FloatTensor<Self>,
        head: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weight: FloatTensor<Self>,
        z_coefficient: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// `nll` and `log_sum_exp` of [`token_losses`](self::token_losses()).
    fn token_losses(
        hidden: FloatTensor<Self>,
        head: FloatTensor<Self>,
        targets: IntTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

/// `total`, `cross_entropy_sum` and `z_sum` as primitives.
pub type Sums<B> = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>);

/// The gradients of `total` for `hidden` and `head`.
pub type HiddenAndHead<B> = (FloatTensor<B>, FloatTensor<B>);

/// What a backend without autodiff computes; the defaults are the reference, which holds the
/// logits of all tokens, [tokens, vocabulary].
pub trait CrossEntropyKernel: Bridge {
    /// The three sums.
    fn forward(
        hidden: FloatTensor<Self>,
        head: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weight: FloatTensor<Self>,
        z_coefficient: f64,
    ) -> Sums<Self> {
        let (hidden, head) = (Self::lift(hidden), Self::lift(head));
        let (targets, weight) = (Self::lift_int(targets), Self::lift(weight));
        let out = reference(hidden, head, targets, weight, z_coefficient);
        (Self::lower(out.total), Self::lower(out.cross_entropy_sum), Self::lower(out.z_sum))
    }

    /// The three sums, and the gradients of the first.
    fn forward_and_gradients(
        hidden: FloatTensor<Self>,
        head: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weight: FloatTensor<Self>,
        z_coefficient: f64,
    ) -> (Sums<Self>, HiddenAndHead<Self>) {
        let (hidden, head) = (leaf::<Self, 2>(hidden), leaf::<Self, 2>(head));
        let (targets, weight) = (Self::lift_int(targets), Self::lift(weight));
        let out = reference(hidden.clone(), head.clone(), targets, weight, z_coefficient);
        let grads = out.total.backward();
        let sums = (out.total.inner(), out.cross_entropy_sum, out.z_sum);
        (
            (Self::lower(sums.0), Self::lower(sums.1), Self::lower(sums.2)),
            (gradient::<Self, 2>(&hidden, &grads), gradient::<Self, 2>(&head, &grads)),
        )
    }

    /// A gradient times a factor of one element.
    fn scale(gradient: FloatTensor<Self>, factor: FloatTensor<Self>) -> FloatTensor<Self> {
        // The loss may be f32 where hidden states and head are not.
        let gradient = Self::lift::<2>(gradient);
        let factor = Self::lift::<1>(factor).cast(gradient.dtype()).reshape([1, 1]);
        Self::lower(gradient * factor)
    }

    /// `nll` and `log_sum_exp`.
    fn forward_tokens(
        hidden: FloatTensor<Self>,
        head: FloatTensor<Self>,
        targets: IntTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (hidden, head) = (Self::lift(hidden), Self::lift(head));
        let out = token_losses_reference(hidden, head, Self::lift_int(targets));
        (Self::lower(out.nll), Self::lower(out.log_sum_exp))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl CrossEntropyOps for $backend {
            fn cross_entropy(
                hidden: FloatTensor<Self>,
                head: FloatTensor<Self>,
                targets: IntTensor<Self>,
                weight: FloatTensor<Self>,
                z_coefficient: f64,
            ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
                <Self as CrossEntropyKernel>::forward(hidden, head, targets, weight, z_coefficient)
            }

            fn token_losses(
                hidden: FloatTensor<Self>,
                head: FloatTensor<Self>,
                targets: IntTensor<Self>,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                <Self as CrossEntropyKernel>::forward_tokens(hidden, head, targets)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
