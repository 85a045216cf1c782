//! `L = L0 + A C^-alpha`.

use serde::{Deserialize, Serialize};

/// A power law in compute above an asymptote.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PowerLaw {
    /// Loss that no compute gets below, `L0`, in nats.
    pub asymptote: f64,
    /// Loss above it at one FLOP, `A`.
    pub amplitude: f64,
    /// `alpha`.
    pub exponent: f64,
}

impl PowerLaw {
    /// Least squares of `ln(L - L0)` over `ln C`, of (FLOPs, loss) with losses above the asymptote and
    /// at least two different FLOPs.
    pub fn fit(points: &[(f64, f64)], asymptote: f64) -> Self {
        let logs: Vec<(f64, f64)> =
            points.iter().map(|(flops, loss)| (flops.ln(), (loss - asymptote).ln())).collect();
        let (slope, intercept) = line(&logs);
        Self { asymptote, amplitude: intercept.exp(), exponent: -slope }
    }

    /// The loss after so many FLOPs.
    pub fn loss(&self, flops: f64) -> f64 {
        self.asymptote + self.amplitude * flops.powf(-self.exponent)
    }

    /// The FLOPs after which the law has this loss; infinite at or below the asymptote.
    pub fn flops(&self, loss: f64) -> f64 {
        ((loss - self.asymptote).max(0.0) / self.amplitude).powf(-1.0 / self.exponent)
    }
}

/// Slope and intercept of the line of least squares.
pub(super) fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let (x_mean, y_mean) =
        points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (above, below) = points.iter().fold((0.0, 0.0), |(above, below), (x, y)| {
        (above + (x - x_mean) * (y - y_mean), below + (x - x_mean) * (x - x_mean))
    });
    let slope = above / below;
    (slope, y_mean - slope * x_mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_a_law_give_the_law() {
        let law = PowerLaw { asymptote: 1.5, amplitude: 84.0, exponent: 0.09 };
        let points = [1e19, 3e20, 1e21].map(|flops| (flops, law.loss(flops)));
        let fitted = PowerLaw::fit(&points, 1.5);
        assert!((fitted.amplitude / 84.0 - 1.0).abs() < 1e-9, "{fitted:?}");
        assert!((fitted.exponent - 0.09).abs() < 1e-12, "{fitted:?}");
        assert!((fitted.flops(fitted.loss(7e22)) / 7e22 - 1.0).abs() < 1e-9);
        assert!(fitted.flops(1.4).is_infinite());
    }
}
