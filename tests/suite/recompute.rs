//! Blocks that are computed again in the backward pass change no bit of a run.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Int, Tensor};
use fulmar::ep::transport::{Group, RankFailure};
use fulmar::ep::{
    Combined, Demand, DispatchConfig, Dispatched, Dispatcher, EpError, ExpertRows, Keep, Payload,
    Retrace, TokenDispatcher,
};
use fulmar::model::Recompute;
use fulmar::train::RunConfig;
use fulmar::train::layer_report::LayerReport;
use fulmar::train::step::StepReport;
use fulmar_tests::compare::assert_same_bits;

use crate::toy::{self, DEADLINE, Found, Rank, Values, on_every_rank, try_ranks};

const MODES: [Recompute; 3] = [Recompute::None, Recompute::Block, Recompute::SaveMoe];
const STEPS: u64 = 2;

/// What a rank has after some steps.
struct Trained {
    reports: Vec<StepReport>,
    weights: Values,
    pending: Vec<Vec<f32>>,
    /// Of one more batch.
    gradients: Found,
}

/// Every rank of `config` in each mode.
fn trained(config: &RunConfig, mode: Recompute) -> Vec<Trained> {
    let mut config = config.clone();
    config.memory.recompute = mode;
    on_every_rank(&config, |mut rank| {
        let step = |rank: &mut Rank<'_>, seed| rank.step(&toy::batch(&config, seed));
        let reports = (1..=STEPS).map(|seed| step(&mut rank, seed)).collect::<Result<_, _>>()?;
        let gradients = rank.gradients_by(Some(mode), &toy::batch(&config, 9))?;
        Ok(Trained {
            reports,
            weights: rank.weights(),
            pending: rank.state.pending.clone(),
            gradients,
        })
    })
}

fn assert_same_values(what: &str, found: &Values, needed: &Values) {
    let paths = |values: &Values| values.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(found), paths(needed), "{what}");
    for (path, needed) in needed {
        assert_same_bits(&format!("{what}: {path}"), &found[path], needed);
    }
}

/// All that a layer reports but the bytes that travelled.
fn assert_same_layer(what: &str, found: &LayerReport, needed: &LayerReport) {
    assert_eq!(found.counts_by_rank, needed.counts_by_rank, "{what}");
    assert_eq!(found.tokens_by_lost, needed.tokens_by_lost, "{what}");
    assert_eq!(found.routing, needed.routing, "{what}");
}

fn assert_same_run(what: &str, found: &Trained, needed: &Trained) {
    for (found, needed) in found.reports.iter().zip(&needed.reports) {
        let numbers = |report: &StepReport| {
            let balance = report.sequence_balance.map(f64::to_bits);
            let sums = [report.loss, report.cross_entropy, report.z, report.grad_norm];
            (report.updated, sums.map(f64::to_bits), balance, report.bias_range)
        };
        assert_eq!(numbers(found), numbers(needed), "{what}");
        for (found, needed) in found.layers.iter().zip(&needed.layers) {
            assert_same_layer(what, found, needed);
        }
    }
    assert_same_values(&format!("{what}, weight"), &found.weights, &needed.weights);
    assert_eq!(found.pending, needed.pending, "{what}: pending balance");
    assert_eq!(found.gradients.loss.to_bits(), needed.gradients.loss.to_bits(), "{what}: loss");
    let values = (&found.gradients.values, &needed.gradients.values);
    assert_same_values(&format!("{what}, gradient"), values.0, values.1);
}

/// Payload and header bytes that all layers of all steps sent.
fn sent(trained: &Trained) -> (u64, u64) {
    let layers = trained.reports.iter().flat_map(|report| &report.layers);
    layers.fold((0, 0), |sum, layer| (sum.0 + layer.wire.payload, sum.1 + layer.wire.header))
}

/// Runs `config` in all modes and compares every rank; what one rank found where nothing is
/// computed again.
fn all_modes_agree(what: &str, config: &RunConfig) -> Trained {
    let [none, block, save_moe] = MODES.map(|mode| trained(config, mode));
    for (mode, found) in [("block", &block), ("save_moe", &save_moe)] {
        for (rank, (found, needed)) in found.iter().zip(&none).enumerate() {
            assert_same_run(&format!("{what}, {mode}, rank {rank}"), found, needed);
        }
    }
    let [none, block, save_moe] = [none, block, save_moe].map(|mut ranks| ranks.swap_remove(0));
    assert_eq!(sent(&save_moe), sent(&none), "{what}: bytes where deliveries are kept");
    if config.parallel.shards > 1 {
        assert!(sent(&block).0 > sent(&none).0, "{what}: exchanges that are made again");
    }
    none
}

#[test]
fn on_one_rank_all_modes_have_the_same_bits() {
    for overrides in [
        &[][..],
        &["batch.micro_rows=8"],
        &["model.sequence_balance_loss=0.5", "batch.micro_rows=4"],
        &["model.sequence_balance_loss=0.5", "model.num_layers=3", "model.router_dot=\"bf16\""],
    ] {
        all_modes_agree(&format!("{overrides:?}"), &toy::config([1, 1], overrides));
    }
}

