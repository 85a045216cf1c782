#![doc = include_str!("../README.md")]

pub mod capacity;
pub mod counts;
pub mod demand;
pub mod dispatch;
mod error;
pub mod report;
pub mod transport;
pub mod world;

pub use counts::DispatchCounts;
pub use demand::Demand;
pub use dispatch::local::Local;
pub use dispatch::{Combined, Dispatched, ExpertRows, TokenDispatcher};
pub use error::EpError;
pub use report::{DispatchReport, WireBytes, WireCounter};
pub use world::{Layout, World};
