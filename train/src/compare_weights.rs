//! Whether ranks that must hold the same weights do.

use fulmar_ep::World;
use fulmar_model::{Role, weights};

use crate::error::TrainError;
use crate::state::TrainState;

/// Compares digests of the weights, bit for bit: those of shared parameters over all ranks, those
/// of expert stacks over the ranks with the same experts.
///
/// # Errors
/// [`TransportError::Disagree`](fulmar_ep::transport::TransportError::Disagree) naming two ranks
/// and their digests, on every rank.
pub fn compare_weights(state: &TrainState, world: &World) -> Result<(), TrainError> {
    if world.layout.ranks() == 1 {
        return Ok(());
    }
    let (mut shared, mut experts) = (blake3::Hasher::new(), blake3::Hasher::new());
    weights::visit(&state.model, |path, param| {
        let role = state.optimizer.table().get(path).map(|entry| entry.role);
        let hasher = if role == Some(Role::ExpertStack) { &mut experts } else { &mut shared };
        hasher.update(path.as_bytes());
        hasher.update(param.read().as_bytes());
    });
    world.all.agree("weights of shared parameters", shared.finalize().to_hex())?;
    world.replica.agree("weights of experts", experts.finalize().to_hex())?;
    Ok(())
}
