//! Every operation against its reference at small and awkward shapes, on whatever device there is.
//!
//! A kernel that a device's compiler gets wrong trains on noise without a word, so a device is
//! asked before it is trusted: [`all`] lists the checks, and [`Check::compare`] runs one.

mod draw;
mod outputs;

use burn::tensor::Device;

pub(crate) use draw::Draw;
pub use outputs::{Deviation, Output, Outputs};

/// Which of the two bodies of an operation computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// What the device runs in training.
    Kernel,
    /// The meaning of the operation in plain tensor operations.
    Reference,
}

type Run = dyn Fn(&Device, Body) -> Outputs + Send + Sync;

/// One operation at one shape, forward and, where it has one, backward.
pub struct Check {
    /// The operation, by the name of its module.
    pub op: &'static str,
    /// The shape, and what is special about it.
    pub shape: String,
    /// The largest deviation allowed, relative to the largest value of an output.
    pub tolerance: f64,
    run: Box<Run>,
}

impl Check {
    pub(crate) fn new(
        op: &'static str,
        shape: impl Into<String>,
        tolerance: f64,
        run: impl Fn(&Device, Body) -> Outputs + Send + Sync + 'static,
    ) -> Self {
        Self { op, shape: shape.into(), tolerance, run: Box::new(run) }
    }

    /// The results of one body on `device`.
    pub fn outputs(&self, device: &Device, body: Body) -> Outputs {
        (self.run)(device, body)
    }

    /// How far the kernel on `device` is from the reference on the CPU, output by output.
    pub fn compare(&self, device: &Device) -> Vec<Deviation> {
        let expected = self.outputs(&Device::flex(), Body::Reference);
        self.outputs(device, Body::Kernel).deviations(&expected)
    }

    /// Whether every deviation is within the tolerance; false where one is NaN.
    pub fn passes(&self, deviations: &[Deviation]) -> bool {
        deviations.iter().all(|deviation| deviation.relative <= self.tolerance)
    }
}

/// The checks of every operation.
///
/// None has an input without values: `train doctor` times the references on a device too, and some
/// of Burn's operations panic there. What kernels make of nothing is tested by itself.
pub fn all() -> Vec<Check> {
    let of_ops = [
        crate::adam::checks(),
        crate::attention::checks(),
        crate::combine_weights::checks(),
        crate::cross_entropy::checks(),
        crate::gated::checks(),
        crate::grouped_swiglu::checks(),
        crate::margins::checks(),
        crate::muonh::checks(),
        crate::newton_schulz::checks(),
        crate::pack::checks(),
        crate::permute::checks(),
        crate::rms_norm::checks(),
        crate::route::checks(),
        crate::routing_statistics::checks(),
        crate::sequence_balance::checks(),
        crate::short_conv::checks(),
        crate::silu::checks(),
        crate::top_k::checks(),
    ];
    of_ops.into_iter().flatten().collect()
}
