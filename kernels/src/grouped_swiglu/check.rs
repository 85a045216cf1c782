use super::{Groups, grouped_swiglu, reference};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let scattered = Groups::new(vec![40, 0, 12, 3, 20], vec![9, 3, 0, 7, 17], 60);
    vec![
        check(Groups::from_counts(&[1]), 1, 1),
        check(Groups::from_counts(&[3, 0, 5, 70, 1]), 7, 5),
        check(Groups::from_counts(&[33, 129]), 66, 80),
        check(scattered.expect("disjoint ranges"), 9, 12),
    ]
}

fn check(groups: Groups, c: usize, f: usize) -> Check {
    let shape = format!("c {c}, f {f}, {groups:?}, views");
    Check::new("grouped_swiglu", shape, 1e-5, move |device, body| {
        let (rows, g) = (groups.rows(), groups.num_groups());
        let mut draw = Draw::new(device);
        // Rows among others; no rows have none, since a view of no rows cannot be taken.
        let others = if rows == 0 { 0 } else { 64 };
        let x = draw.leaf([rows + 2 * others, c]);
        let of_groups = if rows == 0 { x.clone() } else { x.clone().narrow(0, others, rows) };
        let (w_gate, w_up, w_down) =
            (draw.leaf([g, f, c]), draw.leaf([g, f, c]), draw.leaf([g, c, f]));
        let [gate, up, down] = [&w_gate, &w_up, &w_down].map(|w| w.clone().swap_dims(1, 2));
        let op = match body {
            Body::Kernel => grouped_swiglu,
            Body::Reference => reference,
        };
        let y = op(of_groups, gate, up, down, &groups);
        let grads = draw.backward(&y);
        Outputs::default()
            .float("y", y)
            .gradient("dx", &x, &grads)
            .gradient("dw_gate", &w_gate, &grads)
            .gradient("dw_up", &w_up, &grads)
            .gradient("dw_down", &w_down, &grads)
    })
}
