mod kernel;

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{MarginBins, MarginKernel};
use crate::cube::{dims, empty, floats, ids, per_element, per_row, storage, zeros};

/// Bins that a unit adds up, before one looks for the rank.
const BINS_PER_UNIT: usize = 32;

impl MarginKernel for CubeBackend {
    fn histogram(
        logits: CubeTensor,
        alpha: CubeTensor,
        token_valid: CubeTensor,
        bins: MarginBins,
    ) -> CubeTensor {
        let [logits, alpha] = floats("margins", [("logits", logits), ("alpha", alpha)]);
        let token_valid = ids("margins", "token_valid", token_valid);
        let ([t, e], len) = (dims(&logits), bins.count());
        let counts = zeros(&logits, [e, len], DType::I32);
        if t * e == 0 {
            return counts;
        }
        let (client, dtype) = (logits.client.clone(), storage(&logits));
        let (cubes, units) = per_element(&client, t * e);
        // Both cases as `floor((margin - low) scale / width) - first` with an exact 0 or 1.
        let [low, scale, width, first] = match bins {
            MarginBins::Range { low, width, .. } => [low, 1.0, width, 0.0],
            MarginBins::Aligned { exponent, first, .. } => {
                [0.0, scale_of(exponent), 1.0, first as f32]
            }
        };
        kernel::histogram::launch(
            &client,
            cubes,
            units,
            logits.into_buffer_arg(),
            alpha.into_buffer_arg(),
            token_valid.into_buffer_arg(),
            counts.clone().into_buffer_arg(),
            t,
            e,
            len,
            low,
            scale,
            width,
            first,
            dtype,
        );
        counts
    }

    fn cross(counts: CubeTensor, rank: i32) -> CubeTensor {
        let counts = ids("crossings", "counts", counts);
        let [e, len] = dims(&counts);
        let crossings = empty(&counts, [e, 3], DType::I32);
        if e > 0 {
            let client = counts.client.clone();
            let (cubes, units) = per_row(&client, e, len / BINS_PER_UNIT);
            kernel::crossings::launch(
                &client,
                cubes,
                units,
                counts.into_buffer_arg(),
                crossings.clone().into_buffer_arg(),
                len,
                rank,
                units.num_elems() as usize,
            );
        }
        crossings
    }
}

/// # Panics
/// If the scale is not a normal f32.
fn scale_of(exponent: i32) -> f32 {
    assert!(
        (-126..=126).contains(&exponent),
        "margins: `exponent` is {exponent}, needed -126 to 126 on this device"
    );
    2f32.powi(-exponent)
}
