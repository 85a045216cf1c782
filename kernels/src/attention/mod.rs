//! Causal attention within documents, from projected q, k, v to the exclusive output per head.

mod autodiff;
mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod options;
mod reference;
mod step;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Int, Tensor};

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::graph::{differentiate, gradient, leaf};

pub use options::AttentionOptions;
pub use reference::reference;
pub use step::{KeptPositions, UNREADABLE, attention_step, kept_keys, kept_values};

/// Attention of every query head over the earlier positions of its own document.
///
/// In this order: q and k are divided by their root mean square over the head dim; on layers with
/// a rope base the first half of both is rotated by its position in the row; q is multiplied by
/// `qk_mult`; `scores = q k / sqrt(a)`; softmax over the allowed keys (same segment,
/// `key <= query`, `key > query - window`); `y = P v`; and last
/// `y - (y v_t / (|v_t|^2 + eps)) v_t` with v at the query's own position.
///
/// Query head i reads stored slot `floor(i j / h)`, which reads own head
/// `floor(slot own_kv_heads / j)`; stored heads that nothing reads get zero gradient.
///
/// Of bf16 tensors the products are those of bf16: operands are rounded, sums are f32; norm, rotation,
/// softmax and the exclusive step are f32, and so are scores. Result and gradients are bf16.
///
/// # Shapes
/// `q` [b, s, h, a], `k` and `v` [b, s, j, a], all of one type; `segment_ids` [b, s], result
/// [b, s, h, a].
///
/// # Panics
/// If the shapes or types disagree, h is not a multiple of j, or an option is outside its range
/// (see [`AttentionOptions`]).
///
/// # Source
/// SPEC section 2, Attention, items 2 (own heads) to 6.
pub fn attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    segment_ids: Tensor<2, Int>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let [b, s, h, a] = q.dims();
    let j = k.dims()[2];
    for (name, found) in [("k", k.dims()), ("v", v.dims())] {
        let needed = [b, s, j, a];
        assert_eq!(found, needed, "attention: `{name}` has shape {found:?}, needed {needed:?}");
    }
    for (name, found) in [("k", k.dtype()), ("v", v.dtype())] {
        let needed = q.dtype();
        assert_eq!(found, needed, "attention: `{name}` is {found:?}, needed {needed:?} as `q`");
    }
    let found = segment_ids.dims();
    assert_eq!(found, [b, s], "attention: `segment_ids` has shape {found:?}, needed [{b}, {s}]");
    options.assert_fit(h, j, a);
    Tensor::from_dispatch(Dispatch::attention(
        q.into_dispatch(),
        k.into_dispatch(),
        v.into_dispatch(),
        segment_ids.into_dispatch(),
        options.clone(),
    ))
}

/// The operation as Burn dispatches it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub trait AttentionOps: Backend {
    /// See [`attention`](self::attention()).
    fn attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        segment_ids: IntTensor<Self>,
        options: AttentionOptions,
    ) -> FloatTensor<Self>;
}

/// The tensors of one call; shapes as in [`attention`](self::attention()).
#[derive(Debug, Clone)]
pub struct AttentionInputs<B: Backend> {
    /// Projected queries.
    pub q: FloatTensor<B>,
    /// Projected and convolved keys.
    pub k: FloatTensor<B>,
    /// Projected values.
    pub v: FloatTensor<B>,
    /// The document of every position.
    pub segment_ids: IntTensor<B>,
}

/// What a kernel's forward keeps for its backward, beside the inputs.
#[derive(Debug, Clone)]
pub struct AttentionSaved<B: Backend> {
    /// `P v`, before the exclusive step, [b, s, h, a].
    pub y: FloatTensor<B>,
    /// One over the sum of `exp(score)` over the allowed keys, [b, s, h].
    pub inverse_sum: FloatTensor<B>,
}

/// What a backend without autodiff computes; the defaults are the reference.
pub trait AttentionKernel: Bridge {
    /// The result.
    fn forward(inputs: AttentionInputs<Self>, options: &AttentionOptions) -> FloatTensor<Self> {
        let (q, k, v) = (Self::lift(inputs.q), Self::lift(inputs.k), Self::lift(inputs.v));
        Self::lower(reference(q, k, v, Self::lift_int(inputs.segment_ids), options))
    }

    /// The result and what [`backward`](AttentionKernel::backward) shall get; the reference
    /// keeps nothing.
    fn forward_saving(
        inputs: AttentionInputs<Self>,
        options: &AttentionOptions,
    ) -> (FloatTensor<Self>, Option<AttentionSaved<Self>>) {
        (Self::forward(inputs, options), None)
    }

    /// The gradients of q, k and v for the gradient of the result.
    fn backward(
        inputs: AttentionInputs<Self>,
        options: &AttentionOptions,
        _saved: Option<AttentionSaved<Self>>,
        grad: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3] {
        let leaves @ [q, k, v] = &[inputs.q, inputs.k, inputs.v].map(leaf::<Self, 4>);
        let segment_ids = Self::lift_int(inputs.segment_ids);
        let out = reference(q.clone(), k.clone(), v.clone(), segment_ids, options);
        let grads = differentiate::<Self, _>(out, grad);
        leaves.each_ref().map(|leaf| gradient::<Self, 4>(leaf, &grads))
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl AttentionOps for $backend {
            fn attention(
                q: FloatTensor<Self>,
                k: FloatTensor<Self>,
                v: FloatTensor<Self>,
                segment_ids: IntTensor<Self>,
                options: AttentionOptions,
            ) -> FloatTensor<Self> {
                let inputs = AttentionInputs { q, k, v, segment_ids };
                <Self as AttentionKernel>::forward(inputs, &options)
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
