use super::{MarginBins, Margins, crossings, crossings_reference, reference};
use crate::check::{Body, Check, Draw, Outputs};

pub(crate) fn checks() -> Vec<Check> {
    let shapes = [[1, 3, 1], [5, 7, 10], [65, 48, 100], [300, 33, 1000], [70, 384, 257]];
    let of = |[t, e, len]: [usize; 3]| {
        let range = MarginBins::Range { low: -4.5, width: 9.0 / len as f32, len };
        // The aligned bins of a range of 9, cut off at both ends.
        let exponent = (9.0 / len as f32).log2().floor() as i32;
        let first = (-4.0 * 2f32.powi(-exponent)) as i64;
        let aligned = MarginBins::Aligned { exponent, first, len };
        [check([t, e], range, "a range"), check([t, e], aligned, "an aligned grid")]
    };
    shapes.into_iter().flat_map(of).collect()
}

fn check([t, e]: [usize; 2], bins: MarginBins, which: &str) -> Check {
    let len = bins.count();
    let shape = format!("[{t}, {e}] in {len} bins of {which}, padding that is not finite, views");
    Check::new("margins", shape, 0.0, move |device, body| {
        let mut draw = Draw::new(device);
        let logits = draw.tensor([e, t]).swap_dims(0, 1).mul_scalar(4.0);
        let alpha = draw.tensor([t]);
        let logits = if t > 1 { logits.slice_fill([1..2, 0..1], f32::NAN) } else { logits };
        let valid = draw.integers((0..t).map(|i| i32::from(i % 3 != 1)).collect(), [t]);
        let margins = Margins::new(logits, alpha, valid);
        let (few, half) = (1, (t / 3) as i32);
        let (counts, at) = match body {
            Body::Kernel => {
                let counts = margins.clone().histogram(bins);
                let of_counts = crossings(counts.clone(), few);
                (counts, [of_counts, margins.crossings(bins, half as u64)])
            }
            Body::Reference => {
                let counts = reference(margins, bins);
                let at = [few as i32, half].map(|rank| crossings_reference(counts.clone(), rank));
                (counts, at)
            }
        };
        let [of_counts, of_margins] = at;
        Outputs::default()
            .integers("counts", counts)
            .integers("crossings of counts", of_counts)
            .integers("crossings of margins", of_margins)
    })
}
