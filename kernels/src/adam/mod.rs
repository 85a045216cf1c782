//! Adam, and Adam's direction under the hyperball step (`AdamH`).

mod check;
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

pub(crate) use check::checks;

use crate::bridge::Bridge;
use crate::hyperball;

/// Settings of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamOptions {
    /// Learning rate; under [`adamh_step`] the step relative to the norm of the weights.
    pub lr: f64,
    /// Decay of the first moment, in [0, 1).
    pub beta1: f64,
    /// Decay of the second moment, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment; above 0.
    pub eps: f64,
    /// The number of this step, counted from 1.
    pub step: u64,
    /// Decoupled weight decay; acts together with the rate, as `lr * weight_decay * w`.
    pub weight_decay: f64,
}

impl AdamOptions {
    /// `1 / (1 - beta^step)` for both moments, formed in f64.
    fn bias_corrections(&self) -> (f64, f64) {
        let correction = |beta: f64| (1.0 - beta.powf(self.step as f64)).recip();
        (correction(self.beta1), correction(self.beta2))
    }
}

/// One step of Adam: the new weights and moments `(w', m', v')`.
///
/// `m' = beta1 m + (1 - beta1) g`, `v' = beta2 v + (1 - beta2) g^2`,
/// `direction = m' / (1 - beta1^t) / (sqrt(v' / (1 - beta2^t)) + eps)`,
/// `w' = w - lr direction - lr weight_decay w`.
///
/// Weights and moments are updated in place where nothing else holds their buffers.
///
/// # Shapes
/// All tensors `[elements]`.
///
/// # Panics
/// If lengths differ or `step` is 0.
///
/// # Source
/// SPEC section 4.
pub fn adam_step(
    w: Tensor<1>,
    grad: Tensor<1>,
    m: Tensor<1>,
    v: Tensor<1>,
    options: &AdamOptions,
) -> (Tensor<1>, Tensor<1>, Tensor<1>) {
    check("adam_step", [&w, &grad, &m, &v], options);
    let [w, grad, m, v] = [w, grad, m, v].map(Tensor::into_dispatch);
    let (w, m, v) = Dispatch::adam_step(w, grad, m, v, *options);
    (Tensor::from_dispatch(w), Tensor::from_dispatch(m), Tensor::from_dispatch(v))
}

/// One step along Adam's direction `o` that keeps the norm of the weights: `(w', m', v')`.
///
/// `w1 = w - lr o |w| / |o|`, `w' = w1 |w| / |w1|` over all elements as one matrix, with the
/// moments and direction of [`adam_step`]. Weights that are all zero, or whose direction is, stay
/// as they are.
///
/// Weights and moments are updated in place where nothing else holds their buffers.
///
/// # Shapes
/// All tensors `[elements]`.
///
/// # Panics
/// If lengths differ, `step` is 0, or `weight_decay` is not 0: a norm that is kept cannot decay.
///
/// # Source
/// SPEC section 4, `AdamH`.
pub fn adamh_step(
    w: Tensor<1>,
    grad: Tensor<1>,
    m: Tensor<1>,
    v: Tensor<1>,
    options: &AdamOptions,
) -> (Tensor<1>, Tensor<1>, Tensor<1>) {
    check("adamh_step", [&w, &grad, &m, &v], options);
    let decay = options.weight_decay;
    assert_eq!(decay, 0.0, "adamh_step: `weight_decay` is {decay}, needed 0: the norm is kept");
    let [w, grad, m, v] = [w, grad, m, v].map(Tensor::into_dispatch);
    let (w, m, v) = Dispatch::adamh_step(w, grad, m, v, *options);
    (Tensor::from_dispatch(w), Tensor::from_dispatch(m), Tensor::from_dispatch(v))
}

fn check(op: &str, [w, grad, m, v]: [&Tensor<1>; 4], options: &AdamOptions) {
    let [len] = w.dims();
    for (argument, tensor) in [("grad", grad), ("m", m), ("v", v)] {
        let [found] = tensor.dims();
        assert_eq!(found, len, "{op}: `{argument}` has {found} elements, needed {len} as in `w`");
    }
    assert!(options.step > 0, "{op}: `step` is 0, needed 1 or more");
}

