#![doc = include_str!("../README.md")]

pub mod bridge;
mod error;
mod flex;
mod hyperball;
mod matmul;
mod parallel;
mod simd;

pub mod adam;
pub mod combine_weights;
pub mod gated;
pub mod grouped_swiglu;
pub mod permute;
pub mod rms_norm;
pub mod short_conv;
pub mod silu;
pub mod top_k;

pub use error::KernelError;
