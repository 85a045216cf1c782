//! Where gradients of parameters are summed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::module::{Module, Param, ParamId};
use burn::tensor::Tensor;
use fulmar_kernels::with_backward::with_backward_after;

use super::module::Tapped;

/// Sums of gradients by parameter, flat and outside every graph.
///
/// Burn returns the gradients of a backward pass together at its end, beside the sums of earlier
/// ones: two copies. Here the gradient of a parameter joins its sum, in place, as soon as the
/// backward pass is through with the part of the model that uses it. Clones share the sums.
#[derive(Debug, Clone, Default)]
pub struct GradientSink(Arc<Mutex<BTreeMap<ParamId, Tensor<1>>>>);

impl GradientSink {
    /// The value of `param`, whose gradient comes here. It is complete when the backward pass comes
    /// to what made `after`, so `after` is the oldest input of those that meet the value.
    ///
    /// A parameter that is not trained is left as it is.
    pub fn tap<const D: usize, const A: usize>(
        &self,
        param: &Param<Tensor<D>>,
        after: &Tensor<A>,
    ) -> Tensor<D> {
        self.tap_value(param.id, param.val(), after)
    }

    /// `module` with the values of its parameters [tapped](Self::tap) behind its input `after`.
    pub fn tapped<M: Module, const A: usize>(&self, module: &M, after: &Tensor<A>) -> M {
        module.clone().map(&mut Tapped { sink: self, after })
    }

    pub(super) fn tap_value<const D: usize, const A: usize>(
        &self,
        id: ParamId,
        value: Tensor<D>,
        after: &Tensor<A>,
    ) -> Tensor<D> {
        if !value.is_require_grad() {
            return value;
        }
        let (sink, plain) = (self.clone(), value.clone().inner());
        with_backward_after(value, after.clone(), plain, move |grad: Tensor<D>| {
            sink.add(id, grad.flatten(0, D - 1));
            None
        })
    }

    /// Takes out the sum of a parameter's gradients, flat.
    pub fn take(&self, id: ParamId) -> Option<Tensor<1>> {
        self.sums().remove(&id)
    }

    fn add(&self, id: ParamId, grad: Tensor<1>) {
        let mut sums = self.sums();
        // Out of the map, the sum is owned once and is added to where it lies.
        let sum = match sums.remove(&id) {
            Some(sum) => sum + grad,
            None => grad,
        };
        sums.insert(id, sum);
    }

    fn sums(&self) -> MutexGuard<'_, BTreeMap<ParamId, Tensor<1>>> {
        self.0.lock().expect("an addition does not panic")
    }
}
