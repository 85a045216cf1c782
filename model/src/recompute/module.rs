//! Modules with other tensors in the place of their parameters' values.

use std::collections::BTreeSet;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::Tensor;

use super::sink::GradientSink;

/// Values whose gradients go to a sink.
pub(super) struct Tapped<'a, const A: usize> {
    pub(super) sink: &'a GradientSink,
    pub(super) after: &'a Tensor<A>,
}

impl<const A: usize> ModuleMapper for Tapped<'_, A> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        let value = self.sink.tap_value(id, value, self.after);
        Param::from_mapped_value(id, value, mapper)
    }
}

/// A module outside every graph. Its tensors are those of the module, not copies.
#[derive(Debug)]
pub(super) struct Untracked<M> {
    pub(super) module: M,
    /// The parameters that are trained.
    trained: BTreeSet<ParamId>,
}

impl<M: Module> Untracked<M> {
    pub(super) fn new(module: &M) -> Self {
        let mut untrack = Untrack { trained: BTreeSet::new() };
        let module = module.clone().map(&mut untrack);
        Self { module, trained: untrack.trained }
    }

    /// The module in the graph of its input `x`, its gradients going to `sink`.
    pub(super) fn in_graph_of<const A: usize>(&self, x: &Tensor<A>, sink: &GradientSink) -> M {
        let leaves = self.module.clone().map(&mut Leaves { trained: &self.trained });
        sink.tapped(&leaves, x)
    }
}

struct Untrack {
    trained: BTreeSet<ParamId>,
}

impl ModuleMapper for Untrack {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        if value.is_require_grad() {
            self.trained.insert(id);
        }
        Param::from_mapped_value(id, value.inner(), mapper)
    }
}

/// Fresh leaves in the place of the trained parameters.
struct Leaves<'a> {
    trained: &'a BTreeSet<ParamId>,
}

impl ModuleMapper for Leaves<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        let is_trained = self.trained.contains(&id);
        let value = Tensor::from_inner(value).set_require_grad(is_trained);
        Param::from_mapped_value(id, value, mapper)
    }
}
