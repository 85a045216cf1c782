//! bf16 on the CPU: what is stored or rounded as bf16 while arithmetic stays f32.

use burn::tensor::Element;
use half::bf16;

/// The element of a state that kernels update in f32 and keep as it is stored.
pub(crate) trait Stored: Element + bytemuck::Pod + Send + Sync {
    /// The value, exact.
    fn load(self) -> f32;
    /// The nearest value that can be stored, ties to even.
    fn store(value: f32) -> Self;
}

impl Stored for f32 {
    fn load(self) -> f32 {
        self
    }

    fn store(value: f32) -> Self {
        value
    }
}

impl Stored for bf16 {
    fn load(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    fn store(value: f32) -> Self {
        let bits = if value.is_nan() { f32::NAN.to_bits() } else { nearest(value).to_bits() };
        Self::from_bits((bits >> 16) as u16)
    }
}

/// The nearest bf16, ties to even; branch-free, so that loops over it vectorise.
pub(crate) fn nearest(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    if value.is_nan() { value } else { f32::from_bits(rounded) }
}

/// Each value becomes the [`nearest`] bf16.
pub(crate) fn round(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = nearest(*value));
}

/// The values as f32.
pub(crate) fn widen(values: &[bf16]) -> Vec<f32> {
    values.iter().map(|value| value.load()).collect()
}

/// Stores each of `values` in `out`.
///
/// # Panics
/// If lengths differ.
pub(crate) fn store_all(values: &[f32], out: &mut [bf16]) {
    assert_eq!(values.len(), out.len(), "a place for each value");
    for (out, value) in out.iter_mut().zip(values) {
        *out = bf16::store(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_stored_as_the_nearest_bf16_with_ties_to_even() {
        // Ties above and below an odd and an even mantissa, the largest f32, subnormals, infinities.
        let ties = [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x3f80_7fff, 0x7f7f_ffff, 0x0000_8001];
        let plain = [0.0f32, -0.0, 1.0, -3.7, 1e-39, 1e38, f32::INFINITY, f32::NEG_INFINITY];
        for value in ties.map(f32::from_bits).into_iter().chain(plain) {
            for value in [value, -value] {
                let expected = bf16::from_f32(value);
                assert_eq!(bf16::store(value).to_bits(), expected.to_bits(), "{value:e}");
                assert_eq!(nearest(value).to_bits(), expected.to_f32().to_bits(), "{value:e}");
                assert_eq!(expected.load().to_bits(), expected.to_f32().to_bits(), "{value:e}");
            }
        }
        // A NaN whose mark lies in the bits that are cut off stays one.
        let faint = f32::from_bits(0x7f80_0001);
        assert!(bf16::store(faint).is_nan() && nearest(faint).is_nan());
    }
}
