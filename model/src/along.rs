//! How a layer reaches other positions of a row: all at once, or those it kept of earlier passes.

use burn::tensor::{Int, Tensor};
use fulmar_kernels::attention::{AttentionOptions, attention};

use crate::config::ConvSite;
use crate::short_conv::ShortConv;

/// The two operations of a block that are not of one position alone.
pub(crate) trait Along {
    /// The convolution `conv` at `site` of `x` [b, s, channels].
    fn convolve(&mut self, site: ConvSite, conv: &ShortConv, x: Tensor<3>) -> Tensor<3>;

    /// Attention of queries [b, s, h, a] over keys and values [b, s, j, a].
    fn attend(&mut self, qkv: [Tensor<4>; 3], options: &AttentionOptions) -> Tensor<4>;

    /// As [`convolve`](Self::convolve), where there is a convolution.
    fn convolve_if(&mut self, site: ConvSite, conv: &Option<ShortConv>, x: Tensor<3>) -> Tensor<3> {
        match conv {
            Some(conv) => self.convolve(site, conv, x),
            None => x,
        }
    }
}

/// Every position of the rows that matters is in the pass at hand.
#[derive(Debug)]
pub(crate) struct WholeRows<'a> {
    /// [b, s].
    pub(crate) segment_ids: &'a Tensor<2, Int>,
}

impl Along for WholeRows<'_> {
    fn convolve(&mut self, _: ConvSite, conv: &ShortConv, x: Tensor<3>) -> Tensor<3> {
        conv.forward(x, self.segment_ids.clone())
    }

    fn attend(&mut self, qkv: [Tensor<4>; 3], options: &AttentionOptions) -> Tensor<4> {
        let [q, k, v] = qkv;
        attention(q, k, v, self.segment_ids.clone(), options)
    }
}
