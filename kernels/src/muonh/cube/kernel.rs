use cubecl::prelude::*;

/// `m = decay m + g`, then `g = decay m + g`, in place; a unit for each value.
#[cube(launch)]
pub(crate) fn momentum<F: Float>(
    grad: &mut [F],
    momentum: &mut [F],
    decay: f32,
    len: usize,
    #[define(F)] _dtype: ElemType,
) {
    let i = ABSOLUTE_POS;
    if i >= len {
        terminate!();
    }
    let g = f32::cast_from(grad[i]);
    let m = f32::cast_from(momentum[i]) * decay + g;
    momentum[i] = F::cast_from(m);
    grad[i] = F::cast_from(m * decay + g);
}
