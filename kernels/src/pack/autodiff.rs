use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{Header, PackKernel, PackOps};
use crate::graph::propagate;
use crate::permute::RowIds;

#[derive(Debug)]
struct PackBackward;

impl<B: PackKernel> Backward<B, 1> for PackBackward {
    type State = RowIds<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate::<B, _, 1>(ops, grads, |ids, grad| [B::dispatch_backward(ids, grad)]);
    }
}

impl<B: PackKernel, C: CheckpointStrategy> PackOps for Autodiff<B, C> {
    fn pack_rows(
        x: FloatTensor<Self>,
        row_of: IntTensor<Self>,
        assignment_of: IntTensor<Self>,
        checked: bool,
        header: Header,
    ) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        let ids = RowIds { row_of, assignment_of, checked };
        let out = B::pack(x, ids.clone(), &header);
        match PackBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(ids, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
