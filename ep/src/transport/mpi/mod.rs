//! Ranks as processes, over MPI; [`run_mpi`] says how they are started and how they end.
//!
//! # How words move
//!
//! An exchange is one control message and, if there are words, one payload for each pair of
//! members. The control message says which collective of which group it belongs to, what it is
//! for, how many words come and under which tag; control messages of a rank arrive in the order in
//! which they were sent, and lie in an inbox until somebody waits for them. So groups never mix,
//! collectives may be waited for in any order, and whatever disagrees is found before a word of
//! payload is received. Payloads go from where they lie to where they belong.
//!
//! After MPI's start no call blocks: all are immediate and are tested in turn until the deadline.
//! Words move only while a rank is inside this transport, so a rank that computes for long may
//! keep a slower peer waiting for the rest of a large payload; its next collective, or its end,
//! sends the rest.

mod endpoint;
mod message;
mod processes;
mod run;
mod wire;

pub use run::run_mpi;
