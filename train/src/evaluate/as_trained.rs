//! Losses with the exchange of training, which may drop.

use std::sync::Arc;

use fulmar_data::{Batch, EvalRows};
use fulmar_ep::{DispatchConfig, Dispatcher, World};
use fulmar_eval::{DocumentSum, EvalError, ModelScorer, Suite, documents};

use super::evaluation::{Exchange, Figures};
use crate::config::RunConfig;
use crate::device::{self, DeviceChoice};
use crate::error::TrainError;
use crate::interchange::{Saved, load};
use crate::launch::on_ranks;
use crate::parallel::RankKind;

/// Scores the first `max_rows` rows (0 for all) with the rows of a training micro-batch on each shard.
/// What is dropped depends on the rows of a replica's shards alone, which are the same however many
/// replicas share the work.
///
/// # Errors
/// As [`documents::score`].
pub(crate) fn score_as_trained(
    rows: &EvalRows,
    micro_rows: usize,
    max_rows: usize,
    world: &World,
    mut nats: impl FnMut(&Batch) -> Result<Vec<f32>, EvalError>,
) -> Result<Vec<DocumentSum>, EvalError> {
    let taken = documents::rows_taken(rows, max_rows);
    let mut pass = 0;
    let nats = |batch: &Batch| {
        let first = (pass * world.all.size() + world.all.rank()) * micro_rows;
        pass += 1;
        nats(&filled_up(batch, micro_rows, first < taken))
    };
    documents::score(rows, micro_rows, max_rows, &world.all, nats)
}

/// One replica of the recipe's shards as threads, with the exchange of the step. One shard exchanges
/// nothing and has the figures without drops.
pub(super) fn as_trained(
    saved: &Saved,
    suites: &[Arc<Suite>],
    dropless: &[Figures],
    device: DeviceChoice,
) -> Result<(Exchange, Vec<Figures>), TrainError> {
    let mut config: RunConfig = saved.config().clone();
    config.parallel.ranks = RankKind::Threads;
    let micro_rows = config.micro_rows() as usize;
    config.parallel.replicas = 1;
    let exchange = *config.parallel.dispatch_at(saved.step());
    if exchange == DispatchConfig::Local {
        return Ok((Exchange { name: exchange.name(), shards: 1 }, dropless.to_vec()));
    }
    let num_experts = config.model.num_experts;
    let figures = on_ranks(&config, |world: &World| {
        let device = device::open(device)?.device;
        let model = load(saved, world.experts(num_experts), &device)?;
        let dispatcher = Dispatcher::new(&exchange, num_experts, &world.expert)?;
        let scorer = ModelScorer::new(&model, &dispatcher, &device);
        let figures_of = |suite: &Arc<Suite>| -> Result<Figures, TrainError> {
            let nats = |batch: &Batch| scorer.nats(batch);
            Ok(Figures::new(suite, score_as_trained(&suite.rows, micro_rows, 0, world, nats)?))
        };
        suites.iter().map(figures_of).collect::<Result<Vec<_>, _>>()
    })?;
    Ok((Exchange { name: exchange.name(), shards: config.parallel.shards }, figures))
}

/// A batch with padding up to `num_rows`, so that all shards exchange as many tokens as in training;
/// one that is not `wanted` is padding altogether.
fn filled_up(batch: &Batch, num_rows: usize, wanted: bool) -> Batch {
    let mut batch = batch.clone();
    let len = num_rows * batch.seq_len;
    batch.num_rows = num_rows;
    batch.tokens.resize(len, 0);
    batch.targets.resize(len, 0);
    batch.loss_weight.resize(len, 0.0);
    batch.segment_ids.resize(len, 0);
    batch.token_valid.resize(len, false);
    batch.cells.resize(num_rows, 0);
    batch.first_documents.resize(num_rows, 0);
    if !wanted {
        batch.token_valid.fill(false);
    }
    batch
}
