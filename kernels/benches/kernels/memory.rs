//! What a run holds beside what was there.

use fulmar_tests::memory::{live, peak, restart};

use super::secs::Secs;

/// The time of `run`, and the most bytes that it held beyond what was allocated before. A run
/// before fills what threads keep.
pub(crate) fn beside<T>(mut run: impl FnMut() -> T) -> (Secs, usize) {
    drop(run());
    restart();
    let before = live();
    let secs = Secs::of(&mut run);
    (secs, peak() - before)
}
