//! Every kernel against its reference: values and gradients.

mod combine_weights;
mod compare;
mod gated;
mod grouped_swiglu;
mod permute;
mod adam;
mod compare;
mod golden;
mod rms_norm;
mod short_conv;
mod silu;
mod top_k;
