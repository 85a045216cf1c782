//! What the `CubeCL` kernels of all operations share.
//!
//! An operation's `cube.rs` checks and lays out the arguments, makes the outputs and launches; its
//! `cube/kernel.rs` holds the `#[cube]` functions and imports nothing of Burn, whose names clash
//! with theirs. Kernels read f32 or bf16 and compute in f32. Each value is written by one unit, and
//! sums are formed in an order that depends on shapes alone, so results repeat: no atomics, but for
//! counts, which are whole numbers.
//!
//! Dimensions are arguments of a kernel, since a buffer that a view lies in may go on behind it;
//! only the length of an output that was just made is that of its buffer.

mod args;
pub(crate) mod hyperball;
mod launch;
mod matmul;
mod sum;
pub(crate) mod tile;
pub(crate) mod units;
pub(crate) mod values;

pub(crate) use args::{dims, empty, float, floats, ids, reshaped, storage, unshared, zeros};
pub(crate) use launch::{per_element, per_row, per_tile, vector_size};
pub(crate) use matmul::product;
pub(crate) use sum::{ROW_BLOCK, sum_rows};
