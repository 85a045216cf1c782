//! How many faults of each kind were tried, and how many the run survived.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use libtest_mimic::{Failed, Trial};

/// Kinds of faults, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    KillAtAnInstant,
    KillInACall,
    #[cfg(feature = "mpi")]
    KillOfAProcess,
    Write,
    Damage,
    LostRank,
    SlowRank,
    Clock,
    Stop,
    Target,
}

impl Kind {
    const ALL: &[Self] = &[
        Self::KillAtAnInstant,
        Self::KillInACall,
        #[cfg(feature = "mpi")]
        Self::KillOfAProcess,
        Self::Write,
        Self::Damage,
        Self::LostRank,
        Self::SlowRank,
        Self::Clock,
        Self::Stop,
        Self::Target,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::KillAtAnInstant => "kill -9 at an instant",
            Self::KillInACall => "kill -9 in a call of the storage",
            #[cfg(feature = "mpi")]
            Self::KillOfAProcess => "kill -9 of one process of several",
            Self::Write => "a call of a save that fails",
            Self::Damage => "damage to a checkpoint",
            Self::LostRank => "a rank that fails, skips or hangs",
            Self::SlowRank => "a rank that is slow",
            Self::Clock => "a jump of the clock",
            Self::Stop => "SIGTERM",
            Self::Target => "a target that denies",
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    tried: u64,
    survived: u64,
    skipped: u64,
}

static COUNTS: Mutex<[Count; 10]> = Mutex::new([Count { tried: 0, survived: 0, skipped: 0 }; 10]);

fn count(kind: Kind, add: impl FnOnce(&mut Count)) {
    add(&mut COUNTS.lock().unwrap_or_else(PoisonError::into_inner)[kind as usize]);
}

/// The faults of one trial, and what did not survive.
#[derive(Debug)]
pub(crate) struct Faults {
    kind: Kind,
    wrong: Vec<String>,
}

impl Faults {
    /// A trial of faults of a kind. It goes on after one that was not survived, and then fails with
    /// all of those.
    pub(crate) fn trial(
        kind: Kind,
        name: impl Into<String>,
        body: impl FnOnce(&mut Self) + Send + 'static,
    ) -> Trial {
        Trial::test(name, move || {
            let mut faults = Self { kind, wrong: Vec::new() };
            body(&mut faults);
            let count = faults.wrong.len();
            match count {
                0 => Ok(()),
                _ => Err(Failed::from(format!(
                    "{count} not survived, of kind `{}`, seed {}:\n{}",
                    kind.name(),
                    crate::form::form().seed,
                    faults.wrong.join("\n")
                ))),
            }
        })
    }

    /// Tries one fault. `place` says which, so that it can be tried again; `fault` fails with what
    /// was found.
    pub(crate) fn try_one(&mut self, place: &str, fault: impl FnOnce() -> Result<(), String>) {
        self.try_several(1, place, fault);
    }

    /// Tries some faults of one run, which survives all or none.
    pub(crate) fn try_several(
        &mut self,
        number: u64,
        place: &str,
        fault: impl FnOnce() -> Result<(), String>,
    ) {
        count(self.kind, |count| count.tried += number);
        let found =
            catch_unwind(AssertUnwindSafe(fault)).unwrap_or_else(|panic| Err(text(&*panic)));
        match found {
            Ok(()) => count(self.kind, |count| count.survived += number),
            Err(found) => self.wrong.push(format!("- {place}: {found}")),
        }
    }

    /// Counts a fault that cannot be tried here, and says why.
    pub(crate) fn skip(&self, place: &str, why: &str) {
        count(self.kind, |count| count.skipped += 1);
        println!("skipped: {place}: {why}");
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref().map(|text: &&str| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Prints the table, unless filters left nothing to try; false if a fault was not survived.
pub(crate) fn print() -> bool {
    let counts = *COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    if counts.iter().all(|count| count.tried + count.skipped == 0) {
        return true;
    }
    let mut all = Count::default();
    println!("{:<36} {:>7} {:>9} {:>8}", "faults", "tried", "survived", "skipped");
    for kind in Kind::ALL {
        let Count { tried, survived, skipped } = counts[*kind as usize];
        println!("{:<36} {tried:>7} {survived:>9} {skipped:>8}", kind.name());
        all.tried += tried;
        all.survived += survived;
        all.skipped += skipped;
    }
    let Count { tried, survived, skipped } = all;
    println!("{:<36} {tried:>7} {survived:>9} {skipped:>8}", "all");
    println!("faults: {tried} tried, {survived} survived, {skipped} skipped");
    tried == survived
}
