//! The rules by which assignments reach experts, and whoever claims to follow them.

mod case;
mod exchange;
mod fates;
mod golden;
mod golden_ranks;
mod gradients;
mod order;
mod random;
mod ranks;
mod reference;
mod retrace;
mod rules;
