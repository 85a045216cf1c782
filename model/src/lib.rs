#![doc = include_str!("../README.md")]

pub mod activations;
pub mod compute;
pub mod config;
pub mod flops;
pub mod params;
pub mod preset;

mod along;
pub mod attention;
pub mod block;
pub mod decode;
pub mod init;
pub mod moe;
pub mod norm;
pub mod recompute;
pub mod role;
pub mod short_conv;
pub mod transformer;
pub mod weights;

mod error;

pub use compute::Compute;
pub use config::ModelConfig;
pub use decode::{DecodeCache, Prompt};
pub use error::ModelError;
pub use init::Initializer;
pub use preset::{Preset, rung_steps};
pub use recompute::{BackwardPlan, GradientSink, Recompute};
pub use role::{Role, RoleTable};
pub use transformer::{ModelInput, Transformer};
