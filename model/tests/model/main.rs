//! The model against golden values, published figures and its own promises.

mod case;
mod compute;
mod decode;
mod documents;
mod golden;
mod observation;
mod over_ranks;
mod preset;
mod quantile;
mod recompute;
mod routing;
mod sequence_balance;
mod shards;
