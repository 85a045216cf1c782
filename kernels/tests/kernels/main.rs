//! Every kernel against its reference: values and gradients.

mod adam;
mod attention;
mod check;
mod combine_weights;
mod compare;
mod cross_entropy;
mod gated;
mod golden;
mod grouped_swiglu;
mod margins;
mod muonh;
mod newton_schulz;
mod pack;
mod permute;
mod products_bf16;
mod rms_norm;
mod route;
mod routing_statistics;
mod sequence_balance;
mod short_conv;
mod silu;
mod top_k;
mod with_backward;
