//! Vectorised `exp` and what is built on it, compiled three times: for the default target, for AVX2
//! with FMA, and for AVX-512, chosen at run time.
//!
//! A loop is a type that implements [`Loop`]; [`vectorised`] runs it in the widest form the
//! processor has. The first form rounds differently (the others fuse multiply and add), so results
//! are equal bit for bit between runs on one machine, not between machines.

/// How `a * b + c` is rounded.
pub(crate) trait MulAdd {
    /// `a * b + c`.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// Rounds the product and the sum.
pub(crate) struct Separate;

impl MulAdd for Separate {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// Rounds once; fast only where the target has FMA.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Fused;

#[cfg(target_arch = "x86_64")]
impl MulAdd for Fused {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// A loop that [`vectorised`] compiles for each instruction set.
pub(crate) trait Loop {
    /// What the loop returns.
    type Output;
    /// The loop; mark it `#[inline(always)]`, else it stays in the default instruction set.
    fn run<M: MulAdd>(self) -> Self::Output;
}

/// Runs `body` with AVX-512, or with AVX2 and FMA, where the processor has them.
pub(crate) fn vectorised<L: Loop>(body: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features were detected in the line above.
        return unsafe { with_avx512(body) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the two features were detected in the line above.
        return unsafe { with_avx2(body) };
    }
    body.run::<Separate>()
}

/// Whether the processor has what loops in AVX-512 use.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
        && std::is_x86_feature_detected!("fma")
}

/// Other processors have other registers.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has_avx512() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
fn with_avx512<L: Loop>(body: L) -> L::Output {
    body.run::<Fused>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<L: Loop>(body: L) -> L::Output {
    body.run::<Fused>()
}

/// Asks for a row that will be read soon, wherever it lies; a hint and nothing else.
#[inline(always)]
pub(crate) fn prefetch(row: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    for line in row.chunks(16) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is one of a slice, and a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

/// `e^x` with a relative error below 2e-7; 0 below -104, infinity above 88.73, NaN for NaN.
///
/// With n = round(x / ln 2) and r = x - n ln 2 it is 2^n times a polynomial in r.
#[inline(always)]
pub(crate) fn exp<M: MulAdd>(x: f32) -> f32 {
    // Added and subtracted, it leaves the nearest integer, and that integer in its low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; n times the first is exact, since 355 has 9 bits and n at most 8.
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = (std::f64::consts::LN_2 - 355.0 / 512.0) as f32;
    // Comparisons, not `clamp`: a NaN must pass. Outside these bounds the result is 0 or infinity.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.5 { -104.5 } else { x };
    let shifted = M::mul_add(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = M::mul_add(n, -LN_2_LOW, M::mul_add(n, -LN_2_HIGH, x));
    // Weighted least-maximum fit of (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, error 3e-9.
    let p = M::mul_add(1.381_459_9e-3, r, 8.368_717e-3);
    let p = M::mul_add(p, r, 4.166_839e-2);
    let p = M::mul_add(p, r, 1.666_652_1e-1);
    let p = M::mul_add(p, r, 4.999_999_4e-1);
    let p = M::mul_add(p, r * r, r) + 1.0;
    // n reaches -151 and 128, which one exponent cannot hold: scale by two halves.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<M: MulAdd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<M>(-x))
}

/// Replaces every value by its exponential.
pub(crate) fn exp_in_place(values: &mut [f32]) {
    struct Exp<'a>(&'a mut [f32]);
    impl Loop for Exp<'_> {
        type Output = ();
        #[inline(always)]
        fn run<M: MulAdd>(self) {
            for value in self.0 {
                *value = exp::<M>(*value);
            }
        }
    }
    vectorised(Exp(values));
}

/// Replaces every value by its sigmoid.
pub(crate) fn sigmoid_in_place(values: &mut [f32]) {
    struct Sigmoid<'a>(&'a mut [f32]);
    impl Loop for Sigmoid<'_> {
        type Output = ();
        #[inline(always)]
        fn run<M: MulAdd>(self) {
            for value in self.0 {
                *value = sigmoid::<M>(*value);
            }
        }
    }
    vectorised(Sigmoid(values));
}

/// Replaces every value by `e^(value - shift)` and returns their sum.
pub(crate) fn exp_shifted_sum(values: &mut [f32], shift: f32) -> f32 {
    struct ExpSum<'a>(&'a mut [f32], f32);
    impl Loop for ExpSum<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<M: MulAdd>(self) -> f32 {
            let mut lanes = [0.0f32; LANES];
            let (blocks, rest) = self.0.as_chunks_mut::<LANES>();
            for block in blocks {
                for (lane, value) in lanes.iter_mut().zip(block) {
                    *value = exp::<M>(*value - self.1);
                    *lane += *value;
                }
            }
            for (lane, value) in lanes.iter_mut().zip(rest) {
                *value = exp::<M>(*value - self.1);
                *lane += *value;
            }
            sum_lanes(lanes)
        }
    }
    vectorised(ExpSum(values, shift))
}

