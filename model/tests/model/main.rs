//! The model against golden values, published figures and its own promises.

mod case;
mod compute;
mod documents;
mod golden;
mod over_ranks;
mod preset;
mod quantile;
mod recompute;
mod sequence_balance;
mod shards;
