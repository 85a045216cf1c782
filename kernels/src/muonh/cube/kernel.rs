use cubecl::prelude::*;

/// `m = decay m + g`, then `g = decay m + g`, in place; a unit for each value. The update is formed
/// of m before it is rounded to the type it is stored in.
#[cube(launch)]
pub(crate) fn momentum<F: Float, M: Float>(
    grad: &mut [F],
    momentum: &mut [M],
    decay: f32,
    len: usize,
    #[define(F, M)] _dtypes: [ElemType; 2],
) {
    let i = ABSOLUTE_POS;
    if i >= len {
        terminate!();
    }
    let g = f32::cast_from(grad[i]);
    let m = f32::cast_from(momentum[i]) * decay + g;
    momentum[i] = M::cast_from(m);
    grad[i] = F::cast_from(m * decay + g);
}
