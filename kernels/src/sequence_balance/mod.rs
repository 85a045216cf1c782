//! How evenly each row of a batch loads the experts, as a loss.

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Int, Tensor};

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

/// Keeps shares finite where every sigmoid of a token is zero.
const EPSILON: f64 = 1e-9;

/// `sum over e of f_e P_e` of each row: 1 where all experts are chosen and scored alike, up to e / k
/// where the same k are.
///
/// `f_e` is e / (k n) times how many of the row's n valid tokens chose expert e, and has no
/// gradient; `P_e` is the mean over those tokens of `s_e / (sum of s + 1e-9)` with
/// `s = sigmoid(logits)`. A row without a valid token has 0; what padding holds is not read.
///
/// # Shapes
/// `logits` [t, e], `selected` [t, k] with -1 for no expert, `token_valid` `[t]` with 0 for
/// padding, rows of `seq_len` tokens laid end to end, result `[t / seq_len]`.
///
/// # Panics
/// If the shapes disagree, `selected` has no columns or the tokens are no whole rows; on a CPU also
/// if an id is outside -1 to e - 1. Other backends read such an id as -1.
///
/// # Source
/// The sequence-wise balance loss of DeepSeek-V3 (arXiv 2412.19437, section 2.1.2), without its
/// coefficient.
pub fn sequence_balance(
    logits: Tensor<2>,
    selected: Tensor<2, Int>,
    token_valid: Tensor<1, Int>,
    seq_len: usize,
) -> Tensor<1> {
    let ([t, _], [found, k], [valid]) = (logits.dims(), selected.dims(), token_valid.dims());
    assert!(
        found == t && k > 0,
        "sequence_balance: `selected` has shape {:?}, needed [{t}, k] with k at least 1",
        [found, k]
    );
    assert_eq!(
        valid, t,
        "sequence_balance: `token_valid` has {valid} entries, needed {t} as in `logits`"
    );
    assert!(
        seq_len > 0 && t.is_multiple_of(seq_len),
        "sequence_balance: {t} tokens, needed whole rows of `seq_len` = {seq_len}"
    );
    Tensor::from_dispatch(Dispatch::sequence_balance(
        logits.into_dispatch(),
        selected.into_dispatch(),
        token_valid.into_dispatch(),
        seq_len,
    ))
}

/// The meaning of [`sequence_balance`](self::sequence_balance()) in plain tensor operations.
pub fn reference(
    logits: Tensor<2>,
    selected: Tensor<2, Int>,
    token_valid: Tensor<1, Int>,
    seq_len: usize,
) -> Tensor<1> {
    let ([t, e], [_, k]) = (logits.dims(), selected.dims());
    let rows = t / seq_len;
    let valid = token_valid.clone().not_equal_elem(0).float().reshape([rows, seq_len]);
    let num_valid = valid.sum_dim(1).clamp_min(1.0);
    let padding = token_valid.equal_elem(0).unsqueeze_dim::<2>(1).expand([t, e]);
    // Masked, not multiplied by 0: what padding holds may be NaN.
    let mean = |x: Tensor<2>| {
        let x = x.mask_fill(padding.clone(), 0.0).reshape([rows, seq_len, e]);
        x.sum_dim(1).reshape([rows, e]) / num_valid.clone()
    };
    let experts = Tensor::<1, Int>::arange(0..e as i64, &selected.device()).unsqueeze::<2>();
    let choices = (0..k).map(|slot| {
        let ids = selected.clone().narrow(1, slot, 1).expand([t, e]);
        ids.equal(experts.clone().expand([t, e])).float()
    });
    let choices = choices.reduce(|sum, slot| sum + slot).expect("at least one slot");
    let f = mean(choices).mul_scalar(e as f64 / k as f64);
    let s = sigmoid(logits.mask_fill(padding.clone(), 0.0));
    let p = mean(s.clone() / s.sum_dim(1).add_scalar(EPSILON));
    (p * f).sum_dim(1).reshape([rows])
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait SequenceBalanceOps: Backend {
    /// See [`sequence_balance`](self::sequence_balance()).
    fn sequence_balance(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        token_valid: IntTensor<Self>,
        seq_len: usize,
    ) -> FloatTensor<Self>;
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait SequenceBalanceKernel: Bridge {
    /// The result.
    fn forward(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        token_valid: IntTensor<Self>,
        seq_len: usize,
    ) -> FloatTensor<Self> {
        let (selected, token_valid) = (Self::lift_int(selected), Self::lift_int(token_valid));
        Self::lower(reference(Self::lift(logits), selected, token_valid, seq_len))
    }

    /// The gradient of `logits`, zero in padding, for the gradient of the result.
    fn backward(
        logits: FloatTensor<Self>,
        selected: IntTensor<Self>,
        token_valid: IntTensor<Self>,
        seq_len: usize,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let logits = leaf::<Self, 2>(logits);
        let (selected, token_valid) = (Self::lift_int(selected), Self::lift_int(token_valid));
        let out = reference(logits.clone(), selected, token_valid, seq_len);
        let grads = differentiate::<Self, _>(out, grad);
        gradient::<Self, 2>(&logits, &grads)
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl SequenceBalanceOps for $backend {
            fn sequence_balance(
                logits: FloatTensor<Self>,
                selected: IntTensor<Self>,
                token_valid: IntTensor<Self>,
                seq_len: usize,
            ) -> FloatTensor<Self> {
                <Self as SequenceBalanceKernel>::forward(logits, selected, token_valid, seq_len)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
