//! How much of what the hardware can do a run uses.

use std::time::Instant;

use burn::tensor::{DType, Tensor};
use fulmar_model::Compute;

use crate::config::RunConfig;
use crate::device::OpenDevice;
use crate::parallel::RankKind;

/// Which operations `throughput/mfu` counts: those of SPEC section 7 with the output head, of
/// forward and backward, whatever is computed again; none of the optimizer's.
pub(crate) const FLOPS_RULE: &str = "with_head";

/// Where a peak comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeakSource {
    /// `log.peak_flops_per_second`.
    Given,
    /// A product of matrices at the start of the run.
    Measured,
}

impl PeakSource {
    /// As in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Measured => "measured",
        }
    }
}

/// What the devices of a run can do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// FLOP/s of all processes together.
    pub flops_per_second: f64,
    /// Where it comes from.
    pub source: PeakSource,
    /// Whether it is an accelerator's.
    pub accelerator: bool,
}

impl Peak {
    /// As the recipe gives it, or else as square products in the model's compute type reach it now
    /// on `device`. Ranks that are threads share one device, processes have one each.
    pub fn of(config: &RunConfig, device: &OpenDevice) -> Self {
        let devices = match config.parallel.ranks {
            RankKind::Threads => 1.0,
            RankKind::Mpi => config.parallel.num_ranks() as f64,
        };
        let (of_device, source) = match config.log.peak_flops_per_second {
            Some(given) => (given, PeakSource::Given),
            None => (measure(config.model.compute, device), PeakSource::Measured),
        };
        let accelerator = device.accelerator;
        Self { flops_per_second: devices * of_device, source, accelerator }
    }

    /// Percent of the peak that `flops` in `secs` are.
    pub fn percent(&self, flops: f64, secs: f64) -> f64 {
        100.0 * flops / secs / self.flops_per_second
    }
}

/// Best of a few products: a fraction of a second on either side.
fn measure(compute: Compute, device: &OpenDevice) -> f64 {
    let (size, repeats) = if device.accelerator { (4096, 10) } else { (1024, 3) };
    let dtype = match compute {
        Compute::F32 => DType::F32,
        Compute::Bf16 => DType::BF16,
    };
    let ones = || Tensor::<2>::ones([size, size], &device.device).cast(dtype);
    let (left, right) = (ones(), ones());
    let product = || {
        let started = Instant::now();
        let product = left.clone().matmul(right.clone());
        // Waits for the device; one value is all that travels.
        let _ = product.slice([0..1, 0..1]).into_data();
        started.elapsed().as_secs_f64()
    };
    // The first compiles and tunes.
    product();
    let best = (0..repeats).map(|_| product()).fold(f64::INFINITY, f64::min);
    2.0 * (size as f64).powi(3) / best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceChoice, open};
    use fulmar_model::Preset;

    #[test]
    fn a_given_peak_is_of_each_process_and_half_of_it_is_fifty_percent() {
        let device = open(DeviceChoice::Cpu).expect("a CPU");
        let mut config = RunConfig::preset(Preset::MiniD96);
        config.log.peak_flops_per_second = Some(2e12);
        config.parallel.shards = 4;
        let threads = Peak::of(&config, &device);
        assert_eq!((threads.flops_per_second, threads.source), (2e12, PeakSource::Given));
        assert_eq!(threads.percent(3e12, 3.0), 50.0);
        config.parallel.ranks = RankKind::Mpi;
        assert_eq!(Peak::of(&config, &device).flops_per_second, 8e12);
    }

    #[test]
    fn a_measured_peak_is_what_a_product_reaches() {
        let device = open(DeviceChoice::Cpu).expect("a CPU");
        for compute in [Compute::F32, Compute::Bf16] {
            let mut config = RunConfig::preset(Preset::MiniD96);
            config.model.compute = compute;
            let peak = Peak::of(&config, &device);
            assert_eq!(peak.source, PeakSource::Measured);
            // From an emulated processor to a node of accelerators.
            assert!((1e7..1e16).contains(&peak.flops_per_second), "{peak:?}");
        }
    }
}
