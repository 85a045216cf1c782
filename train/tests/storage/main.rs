//! What every storage promises, kept by each kind of place.

mod contract;
mod places;
#[cfg(feature = "cloud")]
mod s3;
