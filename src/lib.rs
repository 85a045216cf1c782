//! Fulmar trains fine-grained mixture-of-experts language models: the open Marin 535B-A23B recipe,
//! from a laptop-size rung to the hero run, in Rust, on Burn.
//!
//! This crate is a facade; each part is a crate of its own, and each can be used alone:
//!
//! | module | what it is |
//! |---|---|
//! | [`kernels`] | the hot operations, as Burn backend extensions |
//! | [`ep`] | how token rows reach their experts and come back |
//! | [`model`] | the transformer as Burn modules |
//! | [`data`] | documents to packed rows; batch `n` is a function of `n` |
//! | [`eval`] | held-out loss, bits per byte, samples |
//! | [`train`] | recipes, optimizer, loop, checkpoints |

#[doc(inline)]
pub use fulmar_data as data;
#[doc(inline)]
pub use fulmar_ep as ep;
#[doc(inline)]
pub use fulmar_eval as eval;
#[doc(inline)]
pub use fulmar_kernels as kernels;
#[doc(inline)]
pub use fulmar_model as model;
#[doc(inline)]
pub use fulmar_train as train;

/// What most programs need.
pub mod prelude {
    pub use fulmar_ep::{
        DispatchConfig, DispatchCounts, Dispatcher, Layout, Local, TokenDispatcher, WireBytes,
        World,
    };
    pub use fulmar_kernels::allocator::keep_freed_memory;
    pub use fulmar_kernels::device_panic::abort_on_device_panic;
    pub use fulmar_model::attention::Attention;
    pub use fulmar_model::moe::balance::Balancing;
    pub use fulmar_model::moe::quantile::{MarginRange, QuantileBalancing};
    pub use fulmar_model::moe::router::{Router, Routing};
    pub use fulmar_model::moe::{MoeLayer, Routed};
    pub use fulmar_model::norm::GatedRmsNorm;
    pub use fulmar_model::role::{Roles, join};
    pub use fulmar_model::{
        Initializer, ModelConfig, ModelInput, Preset, Role, RoleTable, Transformer,
    };
    pub use fulmar_train::{DeviceChoice, RunConfig, RunOptions, TrainError, run};
}
