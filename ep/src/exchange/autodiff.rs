use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::{ExchangeKernel, ExchangeOps, Route};

/// What an operation does with a gradient.
type Reverse<B> = fn(FloatTensor<B>, &Route) -> FloatTensor<B>;

fn propagate<B: ExchangeKernel>(ops: Ops<Route, 1>, grads: &mut Gradients, reverse: Reverse<B>) {
    let grad = grads.consume::<B>(&ops.node);
    let [parent] = ops.parents;
    if let Some(parent) = parent {
        grads.register::<B>(parent.id, reverse(grad, &ops.state.backward()));
    }
}

macro_rules! backward {
    ($name:ident, $reverse:ident) => {
        #[derive(Debug)]
        struct $name;

        impl<B: ExchangeKernel> Backward<B, 1> for $name {
            type State = Route;

            fn backward(self, ops: Ops<Route, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
                propagate::<B>(ops, grads, B::$reverse);
            }
        }
    };
}

backward!(ExchangeBackward, exchange);
backward!(GatherBackward, scatter);
backward!(ScatterBackward, gather);

impl<B: ExchangeKernel, C: CheckpointStrategy> ExchangeOps for Autodiff<B, C> {
    fn exchange_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let out = B::exchange(x, &route);
        match ExchangeBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(route, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }

    fn gather_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let out = B::gather(x, &route);
        match GatherBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(route, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }

    fn scatter_rows(x: FloatTensor<Self>, route: Route) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let out = B::scatter(x, &route);
        match ScatterBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(route, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
