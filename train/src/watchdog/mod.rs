//! Tells a slow step from a dead one.
//!
//! Each rank says which step it is in and what it does ([`Pulse`]); all ranks of a process share a
//! [`Board`], and one thread of the process looks at it ([`Watchdog`]). What takes much longer than
//! the like did before is told of, once, and once more when it is over. When no rank gives a sign of
//! life, the thread prints what each was doing and ends the process: nobody else could.
//!
//! Only the monotonic clock counts. A process that was stopped and goes on is not dead: the thread
//! was stopped too, and counts silence in its own looks.

mod judge;
mod phase;
mod pulse;
mod watch;

pub use judge::{Finding, Limits};
pub use phase::{Activity, Phase, PhaseSeconds};
pub use pulse::{Board, Pulse, Voice};
pub use watch::Watchdog;
