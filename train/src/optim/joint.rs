//! `MuonH` with one norm over a stack of experts that is spread over shards.

use burn::tensor::{DType, Tensor};
use fulmar_ep::transport::{Group, TransportError};
use fulmar_kernels::muonh::MuonHOptions;
use fulmar_kernels::newton_schulz::newton_schulz;

/// As [`muonh_step`](fulmar_kernels::muonh::muonh_step) with a joint norm, where each member of
/// `shards` holds some matrices of the stack: `(w', momentum')`, all [n, p, q].
///
/// # Errors
/// If a peer is lost.
pub(super) fn muonh_step_over_shards(
    w: Tensor<3>,
    grad: Tensor<3>,
    momentum: Tensor<3>,
    options: &MuonHOptions,
    shards: &Group,
) -> Result<(Tensor<3>, Tensor<3>), TransportError> {
    let stored = momentum.dtype();
    let momentum = momentum.cast(DType::F32) * options.momentum + grad.clone();
    let update = newton_schulz(momentum.clone() * options.momentum + grad, options.precision);
    let own = [squares(&w), squares(&update)];
    let norms = shards.sum_f64("joint norm", &own)?;
    let (old, of_update) = (norms[0].sqrt(), norms[1].sqrt());
    // A stack that is zero, or whose update is, stays as it is.
    let rate = if old == 0.0 || of_update == 0.0 { 0.0 } else { options.lr * old / of_update };
    let moved = w - update * rate;
    let new = shards.sum_f64("joint norm", &[squares(&moved)])?[0].sqrt();
    let scale = if new == 0.0 { 1.0 } else { old / new };
    Ok((moved * scale, momentum.cast(stored)))
}

fn squares(x: &Tensor<3>) -> f64 {
    f64::from((x.clone() * x.clone()).sum().into_scalar::<f32>())
}
