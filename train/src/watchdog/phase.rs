//! What a rank can be doing.

use std::time::Duration;

/// What a rank does at the moment. The order is that of a step: of several ranks in one, the one
/// in the earliest phase is the one that others wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Opens device, data and state.
    Starting,
    /// Waits for its batch.
    Loading,
    /// Forward and backward over its rows, exchanges included.
    ForwardBackward,
    /// Sums gradients over ranks, takes norms and decides whether the step counts.
    Gradients,
    /// Updates parameters and biases.
    Update,
    /// Whatever comes between two steps: log lines, alarms, what ranks tell each other.
    Hooks,
    /// Evaluates held-out text.
    Evaluation,
    /// Saves.
    Saving,
    /// Bigram, samples and last words.
    Ending,
}

/// Things of one kind, whose durations can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// From loading to update.
    Step,
    /// An evaluation.
    Evaluation,
    /// A save.
    Saving,
}

impl Activity {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Evaluation => "evaluation",
            Self::Saving => "save",
        }
    }
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 9] = [
        Self::Starting,
        Self::Loading,
        Self::ForwardBackward,
        Self::Gradients,
        Self::Update,
        Self::Hooks,
        Self::Evaluation,
        Self::Saving,
        Self::Ending,
    ];

    /// As in messages and events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Loading => "loading",
            Self::ForwardBackward => "forward_backward",
            Self::Gradients => "gradients",
            Self::Update => "update",
            Self::Hooks => "hooks",
            Self::Evaluation => "evaluation",
            Self::Saving => "saving",
            Self::Ending => "ending",
        }
    }

    /// What it is part of; none if its duration says nothing.
    pub fn activity(self) -> Option<Activity> {
        match self {
            Self::Loading | Self::ForwardBackward | Self::Gradients | Self::Update => {
                Some(Activity::Step)
            }
            Self::Evaluation => Some(Activity::Evaluation),
            Self::Saving => Some(Activity::Saving),
            Self::Starting | Self::Hooks | Self::Ending => None,
        }
    }
}

/// Time by phase. A rank is always in one, so the parts add up to all the time that passed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PhaseSeconds([Duration; Phase::ALL.len()]);

impl PhaseSeconds {
    pub(super) fn add(&mut self, phase: Phase, time: Duration) {
        self.0[phase as usize] += time;
    }

    /// Seconds in `phase`.
    pub fn of(&self, phase: Phase) -> f64 {
        self.0[phase as usize].as_secs_f64()
    }

    /// Seconds in all of them.
    pub fn total(&self) -> f64 {
        self.0.iter().sum::<Duration>().as_secs_f64()
    }
}
