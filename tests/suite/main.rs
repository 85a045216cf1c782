//! The whole, seen through the facade.
