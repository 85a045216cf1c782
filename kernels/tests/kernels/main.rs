//! Every kernel against its reference: values and gradients.

mod adam;
mod combine_weights;
mod compare;
mod gated;
mod golden;
mod grouped_swiglu;
mod permute;
mod rms_norm;
mod short_conv;
mod silu;
mod top_k;
