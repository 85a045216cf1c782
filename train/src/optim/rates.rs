//! Peak rates and Adam's constants from the budget of a run.

use serde::{Deserialize, Serialize};

use super::OptimizerConfig;

/// MuonH's peak rate over Adam's (SPEC section 4).
const MUONH_OVER_ADAM: f64 = 13.0 / 3.0;

/// A published fit of Adam's peak rate: `c N^a d^b sqrt(tokens per step)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateFit {
    /// 0.087571, -0.3461, -0.3448: the ladder and the hero run.
    #[default]
    Hero,
    /// 0.06602, -0.395, -0.150: the earlier fit of May.
    May,
}

/// Constants of a run's optimizer that do not change from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// Peak rate of Adam.
    pub lr_adam: f64,
    /// Peak rate of MuonH and AdamH.
    pub lr_muonh: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

impl RateFit {
    /// Adam's peak rate for a run of `tokens` tokens in all at width `hidden_dim`.
    pub fn peak_lr_adam(self, tokens: f64, hidden_dim: usize, tokens_per_step: f64) -> f64 {
        let (scale, by_tokens, by_width) = match self {
            Self::Hero => (0.087571, -0.3461, -0.3448),
            Self::May => (0.06602, -0.395, -0.150),
        };
        let width = (hidden_dim as f64).powf(by_width);
        scale * tokens.powf(by_tokens) * width * tokens_per_step.sqrt()
    }
}

impl Peaks {
    /// What `config` gives, completed from the budget (SPEC section 4).
    pub fn new(
        config: &OptimizerConfig,
        tokens: u64,
        hidden_dim: usize,
        tokens_per_step: u64,
    ) -> Self {
        let (n, b) = (tokens as f64, tokens_per_step as f64);
        let fitted = || config.rate_fit.peak_lr_adam(n, hidden_dim, b);
        let lr_adam = config.peak_lr_adam.unwrap_or_else(fitted);
        Self {
            lr_adam,
            lr_muonh: config.peak_lr_muonh.unwrap_or(MUONH_OVER_ADAM * lr_adam),
            beta2: config.beta2.unwrap_or_else(|| 0.999f64.powf(b / 131_072.0).clamp(0.95, 0.9999)),
            epsilon: config.epsilon.unwrap_or_else(|| 9.676e-18 * (n / b).sqrt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_of_the_ladder_are_the_published_ones() {
        // Source: the public run record (issue 8435), to the digits printed there.
        let rungs = [
            (11_420, 768, 1_024, 0.003651, 0.015819),
            (15_276, 1_024, 2_048, 0.003326, 0.014411),
            (15_128, 1_536, 6_144, 0.003436, 0.014889),
            (20_072, 2_048, 11_264, 0.003097, 0.013422),
            (390_251, 6_144, 11_264, 0.000759, 0.003290),
        ];
        for (steps, d, rows, adam, muonh) in rungs {
            let per_step = rows * 4_096;
            let peaks = Peaks::new(&OptimizerConfig::default(), steps * per_step, d, per_step);
            assert!((peaks.lr_adam - adam).abs() <= 5e-7, "d{d}: {peaks:?}");
            assert!((peaks.lr_muonh - muonh).abs() <= 5e-7, "d{d}: {peaks:?}");
        }
    }

    #[test]
    fn beta2_stays_between_its_bounds() {
        let beta2 =
            |per_step| Peaks::new(&OptimizerConfig::default(), 1 << 40, 768, per_step).beta2;
        assert_eq!(beta2(1_024), 0.9999);
        assert_eq!(beta2(11_264 * 4_096), 0.95);
        assert!((beta2(131_072) - 0.999).abs() < 1e-12);
    }
}
