use super::{Header, pack_rows, reference};
use crate::check::{Body, Check, Draw, Outputs};
use crate::permute::check_map;

pub(crate) fn checks() -> Vec<Check> {
    [
        ([1, 1, 2, 3], 1, 1),
        ([5, 2, 12, 7], 3, 1),
        ([130, 4, 400, 33], 4, 2),
        ([40, 8, 200, 96], 2, 0),
    ]
    .map(|(size, parts, header_rows)| check(size, parts, header_rows))
    .into()
}

fn check([tokens, slots, rows, dim]: [usize; 4], parts: usize, header_rows: usize) -> Check {
    let shape = format!(
        "{tokens} tokens, {slots} slots, {parts} parts, {rows} rows of {dim}, \
         {header_rows} header rows a part, views"
    );
    Check::new("pack", shape, 1e-6, move |device, body| {
        let mut draw = Draw::new(device);
        let x = draw.leaf([dim, tokens]);
        let of_part = rows / parts;
        let map = check_map(&draw, [tokens, slots, rows], |row| row % of_part >= header_rows);
        let values = (0..parts * header_rows * dim).map(|i| i as f32 - 40.0).collect();
        let header = Header { parts, rows: header_rows, values: Vec::into(values) };
        let op = match body {
            Body::Kernel => pack_rows,
            Body::Reference => reference,
        };
        let packed = op(x.clone().swap_dims(0, 1), &map, &header);
        let grads = draw.backward(&packed);
        Outputs::default().float("packed", packed).gradient("dx", &x, &grads)
    })
}