#[test]
fn gradients_in_a_sink_have_the_bits_of_those_that_burn_returns() {
    for overrides in [&["batch.micro_rows=8"][..], &["model.sequence_balance_loss=0.5"]] {
        let config = toy::config([1, 1], overrides);
        let batch = toy::batch(&config, 3);
        on_every_rank(&config, |rank| {
            let needed = rank.gradients(&batch)?;
            for mode in MODES {
                let found = rank.gradients_by(Some(mode), &batch)?;
                assert_eq!(found.loss.to_bits(), needed.loss.to_bits());
                assert_same_values(&format!("{mode:?}"), &found.values, &needed.values);
            }
            Ok(())
        });
    }
}

/// Exchanges that drop some of what is asked of them.
fn tight() -> [(&'static str, DispatchConfig); 6] {
    let payload = Payload::F32;
    let waves = |num_expert_waves, payload| DispatchConfig::PooledWave {
        num_expert_waves,
        capacity_factor: 1.0,
        transport_capacity_factor: 1.0,
        payload,
    };
    let capacity_factor = Some(1.0);
    [
        ("pooled wave, two waves", waves(2, payload)),
        ("pooled wave, four waves, bf16", waves(4, Payload::Bf16)),
        ("ragged", DispatchConfig::Ragged { capacity_factor, payload }),
        ("ragged, bf16", DispatchConfig::Ragged { capacity_factor, payload: Payload::Bf16 }),
        ("fixed cells", DispatchConfig::FixedCells { capacity_factor: 1.0, payload }),
        ("ring", DispatchConfig::Ring { capacity_factor, payload }),
    ]
}

#[test]
fn over_four_ranks_all_modes_have_the_same_bits_with_every_exchange() {
    for layout in [[1, 4], [2, 2]] {
        let overrides = ["model.sequence_balance_loss=0.1", "batch.micro_rows=4"];
        let mut config = toy::config(layout, &overrides);
        let exchanges = tight().into_iter().map(|(name, dispatch)| (name, dispatch, true));
        let roomy = toy::roomy(&config).map(|(name, dispatch)| (name, dispatch, false));
        for (name, dispatch, drops) in exchanges.chain(roomy) {
            config.parallel.dispatch = dispatch;
            let found = all_modes_agree(&format!("{layout:?}, {name}"), &config);
            let layers = found.reports.iter().flat_map(|report| &report.layers);
            let dropped: u64 =
                layers.map(|l| l.counts.sender_dropped + l.counts.receiver_dropped).sum();
            assert_eq!(dropped > 0, drops, "{name}: {dropped} dropped");
        }
    }
}

/// A dispatcher whose ways one rank cannot take again.
struct Breaking {
    inner: Dispatcher,
    broken: bool,
}

struct Way {
    inner: Arc<dyn Retrace>,
    broken: bool,
}

const BROKEN: &str = "a broken second pass";

impl Retrace for Way {
    fn dispatch(&self, tokens: Tensor<2>) -> Vec<ExpertRows> {
        assert!(!self.broken, "{BROKEN}");
        self.inner.dispatch(tokens)
    }

    fn combine(&self, outputs: Vec<Tensor<2>>, weights: Tensor<2>) -> Tensor<2> {
        self.inner.combine(outputs, weights)
    }
}

impl TokenDispatcher for Breaking {
    type Handle = <Dispatcher as TokenDispatcher>::Handle;

    fn local_experts(&self) -> Range<usize> {
        self.inner.local_experts()
    }

    fn group(&self) -> &Group {
        self.inner.group()
    }

    fn dispatch(
        &self,
        _: Tensor<2>,
        _: Tensor<2, Int>,
        _: &Demand,
    ) -> Result<Dispatched<Self::Handle>, EpError> {
        unreachable!("every pass keeps its way")
    }

    fn combine(
        &self,
        _: Vec<Tensor<2>>,
        _: Tensor<2>,
        _: Self::Handle,
    ) -> Result<Combined, EpError> {
        unreachable!("every pass keeps its way")
    }

    fn dispatch_keeping(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
        keep: Keep,
    ) -> Result<Dispatched<Self::Handle>, EpError> {
        self.inner.dispatch_keeping(tokens, selected, demand, keep)
    }

    fn combine_keeping(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: Self::Handle,
    ) -> Result<(Combined, Arc<dyn Retrace>), EpError> {
        let (combined, inner) = self.inner.combine_keeping(outputs, weights, handle)?;
        Ok((combined, Arc::new(Way { inner, broken: self.broken })))
    }
}

#[test]
fn a_rank_that_fails_in_its_second_pass_ends_all_at_once() {
    for mode in [Recompute::Block, Recompute::SaveMoe] {
        for (name, dispatch) in tight() {
            let mut config = toy::config([2, 2], &[]);
            (config.parallel.dispatch, config.memory.recompute) = (dispatch, mode);
            let started = Instant::now();
            let ended = try_ranks(&config, DEADLINE, |mut rank| {
                let broken = rank.world.rank() == 1;
                let dispatcher = Breaking { inner: rank.dispatcher.clone(), broken };
                rank.step_by(&dispatcher, &toy::batch(&config, 1))
            });
            let cause = ended.expect_err("a rank has failed");
            let RankFailure::Panic(message) = &cause.failure else { panic!("{cause}") };
            assert_eq!((cause.rank, message.as_str()), (1, BROKEN), "{mode:?}, {name}");
            assert!(started.elapsed() < DEADLINE / 2, "{mode:?}, {name}");
        }
    }
}
