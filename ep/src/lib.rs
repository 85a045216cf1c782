#![doc = include_str!("../README.md")]

pub mod capacity;
pub mod counts;
pub mod dispatch;
pub mod replay;

mod error;

pub use counts::DispatchCounts;
pub use dispatch::local::Local;
pub use dispatch::{Combined, Dispatched, ExpertRows, TokenDispatcher};
pub use error::EpError;
