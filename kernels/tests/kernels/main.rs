//! Every kernel against its reference: values and gradients.

mod compare;
mod rms_norm;
mod short_conv;
