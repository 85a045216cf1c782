//! One alarm.

/// An alarm that turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is up now.
    Raised,
    /// It is down now.
    Cleared,
}

/// Up after `samples` values in a row above `raise_at`, down after as many at or below `clear_at`.
#[derive(Debug, Clone)]
pub(super) struct Alarm {
    pub(super) raise_at: f64,
    pub(super) clear_at: f64,
    samples: u64,
    up: bool,
    /// Values in a row that speak for a turn.
    in_a_row: u64,
}

impl Alarm {
    pub(super) fn new(raise_at: f64, clear_at: f64, samples: u64) -> Self {
        Self { raise_at, clear_at, samples, up: false, in_a_row: 0 }
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// One more value. What is not a number is beyond every limit.
    pub(super) fn sample(&mut self, value: f64) -> Option<Turn> {
        let within = |limit: f64| value <= limit;
        let for_a_turn = if self.up { within(self.clear_at) } else { !within(self.raise_at) };
        self.in_a_row = if for_a_turn { self.in_a_row + 1 } else { 0 };
        if self.in_a_row < self.samples {
            return None;
        }
        self.in_a_row = 0;
        self.up = !self.up;
        Some(if self.up { Turn::Raised } else { Turn::Cleared })
    }
}
