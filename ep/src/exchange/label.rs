//! What exchanges are for, as peers compare it.

/// Names an exchange and its backward.
///
/// Ranks that are in different exchanges must notice: two waves move equally many words, and
/// nothing else would tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Of the forward pass.
    pub forward: &'static str,
    /// Of the backward pass.
    pub backward: &'static str,
}

macro_rules! label {
    ($name:expr) => {
        Label { forward: $name, backward: concat!($name, ", backward") }
    };
}

/// Labels of the first waves; later ones have those of the wave so many before.
macro_rules! waves {
    ($name:literal) => {
        [
            label!(concat!($name, ", wave 0")),
            label!(concat!($name, ", wave 1")),
            label!(concat!($name, ", wave 2")),
            label!(concat!($name, ", wave 3")),
            label!(concat!($name, ", wave 4")),
            label!(concat!($name, ", wave 5")),
            label!(concat!($name, ", wave 6")),
            label!(concat!($name, ", wave 7")),
        ]
    };
}

impl Label {
    /// Rows to experts.
    pub const DISPATCH: Self = label!("dispatch");
    /// Rows back from experts.
    pub const COMBINE: Self = label!("combine");
    /// Weights to where the sums are formed.
    pub const WEIGHTS: Self = label!("weights");

    const DISPATCH_WAVES: [Self; 8] = waves!("dispatch");
    const COMBINE_WAVES: [Self; 8] = waves!("combine");

    /// Rows to experts, in one of several waves.
    pub fn dispatch_wave(wave: usize) -> Self {
        Self::DISPATCH_WAVES[wave % Self::DISPATCH_WAVES.len()]
    }

    /// Rows back from experts, in one of several waves.
    pub fn combine_wave(wave: usize) -> Self {
        Self::COMBINE_WAVES[wave % Self::COMBINE_WAVES.len()]
    }
}
