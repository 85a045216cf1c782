//! What is slow and what is dead: a function of what was seen and how much time passed.

use std::time::Duration;

use super::phase::{Activity, Phase};
use crate::config::RunConfig;

/// Durations without which nothing can be called slow.
const FEWEST: usize = 3;

/// Seconds of silence that nobody who gave no number calls death, however short the deadline.
const LEAST_STUCK: f64 = 60.0;

/// When a watchdog speaks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Times the median of the last ones; 0 for never.
    pub slow_factor: f64,
    /// And at least so many seconds.
    pub slow_secs: f64,
    /// Without any progress of any rank; zero for never.
    pub stuck: Duration,
}

impl Limits {
    /// Those of a recipe.
    pub fn of(config: &RunConfig) -> Self {
        let guard = &config.guard;
        let stuck =
            guard.stuck_secs.unwrap_or(LEAST_STUCK.max(2.0 * config.parallel.deadline_secs));
        Self {
            slow_factor: guard.slow_factor,
            slow_secs: guard.slow_secs,
            stuck: Duration::from_secs_f64(stuck),
        }
    }
}

/// One rank as the board shows it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) rank: usize,
    /// Completed updates when the step at hand began.
    pub(super) step: u64,
    pub(super) phase: Phase,
    /// In the activity at hand so far.
    pub(super) secs: f64,
    /// Seconds of the last few of the same kind.
    pub(super) past: Vec<f64>,
    pub(super) beats: u64,
}

/// What the watchdog has to tell.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// Something takes much longer than the like did.
    Slow {
        /// What.
        activity: Activity,
        /// Completed updates when the step began.
        step: u64,
        /// The ranks that the others wait for, and what they do.
        behind: Vec<(usize, Phase)>,
        /// So far.
        secs: f64,
        /// Of the last ones.
        median: f64,
    },
    /// What was slow has ended.
    Over {
        /// What.
        activity: Activity,
        /// Completed updates when the step began.
        step: u64,
        /// What it took, as far as it was seen.
        secs: f64,
    },
    /// No rank of this process has made progress.
    Stuck {
        /// Every rank with the step it is in and what it does.
        ranks: Vec<(usize, u64, Phase)>,
        /// For how long.
        secs: f64,
    },
}

/// What a watchdog remembers from look to look.
#[derive(Debug, Default)]
pub(super) struct Judge {
    told: Option<(Activity, u64, f64)>,
    beats: Vec<u64>,
    silent: Duration,
}

impl Judge {
    /// What there is to tell, now that `passed` has passed since the last look.
    pub(super) fn look(
        &mut self,
        seen: &[Seen],
        limits: &Limits,
        passed: Duration,
    ) -> Vec<Finding> {
        let (over, slow) = (self.over(seen), self.slow(seen, limits));
        over.into_iter().chain(slow).chain(self.stuck(seen, limits, passed)).collect()
    }

    fn over(&mut self, seen: &[Seen]) -> Option<Finding> {
        let (activity, step, secs) = self.told.as_mut()?;
        let longest = of(seen, *activity, *step).map(|seen| seen.secs).reduce(f64::max);
        if let Some(longest) = longest {
            *secs = secs.max(longest);
            return None;
        }
        // Its own duration is the last one remembered, by whoever is at the next of its kind.
        let next = seen.iter().filter(|seen| seen.phase.activity() == Some(*activity));
        let took = next.filter_map(|seen| seen.past.last().copied()).reduce(f64::max);
        let (activity, step, secs) = self.told.take()?;
        Some(Finding::Over { activity, step, secs: took.unwrap_or(secs).max(secs) })
    }

    fn slow(&mut self, seen: &[Seen], limits: &Limits) -> Option<Finding> {
        if limits.slow_factor == 0.0 || self.told.is_some() {
            return None;
        }
        let (first, median) = seen.iter().find_map(|seen| {
            let median = median(&seen.past)?;
            let limit = (limits.slow_factor * median).max(limits.slow_secs);
            (seen.secs > limit).then_some((seen, median))
        })?;
        let (activity, step, secs) = (first.phase.activity()?, first.step, first.secs);
        self.told = Some((activity, step, secs));
        let phase = of(seen, activity, step).map(|seen| seen.phase).min()?;
        let behind = of(seen, activity, step).filter(|seen| seen.phase == phase);
        let behind = behind.map(|seen| (seen.rank, phase)).collect();
        Some(Finding::Slow { activity, step, behind, secs, median })
    }

