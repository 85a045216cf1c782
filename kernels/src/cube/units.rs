//! Functions of kernels in which the units of a cube work together.

use cubecl::prelude::*;

/// The sum of a value of each unit, a power of two of them, for all units to read.
#[cube]
pub(crate) fn sum_of_units(value: f32, #[comptime] units: usize) -> f32 {
    let mut sums = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    sums[unit] = value;
    sync_cube();
    let mut half = (units / 2).runtime();
    while half > 0 {
        if unit < half {
            let other = sums[unit + half];
            sums[unit] += other;
        }
        sync_cube();
        half /= 2;
    }
    let sum = sums[0];
    // Until all have read it, nobody may sum again.
    sync_cube();
    sum
}

/// The largest of a value of each unit, a power of two of them, for all units to read.
#[cube]
pub(crate) fn max_of_units(value: f32, #[comptime] units: usize) -> f32 {
    let mut largest = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    largest[unit] = value;
    sync_cube();
    let mut half = (units / 2).runtime();
    while half > 0 {
        if unit < half {
            let other = largest[unit + half];
            largest[unit] = max(largest[unit], other);
        }
        sync_cube();
        half /= 2;
    }
    let max = largest[0];
    // Until all have read it, nobody may write again.
    sync_cube();
    max
}
