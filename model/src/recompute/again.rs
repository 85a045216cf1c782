//! A block that is computed twice.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use fulmar_kernels::with_backward::{with_backward, with_backward_after};

use super::module::Untracked;
use super::sink::GradientSink;
use super::slot::Slot;

/// What comes out of a block and into the loss.
#[derive(Debug, Clone)]
pub struct Outputs {
    /// The residual stream [b, s, d].
    pub hidden: Tensor<3>,
    /// A loss of the block's own `[b]`, such as that of sequence balance.
    pub loss: Option<Tensor<1>>,
}

/// The gradients of [`Outputs`]; none where the loss does not depend on one.
struct OutputGradients {
    hidden: Slot<Tensor<3>>,
    loss: Slot<Tensor<1>>,
}

/// `module` of `x` [b, s, d], of which `x` is kept, what `first` puts into the closure it returns,
/// and nothing else.
///
/// `first` computes the module outside every graph and returns its outputs, whatever else it found
/// out, and how to compute it again: the same outputs, to the bit, in values and gradients. The
/// backward pass does that in a graph of its own, which it then goes through backwards; the
/// gradients of parameters go to `sink`.
///
/// The closure must not hold a tracked tensor, and must be free of chance. What it does with peers,
/// every rank does in the same order, in the backward pass.
///
/// A sum of three or more gradients depends on the order in which the backward pass meets them. It
/// is the order of a block that is computed once if the loss that trains is formed as
/// `block losses + loss of hidden`, the latter second.
///
/// # Errors
/// That of `first`.
pub fn computed_again<M, A, S, E>(
    module: &M,
    x: Tensor<3>,
    sink: &GradientSink,
    first: impl FnOnce(&M, Tensor<3>) -> Result<(Outputs, S, A), E>,
) -> Result<(Outputs, S), E>
where
    M: Module + Sync + 'static,
    A: Fn(&M, Tensor<3>) -> Outputs + Send + Sync + 'static,
{
    let untracked = Untracked::new(module);
    let input = x.clone().inner();
    let (outputs, found, again) = first(&untracked.module, input.clone())?;

    let device = input.device();
    let nothing = move || Tensor::<1>::zeros([1], &device);
    let incoming = Arc::new(OutputGradients { hidden: Slot::empty(), loss: Slot::empty() });
    // Both outputs stand behind one node, so the backward pass comes there when it has the
    // gradients of both. That node also stands behind a leaf of its own: parameters want their
    // gradients where nothing else before the block is trained.
    let leaf = Tensor::from_inner(nothing()).require_grad();
    let block = {
        let (incoming, sink) = (incoming.clone(), sink.clone());
        with_backward_after(x, leaf, nothing(), move |_: Tensor<1>| {
            Some(second_pass(&untracked, &input, &again, &incoming, &sink))
        })
    };
    let hidden = {
        let (incoming, nothing) = (incoming.clone(), nothing.clone());
        with_backward(block.clone(), outputs.hidden, move |grad| {
            incoming.hidden.put(grad);
            Some(nothing())
        })
    };
    let loss = outputs.loss.map(|loss| {
        with_backward(block, loss, move |grad| {
            incoming.loss.put(grad);
            Some(nothing())
        })
    });
    Ok((Outputs { hidden, loss }, found))
}

/// Forward and backward in a graph of their own; the gradient of the input.
fn second_pass<M: Module>(
    untracked: &Untracked<M>,
    input: &Tensor<3>,
    again: &impl Fn(&M, Tensor<3>) -> Outputs,
    incoming: &OutputGradients,
    sink: &GradientSink,
) -> Tensor<3> {
    let x = Tensor::from_inner(input.clone()).require_grad();
    let module = untracked.in_graph_of(&x, sink);
    let outputs = again(&module, x.clone());
    drop(module);
    let hidden = seeded(Some(outputs.hidden), &incoming.hidden);
    let loss = seeded(outputs.loss, &incoming.loss);
    // A backward pass looks at the last summand first.
    let root = [loss, hidden].into_iter().flatten().reduce(|sum, root| sum + root);
    let mut grads = root.expect("an output has a gradient, or nothing would come here").backward();
    x.grad_remove(&mut grads).unwrap_or_else(|| input.zeros_like())
}

/// A root from which `output` gets the gradient in `seed`.
fn seeded<const D: usize>(output: Option<Tensor<D>>, seed: &Slot<Tensor<D>>) -> Option<Tensor<1>> {
    let (output, seed) = (output?, Slot::of(seed.take()?));
    let nothing = Tensor::<1>::zeros([1], &output.clone().inner().device());
    Some(with_backward(output, nothing, move |_: Tensor<1>| seed.take()))
}
