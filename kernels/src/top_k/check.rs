use super::{reference, top_k};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let shapes = [([1, 2], 1), ([3, 7], 6), ([65, 48], 8), ([33, 384], 8)];
    let check = |([t, e], k): ([usize; 2], usize)| {
        let shape = format!("[{t}, {e}], k {k}, ties, a row that is not finite, a view");
        Check::new("top_k", shape, 0.0, move |device, body| {
            let mut draw = Draw::new(device);
            // Few distinct values tie; the transposed view is read as its values.
            let scores = draw.tensor([e, t]).mul_scalar(4.0).round().swap_dims(0, 1);
            let scores = if t > 2 { scores.slice_fill([1..2, 0..1], f32::NAN) } else { scores };
            let found = match body {
                Body::Kernel => top_k(scores, k),
                Body::Reference => reference(scores, k),
            };
            Outputs::default().integers("selected", found.selected).float("next", found.next)
        })
    };
    shapes.map(check).into()
}
