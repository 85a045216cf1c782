//! Deterministic inputs, and a comparison that shows where two tensors part.

use std::fmt::Debug;

use burn::tensor::{Device, Tensor, TensorData};
use fulmar_kernels::device_panic::abort_on_device_panic;

/// The device of the kernels under test.
pub(crate) fn device() -> Device {
    abort_on_device_panic();
    Device::flex()
}

/// Values in [-1, 1) that differ by `salt`; no generator, so a failure reproduces by eye.
pub(crate) fn values(len: usize, salt: u64) -> Vec<f32> {
    (0..len as u64)
        .map(|i| {
            let mut z =
                (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt.wrapping_mul(0xD1B5_4A32);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z >> 40) as f32) / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// A tensor of [`values`] outside any graph.
pub(crate) fn tensor<const D: usize>(shape: [usize; D], salt: u64) -> Tensor<D> {
    let data = TensorData::new(values(shape.iter().product(), salt), shape);
    Tensor::from_data(data, &device())
}

/// The values of a tensor in row-major order.
pub(crate) fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().expect("f32")
}

/// The values of a tensor as bits, which tell signs of zero and NaN apart.
pub(crate) fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    floats(tensor).into_iter().map(f32::to_bits).collect()
}

/// A leaf whose gradient is wanted.
pub(crate) fn leaf<const D: usize>(shape: [usize; D], salt: u64) -> Tensor<D> {
    Tensor::from_inner(tensor(shape, salt)).require_grad()
}

/// Fails unless the two differ by at most `tolerance` of the largest entry of `expected`.
pub(crate) fn assert_close<const D: usize>(
    name: &str,
    found: Tensor<D>,
    expected: Tensor<D>,
    tolerance: f32,
) {
    assert_eq!(found.dims(), expected.dims(), "{name}: shape");
    let (found, expected) = (floats(found), floats(expected));
    let scale = expected.iter().fold(0.0f32, |max, v| max.max(v.abs())).max(1e-12);
    for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
        assert!(
            (f - e).abs() <= tolerance * scale,
            "{name}[{i}]: found {f}, expected {e}, tolerance {tolerance} of {scale}"
        );
    }
}

/// Fails unless the two are equal bit for bit.
pub(crate) fn assert_same_bits<const D: usize>(
    name: &str,
    found: &Tensor<D>,
    expected: &Tensor<D>,
) {
    assert_eq!(found.dims(), expected.dims(), "{name}: shape");
    assert_eq!(bits(found.clone()), bits(expected.clone()), "{name}: bits");
}

/// What `run` returns inside a pool of `threads` threads.
pub(crate) fn in_pool<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    pool.install(run)
}

/// Fails unless `run` returns the same in every run, and on one and on three threads.
pub(crate) fn assert_repeats<T: PartialEq + Debug + Send>(run: impl Fn() -> T + Sync) {
    let expected = run();
    assert_eq!(run(), expected, "a second run");
    for threads in [1, 3] {
        assert_eq!(in_pool(threads, &run), expected, "{threads} threads");
    }
}

/// Fails unless `gradient` is the central difference of `loss` at `x`, within `tolerance` of the
/// gradient's largest entry.
pub(crate) fn assert_gradient<const D: usize>(
    name: &str,
    loss: impl Fn(Tensor<D>) -> Tensor<1>,
    x: Tensor<D>,
    gradient: Tensor<D>,
    tolerance: f32,
) {
    const STEP: f32 = 1e-2;
    let (shape, start) = (x.dims(), floats(x));
    let at = |i: usize, step: f32| -> f32 {
        let mut moved = start.clone();
        moved[i] += step;
        loss(Tensor::from_data(TensorData::new(moved, shape), &device())).into_scalar()
    };
    let slopes: Vec<f32> =
        (0..start.len()).map(|i| (at(i, STEP) - at(i, -STEP)) / (2.0 * STEP)).collect();
    let expected = Tensor::from_data(TensorData::new(slopes, shape), &device());
    assert_close(name, gradient, expected, tolerance);
}
