//! The whole, seen through the facade.

mod process;
mod storages;
mod tiny;
mod toy;

mod bad_input;
mod capacity;
mod checkpoints;
mod checkpoints_in_time;
mod compute_bf16;
mod context;
mod evaluate;
mod evaluation;
mod exactness;
mod forecasts;
mod interchange;
mod licences;
mod mixtures;
mod momentum_bf16;
mod not_finite;
mod operations;
mod pool;
mod proves;
mod ranks;
mod ranks_bf16;
mod ranks_checkpoints;
mod ranks_failure;
mod ranks_recipes;
mod ranks_runs;
mod recipes;
mod recompute;
mod resumes;
mod sequence_balance;
mod soak;
mod telemetry;