/// The largest value; negative infinity for none. A NaN is passed over.
pub(crate) fn max(values: &[f32]) -> f32 {
    struct Max<'a>(&'a [f32]);
    impl Loop for Max<'_> {
        type Output = f32;
        #[inline(always)]
        fn run<M: MulAdd>(self) -> f32 {
            let mut lanes = [f32::NEG_INFINITY; LANES];
            let (blocks, rest) = self.0.as_chunks::<LANES>();
            for block in blocks {
                for (lane, &value) in lanes.iter_mut().zip(block) {
                    *lane = if value > *lane { value } else { *lane };
                }
            }
            lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &v| max.max(v))
        }
    }
    vectorised(Max(values))
}

/// The sum of `a[i] b[i]` over a row, in eight lanes so that it vectorises.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut lanes = [0.0f32; ROW_LANES];
    let (a_blocks, a_rest) = a.as_chunks::<ROW_LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<ROW_LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}

/// The sum of a row, in eight lanes so that it vectorises.
#[inline(always)]
pub(crate) fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; ROW_LANES];
    let (blocks, rest) = x.as_chunks::<ROW_LANES>();
    for block in blocks {
        for (lane, x) in lanes.iter_mut().zip(block) {
            *lane += x;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// The sum of the lanes in halves, which stays in vector registers.
#[inline(always)]
fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Running values a reduction keeps, four AVX2 or two AVX-512 registers: enough to hide most of the
/// latency of an add.
const LANES: usize = 32;

/// Running values of a sum over a row, which may be as short as a head.
const ROW_LANES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_in_ten_million_over_its_whole_range() {
        let inputs: Vec<f32> = (-870_000..=887_000).map(|i| i as f32 * 1e-4).collect();
        let mut found = inputs.clone();
        exp_in_place(&mut found);
        for (x, found) in inputs.iter().zip(found) {
            let expected = f64::from(*x).exp();
            let error = (f64::from(found) - expected).abs() / expected;
            assert!(error <= 2e-7, "exp({x}): found {found}, expected {expected}, error {error}");
            let separate = (f64::from(exp::<Separate>(*x)) - expected).abs() / expected;
            assert!(separate <= 2e-7, "exp({x}) without fma: error {separate}");
        }
    }

    #[test]
    fn exp_ends_in_zero_infinity_and_nan() {
        let mut x = [f32::NEG_INFINITY, -1e4, -110.0, 0.0, 88.8, 1e9, f32::INFINITY, f32::NAN];
        exp_in_place(&mut x);
        assert_eq!(x[..4], [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(x[4..7], [f32::INFINITY; 3]);
        assert!(x[7].is_nan());
        let mut subnormal = [-95.0f32];
        exp_in_place(&mut subnormal);
        let expected = (-95.0f64).exp();
        assert!((f64::from(subnormal[0]) - expected).abs() <= 2e-45, "{subnormal:?}");
    }

    #[test]
    fn sigmoid_saturates_and_keeps_small_values() {
        let mut x = [f32::NEG_INFINITY, -1e4, -80.0, 0.0, 2.0, 1e4, f32::NAN];
        sigmoid_in_place(&mut x);
        assert_eq!([x[0], x[1], x[3], x[5]], [0.0, 0.0, 0.5, 1.0]);
        assert!((f64::from(x[2]) / (-80.0f64).exp() - 1.0).abs() < 3e-7);
        assert!((f64::from(x[4]) - 1.0 / (1.0 + (-2.0f64).exp())).abs() < 1e-7);
        assert!(x[6].is_nan());
    }

    #[test]
    fn reductions_cover_whole_blocks_and_the_rest() {
        for len in [0, 1, 31, 32, 33, 100] {
            let mut x: Vec<f32> = (0..len).map(|i| (i * 7 % 13) as f32 * 0.1).collect();
            let largest = x.iter().fold(f32::NEG_INFINITY, |max, &v| max.max(v));
            assert_eq!(max(&x), largest, "length {len}");
            let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            assert!((f64::from(dot(&x, &x)) - squares).abs() <= 1e-6 * squares, "length {len}");
            let total: f64 = x.iter().copied().map(f64::from).sum();
            assert!((f64::from(sum(&x)) - total).abs() <= 1e-6 * total, "length {len}");
            let expected: f64 = x.iter().map(|&x| f64::from(x - 0.5).exp()).sum();
            let found = f64::from(exp_shifted_sum(&mut x, 0.5));
            assert!((found - expected).abs() <= 1e-6 * expected, "length {len}");
        }
    }
}
