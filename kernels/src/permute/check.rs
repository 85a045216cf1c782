use burn::tensor::Tensor;

use super::{RowMap, combine_parts, combine_reference, dispatch_reference, dispatch_rows};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let sizes = [[1, 1, 1, 3], [5, 2, 9, 7], [130, 4, 400, 33], [70, 3, 300, 16], [40, 8, 200, 96]];
    let dispatches = sizes.map(dispatch);
    let combines = sizes.into_iter().flat_map(|size| [1, 2, 4, 5].map(|n| combine(size, n)));
    dispatches.into_iter().chain(combines).collect()
}

/// A map in which every fourth assignment is dropped, and so is what finds no row: every tenth row
/// stays empty, as do those that are not `free`. Its lists are views.
pub(crate) fn map(
    draw: &Draw,
    [tokens, slots, rows]: [usize; 3],
    free: impl Fn(usize) -> bool,
) -> RowMap {
    let mut places: Vec<usize> = (0..rows).filter(|row| row % 10 != 9 && free(*row)).collect();
    places.sort_by_key(|row| row.wrapping_mul(0x9E37_79B9) & 0xFFFF);
    let (mut row_of, mut assignment_of) = (vec![-1; tokens * slots], vec![-1; rows]);
    let kept = (0..tokens * slots).filter(|assignment| assignment % 4 != 3);
    for (assignment, row) in kept.zip(places) {
        row_of[assignment] = row as i32;
        assignment_of[row] = assignment as i32;
    }
    let by_slot = (0..slots * tokens).map(|i| row_of[i % tokens * slots + i / tokens]).collect();
    let twice = assignment_of.iter().flat_map(|assignment| [*assignment, -7]).collect();
    let row_of = draw.integers(by_slot, [slots, tokens]).swap_dims(0, 1);
    let assignment_of = draw.integers(twice, [rows, 2]).narrow(1, 0, 1).reshape([rows]);
    RowMap::new(row_of, assignment_of)
}

fn dispatch([tokens, slots, rows, dim]: [usize; 4]) -> Check {
    let shape = format!("dispatch {tokens} tokens, {slots} slots, {rows} rows of {dim}, views");
    Check::new("permute", shape, 1e-6, move |device, body| {
        let mut draw = Draw::new(device);
        // Tokens among others.
        let x = draw.leaf([tokens + 128, dim]);
        let map = map(&draw, [tokens, slots, rows], |_| true);
        let op = match body {
            Body::Kernel => dispatch_rows,
            Body::Reference => dispatch_reference,
        };
        let y = op(x.clone().narrow(0, 64, tokens), &map);
        let grads = draw.backward(&y);
        Outputs::default().float("y", y).gradient("dx", &x, &grads)
    })
}

fn combine([tokens, slots, rows, dim]: [usize; 4], num_parts: usize) -> Check {
    let shape = format!(
        "combine {tokens} tokens, {slots} slots, {rows} rows of {dim} in {num_parts} parts, views"
    );
    Check::new("permute", shape, 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let map = map(&draw, [tokens, slots, rows], |_| true);
        // The second part is empty; the last has what is left.
        let len = |part: usize| if part == 1 { 0 } else { rows / num_parts };
        let before_last: usize = (0..num_parts - 1).map(len).sum();
        let lens = (0..num_parts - 1).map(len).chain([rows - before_last]);
        let parts: Vec<Tensor<2>> = lens.map(|len| draw.leaf([dim, len])).collect();
        let weights = draw.leaf([slots, tokens]);
        let views = parts.iter().map(|part| part.clone().swap_dims(0, 1)).collect();
        let op = match body {
            Body::Kernel => combine_parts,
            Body::Reference => combine_reference,
        };
        let sum = op(views, weights.clone().swap_dims(0, 1), &map);
        let grads = draw.backward(&sum);
        let outputs = Outputs::default().float("sum", sum).gradient("dweights", &weights, &grads);
        parts.iter().fold(outputs, |outputs, part| outputs.gradient("dy", part, &grads))
    })
}
