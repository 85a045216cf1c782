//! The short depthwise convolution along a row.

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use fulmar_kernels::short_conv::short_conv;

use crate::init::Initializer;
use crate::role::{Role, RoleTable, Roles};

/// A causal convolution of a few taps a channel that never reads another document.
#[derive(Module, Debug)]
pub struct ShortConv {
    /// [taps, channels]; tap `i` multiplies the value `i` positions back.
    pub weight: Param<Tensor<2>>,
}

impl ShortConv {
    /// The identity: tap 0 is 1, the others 0.
    pub fn new(taps: usize, channels: usize, init: &Initializer) -> Self {
        let mut weight = vec![0.0; taps * channels];
        weight[..channels].fill(1.0);
        Self { weight: init.values(weight, [taps, channels]) }
    }

    /// `x` [b, s, channels] to the same shape; `segment_ids` [b, s] name the documents.
    pub fn forward(&self, x: Tensor<3>, segment_ids: Tensor<2, Int>) -> Tensor<3> {
        short_conv(x, self.weight.val(), segment_ids)
    }
}

impl Roles for ShortConv {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        table.declare(path, "weight", Role::Convolution);
    }
}
