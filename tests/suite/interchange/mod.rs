//! Weights in the published layout: out of a checkpoint, into a run, the same model all the way.

mod check;
mod damage;
mod import;
mod made;
mod names;
mod round_trip;
