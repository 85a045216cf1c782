use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{BlockStatistics, block_statistics, reference};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    [[1, 3, 1], [5, 7, 2], [65, 48, 4], [300, 33, 8], [70, 384, 8]].map(check).into()
}

fn check([t, e, k]: [usize; 3]) -> Check {
    let shape = format!("[{t}, {e}], k {k}, padding that is not finite, views");
    Check::new("routing_statistics", shape, 1e-5, move |device, body| {
        let mut draw = Draw::new(device);
        let logits = draw.tensor([e, t]).swap_dims(0, 1).mul_scalar(4.0);
        let alpha = draw.tensor([t]);
        // Spread over the experts; every fifth slot has none.
        let id = |i: usize| if i % 5 == 4 { -1 } else { (i * (e / 2 + 1) % e) as i32 };
        let selected = draw.integers((0..t * k).map(id).collect(), [k, t]).swap_dims(0, 1);
        let valid = (0..t).map(|i| i32::from(i % 3 != 1)).collect();
        let logits = if t > 1 { logits.slice_fill([1..2, 0..1], f32::NAN) } else { logits };
        let op = match body {
            Body::Kernel => block_statistics,
            Body::Reference => reference,
        };
        outputs(op(logits, selected, alpha, draw.integers(valid, [t])))
    })
}

/// Blocks are a device's own affair; what is read adds them up.
fn outputs(found: BlockStatistics) -> Outputs {
    let (read, device) = (found.read(), Device::flex());
    let counts: Vec<i64> = read.expert_counts.iter().map(|count| *count as i64).collect();
    let counts = Tensor::<1, Int>::from_data(TensorData::from(&counts[..]), &device);
    let tokens = Tensor::<1, Int>::from_data([read.tokens as i64], &device);
    let floats = |values: &[f64]| {
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        Tensor::<1>::from_data(TensorData::from(&values[..]), &device)
    };
    Outputs::default()
        .integers("expert_counts", counts)
        .integers("tokens", tokens)
        .float("probability_sums", floats(&read.probability_sums))
        .float("z_sum", floats(&[read.z_sum]))
        .float("margin_bounds", Tensor::<1>::from_data(read.margin_bounds, &device))
}
