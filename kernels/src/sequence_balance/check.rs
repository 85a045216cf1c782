use super::{reference, sequence_balance};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    [[1, 1, 3, 2], [2, 5, 7, 2], [1, 130, 48, 4], [5, 33, 33, 8], [3, 64, 9, 1]].map(check).into()
}

fn check([rows, seq_len, e, k]: [usize; 4]) -> Check {
    let shape = format!("{rows} rows of [{seq_len}, {e}], k {k}, padding, a row without a token");
    Check::new("sequence_balance", shape, 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let t = rows * seq_len;
        let logits = draw.leaf([e, t]);
        // Spread over the experts; every fifth slot has none.
        let id = |i: usize| if i % 5 == 4 { -1 } else { (i * (e / 2 + 1) % e) as i32 };
        let selected = draw.integers((0..t * k).map(id).collect(), [k, t]).swap_dims(0, 1);
        let last = if rows > 1 { t - seq_len } else { t };
        let valid = (0..t).map(|i| i32::from(i % 3 != 1 && i < last)).collect();
        let valid = draw.integers(valid, [t]);
        let op = match body {
            Body::Kernel => sequence_balance,
            Body::Reference => reference,
        };
        let scores = logits.clone().swap_dims(0, 1).mul_scalar(4.0);
        let loss = op(scores, selected, valid, seq_len);
        let grads = draw.backward(&loss);
        Outputs::default().float("loss", loss).gradient("dlogits", &logits, &grads)
    })
}
