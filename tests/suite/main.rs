//! The whole, seen through the facade.

mod licences;
