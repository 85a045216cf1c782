//! The model against golden values, published figures and its own promises.

mod case;
mod documents;
mod golden;
mod observation;
mod over_ranks;
mod preset;
mod quantile;
mod routing;
mod sequence_balance;
mod shards;
