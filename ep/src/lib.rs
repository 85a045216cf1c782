#![doc = include_str!("../README.md")]

pub mod capacity;
pub mod config;
pub mod counts;
pub mod demand;
pub mod dispatch;
pub mod replay;

mod error;
pub mod exchange;
pub mod report;
pub mod transport;
pub mod world;

pub use config::DispatchConfig;
pub use counts::DispatchCounts;
pub use demand::Demand;
pub use dispatch::local::Local;
pub use dispatch::{
    Combined, Dispatched, Dispatcher, ExpertRows, Keep, Retrace, TokenDispatcher, WaySize,
};
pub use error::EpError;
pub use exchange::Payload;
pub use report::{DispatchReport, WireBytes, WireCounter};
pub use world::{Layout, World};
