#![doc = include_str!("../README.md")]

pub mod allocator;
mod bf16;
pub mod bridge;
pub mod check;
#[cfg(feature = "cube")]
mod cube;
#[cfg(test)]
mod defaults;
pub mod device_panic;
mod error;
mod flex;
mod graph;
mod hyperball;
mod matrix;
mod parallel;
mod row_products;
mod rows;
mod simd;
mod unwritten;

pub mod adam;
pub mod attention;
pub mod combine_weights;
pub mod cross_entropy;
pub mod gated;
pub mod grouped_swiglu;
pub mod margins;
pub mod muonh;
pub mod newton_schulz;
pub mod pack;
pub mod permute;
pub mod rms_norm;
pub mod route;
pub mod routing_statistics;
pub mod sequence_balance;
pub mod short_conv;
pub mod silu;
pub mod top_k;
pub mod with_backward;

pub use error::KernelError;