/// The meaning of [`adam_step`] in plain tensor operations.
pub fn reference(
    w: Tensor<1>,
    grad: Tensor<1>,
    m: Tensor<1>,
    v: Tensor<1>,
    options: &AdamOptions,
) -> (Tensor<1>, Tensor<1>, Tensor<1>) {
    let (direction, m, v) = direction(grad, m, v, options);
    let decay = w.clone() * (options.lr * options.weight_decay);
    (w - direction * options.lr - decay, m, v)
}

/// The meaning of [`adamh_step`] in plain tensor operations.
pub fn adamh_reference(
    w: Tensor<1>,
    grad: Tensor<1>,
    m: Tensor<1>,
    v: Tensor<1>,
    options: &AdamOptions,
) -> (Tensor<1>, Tensor<1>, Tensor<1>) {
    let [len] = w.dims();
    let (direction, m, v) = direction(grad, m, v, options);
    let matrix = [1, 1, len];
    let w = hyperball::reference(w.reshape(matrix), direction.reshape(matrix), options.lr, true);
    (w.reshape([len]), m, v)
}

fn direction(
    grad: Tensor<1>,
    m: Tensor<1>,
    v: Tensor<1>,
    options: &AdamOptions,
) -> (Tensor<1>, Tensor<1>, Tensor<1>) {
    let (first, second) = options.bias_corrections();
    let m = m * options.beta1 + grad.clone() * (1.0 - options.beta1);
    let v = v * options.beta2 + grad.clone() * grad * (1.0 - options.beta2);
    let direction = m.clone() * first / ((v.clone() * second).sqrt() + options.eps);
    (direction, m, v)
}

/// The operations as Burn dispatches them; they take and return values outside any graph.
#[backend_extension(Flex, Cube: cfg(feature = "cube"))]
pub trait AdamOps: Backend {
    /// See [`adam_step`](self::adam_step()).
    fn adam_step(
        w: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        m: FloatTensor<Self>,
        v: FloatTensor<Self>,
        options: AdamOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// See [`adamh_step`](self::adamh_step()).
    fn adamh_step(
        w: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        m: FloatTensor<Self>,
        v: FloatTensor<Self>,
        options: AdamOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

/// What a backend computes; the defaults are the references.
pub trait AdamKernel: Bridge {
    /// `(w', m', v')` of Adam.
    fn step(
        [w, grad, m, v]: [FloatTensor<Self>; 4],
        options: &AdamOptions,
    ) -> [FloatTensor<Self>; 3] {
        let [w, grad, m, v] = [w, grad, m, v].map(Self::lift);
        let (w, m, v) = reference(w, grad, m, v, options);
        [w, m, v].map(Self::lower)
    }

    /// `(w', m', v')` of Adam's direction under the hyperball step.
    fn hyperball_step(
        [w, grad, m, v]: [FloatTensor<Self>; 4],
        options: &AdamOptions,
    ) -> [FloatTensor<Self>; 3] {
        let [w, grad, m, v] = [w, grad, m, v].map(Self::lift);
        let (w, m, v) = adamh_reference(w, grad, m, v, options);
        [w, m, v].map(Self::lower)
    }
}

macro_rules! ops {
    ($backend:ty) => {
        impl AdamOps for $backend {
            fn adam_step(
                w: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                m: FloatTensor<Self>,
                v: FloatTensor<Self>,
                options: AdamOptions,
            ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
                <Self as AdamKernel>::step([w, grad, m, v], &options).into()
            }

            fn adamh_step(
                w: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                m: FloatTensor<Self>,
                v: FloatTensor<Self>,
                options: AdamOptions,
            ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
                <Self as AdamKernel>::hyperball_step([w, grad, m, v], &options).into()
            }
        }
    };
}

ops!(Flex);

#[cfg(feature = "cube")]
ops!(burn_cubecl::CubeBackend);
