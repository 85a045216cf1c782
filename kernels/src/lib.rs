#![doc = include_str!("../README.md")]

pub mod bridge;
mod error;
mod flex;
mod parallel;
mod simd;

pub mod gated;
pub mod rms_norm;
pub mod short_conv;
pub mod silu;

pub use error::KernelError;
