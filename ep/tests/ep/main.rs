//! The rules by which assignments reach experts, and whoever claims to follow them.

mod case;
mod golden;
mod random;
mod reference;
mod rules;
