//! Random numbers with an address.
//!
//! A stream is a function of a seed and of what it is for, so that what is drawn for a document
//! does not depend on threads or on what was drawn before. Our own arithmetic, so that a plan does
//! not change with a library's version.
//!
//! # Source
//! splitmix64: Steele, Lea and Flood (2014). Gamma variates: Marsaglia and Tsang (2000).

/// 2^64 divided by the golden ratio, the increment of splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A splitmix64 stream.
#[derive(Debug, Clone)]
pub(super) struct Stream(u64);

impl Stream {
    /// The stream of an address.
    pub(super) fn at(seed: u64, address: &[u64]) -> Self {
        let fold = |state: u64, part: &u64| mix(state.wrapping_add(GOLDEN) ^ mix(*part));
        Self(address.iter().fold(mix(seed), fold))
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Uniform in the open interval 0 to 1, so that its logarithm is finite.
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Standard normal (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// `-ln(-ln(u))`: the largest of such noise plus log-weights chooses by weight.
    pub(super) fn gumbel(&mut self) -> f64 {
        -(-self.uniform().ln()).ln()
    }

    /// Logarithm of a gamma variate of scale 1; for small shapes the variate itself underflows.
    pub(super) fn ln_gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            return self.ln_gamma(shape + 1.0) + self.uniform().ln() / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d.ln() + v.ln();
            }
        }
    }
}

/// The finaliser of splitmix64: a bijection that mixes all bits.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_variates_have_their_mean_and_variance() {
        for shape in [0.2_f64, 1.0, 7.5] {
            let mut stream = Stream::at(1, &[(shape * 10.0) as u64]);
            let draws: Vec<f64> = (0..100_000).map(|_| stream.ln_gamma(shape).exp()).collect();
            let mean = draws.iter().sum::<f64>() / 1e5;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
            // Both are `shape`; the mean's own error is sqrt(shape / 1e5).
            assert!((mean / shape - 1.0).abs() < 0.03, "shape {shape}: mean {mean}");
            assert!((variance / shape - 1.0).abs() < 0.1, "shape {shape}: variance {variance}");
        }
    }
}