    fn stuck(&mut self, seen: &[Seen], limits: &Limits, passed: Duration) -> Option<Finding> {
        let beats: Vec<u64> = seen.iter().map(|seen| seen.beats).collect();
        if beats != self.beats || seen.is_empty() {
            self.beats = beats;
            self.silent = Duration::ZERO;
            return None;
        }
        self.silent += passed;
        if limits.stuck.is_zero() || self.silent < limits.stuck {
            return None;
        }
        let ranks = seen.iter().map(|seen| (seen.rank, seen.step, seen.phase)).collect();
        let secs = std::mem::take(&mut self.silent).as_secs_f64();
        Some(Finding::Stuck { ranks, secs })
    }
}

/// The ranks that are in this activity of this step.
fn of(seen: &[Seen], activity: Activity, step: u64) -> impl Iterator<Item = &Seen> {
    seen.iter().filter(move |seen| seen.phase.activity() == Some(activity) && seen.step == step)
}

/// The middle one; none of too few.
fn median(secs: &[f64]) -> Option<f64> {
    let mut sorted = secs.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().filter(|_| sorted.len() >= FEWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(1);
    const LIMITS: Limits =
        Limits { slow_factor: 4.0, slow_secs: 3.0, stuck: Duration::from_secs(5) };

    fn rank(rank: usize, phase: Phase, secs: f64, beats: u64) -> Seen {
        Seen { rank, step: 7, phase, secs, past: vec![1.0, 1.5, 0.5, 1.0], beats }
    }

    #[test]
    fn a_slow_step_is_told_of_once_and_once_more_when_it_is_over() {
        let mut judge = Judge::default();
        let at =
            |secs| [rank(0, Phase::Gradients, secs, 3), rank(1, Phase::ForwardBackward, secs, 2)];
        assert_eq!(judge.look(&at(4.0), &LIMITS, TICK), []);
        let slow = Finding::Slow {
            activity: Activity::Step,
            step: 7,
            behind: vec![(1, Phase::ForwardBackward)],
            secs: 4.1,
            median: 1.0,
        };
        assert_eq!(judge.look(&at(4.1), &LIMITS, TICK), [slow]);
        assert_eq!(judge.look(&at(9.0), &LIMITS, TICK), []);
        let next: Vec<Seen> = at(0.1)
            .into_iter()
            .map(|mut seen| {
                (seen.step, seen.beats) = (8, 9);
                seen.past.push(9.25);
                seen
            })
            .collect();
        let over = Finding::Over { activity: Activity::Step, step: 7, secs: 9.25 };
        assert_eq!(judge.look(&next, &LIMITS, TICK), [over]);
        assert_eq!(judge.look(&next, &LIMITS, TICK), []);
    }

    #[test]
    fn what_is_fast_in_seconds_or_has_no_past_is_not_slow() {
        let mut judge = Judge::default();
        let mut quick = rank(0, Phase::Update, 2.9, 1);
        quick.past = vec![0.01; 20];
        assert_eq!(judge.look(&[quick], &LIMITS, TICK), [], "below the least seconds");
        let mut first = rank(0, Phase::Update, 300.0, 2);
        first.past.truncate(2);
        assert_eq!(judge.look(&[first], &LIMITS, TICK), [], "two earlier steps are too few");
        assert_eq!(judge.look(&[rank(0, Phase::Hooks, 300.0, 3)], &LIMITS, TICK), []);
        let never = Limits { slow_factor: 0.0, ..LIMITS };
        assert_eq!(judge.look(&[rank(0, Phase::Update, 300.0, 4)], &never, TICK), []);
    }

    #[test]
    fn one_rank_that_goes_on_keeps_the_process_alive() {
        let mut judge = Judge::default();
        let looks = |judge: &mut Judge, beats: u64| {
            let seen = [rank(0, Phase::Hooks, 0.0, 5), rank(1, Phase::Saving, 0.0, beats)];
            judge.look(&seen, &LIMITS, TICK)
        };
        for beats in 0..10 {
            assert_eq!(looks(&mut judge, beats), [], "look {beats}");
        }
        for look in 0..4 {
            assert_eq!(looks(&mut judge, 9), [], "{look} s of silence and one more");
        }
        let ranks = vec![(0, 7, Phase::Hooks), (1, 7, Phase::Saving)];
        assert_eq!(looks(&mut judge, 9), [Finding::Stuck { ranks, secs: 5.0 }]);
        let never = Limits { stuck: Duration::ZERO, ..LIMITS };
        let seen = [rank(0, Phase::Hooks, 0.0, 5)];
        for _ in 0..20 {
            assert_eq!(judge.look(&seen, &never, TICK), []);
        }
    }
}
