use super::{AttentionOptions, attention, reference};
use crate::check::{Body, Check, Draw, Outputs};

/// Sizes of a call and the documents of its rows.
#[derive(Clone, Copy)]
struct Case {
    b: usize,
    h: usize,
    j: usize,
    own: usize,
    a: usize,
    /// Document ids and their lengths; an id may come back.
    documents: &'static [(i32, usize)],
    window: Option<usize>,
    rope_base: Option<f64>,
}

pub(crate) fn checks() -> Vec<Check> {
    const SHORT: &[(i32, usize)] = &[(3, 7)];
    const PACKED: &[(i32, usize)] = &[(0, 1), (1, 30), (2, 2), (3, 50)];
    const LONG: &[(i32, usize)] = &[(0, 70), (1, 1), (2, 90)];
    const BACK: &[(i32, usize)] = &[(5, 40), (2, 40), (5, 40), (9, 30), (2, 1)];
    let case = |documents, window, rope_base| Case {
        b: 1,
        h: 2,
        j: 1,
        own: 1,
        a: 8,
        documents,
        window,
        rope_base,
    };
    let rope = Some(1e4);
    let cases = [
        case(SHORT, None, rope),
        case(SHORT, Some(2), None),
        Case { b: 2, ..case(PACKED, None, rope) },
        case(PACKED, Some(20), rope),
        case(LONG, Some(1000), rope),
        case(LONG, Some(65), None),
        case(BACK, None, rope),
        case(BACK, Some(90), rope),
        // Each of these compiles kernels of its own.
        Case { h: 6, j: 3, own: 2, a: 12, ..case(PACKED, Some(64), rope) },
        Case { b: 2, h: 4, j: 2, own: 2, a: 5, ..case(SHORT, None, None) },
        Case { h: 3, a: 80, ..case(PACKED, Some(33), rope) },
    ];
    cases.map(check).into()
}

fn check(case: Case) -> Check {
    let Case { b, h, j, own, a, documents, window, rope_base } = case;
    let shape = format!(
        "b {b}, h {h}, j {j}, {own} own, a {a}, documents {documents:?}, window {window:?}, \
         rope {rope_base:?}, views"
    );
    Check::new("attention", shape, 1e-4, move |device, body| {
        // A small sum beside eps keeps gradients of the first positions away from 0.
        let options = AttentionOptions {
            own_kv_heads: own,
            window,
            rope_base,
            qk_mult: 1.3,
            norm_eps: 1e-6,
            exclusive_eps: 0.5,
        };
        let row: Vec<i32> = documents.iter().flat_map(|&(id, len)| vec![id; len]).collect();
        let s = row.len();
        let mut draw = Draw::new(device);
        let [q, v] = [h, j].map(|heads| draw.leaf([b, heads, s, a]));
        let [q_view, v_view] = [&q, &v].map(|x| x.clone().swap_dims(1, 2));
        // Positions among others.
        let k = draw.leaf([b, s + 128, j, a]);
        let k_view = k.clone().narrow(1, 64, s);
        let by_position = row.into_iter().flat_map(|id| vec![id; b]).collect();
        let segments = draw.integers(by_position, [s, b]).swap_dims(0, 1);
        let op = match body {
            Body::Kernel => attention,
            Body::Reference => reference,
        };
        let y = op(q_view, k_view, v_view, segments, &options);
        let grads = draw.backward(&y);
        Outputs::default()
            .float("y", y)
            .gradient("dq", &q, &grads)
            .gradient("dk", &k, &grads)
            .gradient("dv", &v, &grads)
    })
}
