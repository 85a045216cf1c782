//! What one rank does wrong ends or skips the step of all.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::{Int, Tensor};
use fulmar::data::{Batch, RowSource};
use fulmar::ep::transport::{Group, RankFailure, TransportError, WorldError, run_world};
use fulmar::ep::{Combined, Demand, Dispatched, EpError};
use fulmar::ep::{DispatchConfig, Dispatcher, Payload, TokenDispatcher};
use fulmar::model::weights;
use fulmar::train::checkpoint::{self, save::Run};
use fulmar::train::launch::{meet, on_ranks};
use fulmar::train::{RunConfig, TrainError, assemble, exit, run};

use crate::process;
use crate::ranks_checkpoints::copy;
use crate::tiny::{Tiny, chain, logged};
use crate::toy::{self, DEADLINE, Rank, on_every_rank, try_ranks};

/// Bytes of all that a rank's step may change.
fn bytes(rank: &Rank<'_>) -> (BTreeMap<String, Vec<u8>>, Vec<Vec<u32>>, u64) {
    let state = &rank.state;
    let tensors = weights::export(&state.model).into_iter().chain(state.optimizer.export());
    let tensors = tensors.map(|(name, data)| (name, data.as_bytes().to_vec()));
    let bits = |layer: &Vec<f32>| layer.iter().map(|value| value.to_bits()).collect();
    (tensors.collect(), state.pending.iter().map(bits).collect(), state.step)
}

/// Every exchange over two replicas of two shards, one of them tight; and two replicas without one.
fn every_exchange(overrides: &[&str]) -> Vec<(String, RunConfig)> {
    let config = toy::config([2, 2], overrides);
    let tight = DispatchConfig::PooledWave {
        num_expert_waves: 2,
        capacity_factor: 1.0,
        transport_capacity_factor: 1.0,
        payload: Payload::F32,
    };
    let exchanges = toy::roomy(&config).into_iter().chain([("a tight pooled wave", tight)]);
    let configs = exchanges.map(|(name, dispatch)| {
        let mut config = config.clone();
        config.parallel.dispatch = dispatch;
        (name.to_owned(), config)
    });
    let local = ("local".to_owned(), toy::config([4, 1], overrides));
    configs.chain([local]).collect()
}

/// The rank, of four, whose rows are poisoned.
const POISONED: usize = 3;

/// A step that must be skipped on every rank, between two that are sound.
fn assert_skipped(name: &str, config: &RunConfig, poison: impl Fn(&mut Batch, usize) + Sync) {
    let last = config.model.vocab_size - 1;
    let losses = on_every_rank(config, |mut rank| {
        // A token that no sound batch has, so that only its reader meets the NaN.
        rank.change_weights(|path, data| {
            if path == "embedding.weight" {
                let hidden = data.shape()[1];
                data.as_mut_slice::<f32>().expect("f32")[last * hidden] = f32::NAN;
            }
        });
        assert!(rank.step(&toy::batch(config, 1))?.updated, "{name}: a sound step first");
        let before = bytes(&rank);
        let mut batch = toy::batch(config, 2);
        // In the second micro-batch, if there are several.
        let row = POISONED * config.rows_per_rank() as usize + 3;
        let place = row * batch.seq_len + 5;
        poison(&mut batch, place);
        let report = rank.step(&batch)?;
        assert!(!report.updated, "{name}: rank {} has made the step", rank.world.rank());
        assert!(bytes(&rank) == before, "{name}: the state of a rank has changed");
        assert_eq!(rank.state.batches, 2, "{name}: the batch counts as taken");
        assert!(rank.step(&toy::batch(config, 3))?.updated, "{name}: a sound step after it");
        Ok((report.loss, report.grad_norm))
    });
    for (loss, norm) in &losses {
        assert!(!loss.is_finite() || !norm.is_finite(), "{name}: loss {loss}, norm {norm}");
    }
}

#[test]
fn scores_of_nan_on_one_rank_skip_the_step_on_every_rank_by_every_exchange() {
    for overrides in [&[][..], &["batch.micro_rows=2"]] {
        for (name, config) in every_exchange(overrides) {
            let token = config.model.vocab_size as i32 - 1;
            assert_skipped(&name, &config, |batch, place| batch.tokens[place] = token);
        }
    }
}

#[test]
fn a_loss_or_gradient_that_is_not_finite_on_one_rank_skips_the_step_on_every_rank() {
    // The second is a finite loss with a gradient whose squares overflow f32.
    for weight in [f32::INFINITY, 1e30] {
        for (name, config) in every_exchange(&[]) {
            let name = format!("{name}, weight {weight}");
            assert_skipped(&name, &config, |batch, place| batch.loss_weight[place] = weight);
        }
    }
}

/// A corpus in which every document has a word of its own.
fn write_corpus(path: &Path) {
    let document = |letter: char| {
        let words = ["the", "sea", "was", "grey"].map(|word| format!("{letter} {word} "));
        format!("{{\"text\":\"{}\"}}\n", words.concat().repeat(6))
    };
    let text: String = ('A'..='Z').chain('a'..='z').map(document).collect();
    std::fs::write(path, text).expect("written");
}

/// Tokens that only the poisoned rank reads, in each of the two batches after the first.
fn tokens_of_one_rank(config: &RunConfig, rows: &RowSource) -> BTreeSet<i32> {
    let (all, own) = (config.batch.rows, config.rows_per_rank() as usize);
    let tokens = |batch: &Batch| batch.tokens.iter().copied().collect::<BTreeSet<i32>>();
    let of_batches = [1, 2].map(|batch| {
        let batch = rows.batch(batch * all..(batch + 1) * all);
        let of_ranks = (0..4).map(|rank| tokens(&batch.rows(rank * own..(rank + 1) * own)));
        let mut of_ranks: Vec<_> = of_ranks.collect();
        let of_one = of_ranks.swap_remove(POISONED);
        (of_one, of_ranks.into_iter().flatten().collect::<BTreeSet<i32>>())
    });
    let others: BTreeSet<i32> = of_batches.iter().flat_map(|(_, others)| others.clone()).collect();
    let of_one = of_batches.map(|(of_one, _)| &of_one - &others);
    assert!(of_one.iter().all(|tokens| !tokens.is_empty()), "no word of its own: {of_one:?}");
    of_one.into_iter().flatten().collect()
}

#[test]
fn a_run_with_nan_on_one_rank_stops_after_the_allowed_number_by_every_exchange() {
    let tiny = Tiny::new();
    write_corpus(&tiny.path("words.jsonl"));
    let ranks = ["batch.rows=8", "parallel.replicas=2", "parallel.shards=2"];
    let guard = ["guard.max_skipped_steps=1", "parallel.dispatch={kind=\"ragged\"}"];
    let mut config = tiny.config(&[&ranks[..], &guard].concat());
    config.data.sources = vec![tiny.path("words.jsonl")];
    let data = assemble::data(&config).expect("a readable corpus");
    let poison = tokens_of_one_rank(&config, &data.rows);
    let storage = tiny.storage("run");
    let consumed = data.consumed(config.batch.rows);
    let saved = config.clone();
    let of_run = Run { consumed, ..Run::new(&storage, &saved, &data.digest) };
    on_every_rank(&config, |mut rank| {
        assert!(rank.step(&data.rows.batch(0..8))?.updated);
        rank.change_weights(|path, data| {
            if path == "embedding.weight" {
                let hidden = data.shape()[1];
                let values = data.as_mut_slice::<f32>().expect("f32");
                poison.iter().for_each(|token| values[*token as usize * hidden] = f32::NAN);
            }
        });
        checkpoint::save(&of_run, &rank.state, rank.world)
    });
    for (name, dispatch) in toy::roomy(&config) {
        config.parallel.dispatch = dispatch;
        copy(&tiny.checkpoint("run", 1), &tiny.checkpoint(name, 1));
        let mut options = tiny.options(name);
        options.resume = true;
        let error = run(&config, &options).expect_err("no step is finite").to_string();
        assert!(error.contains("step 1 is not finite (loss NaN"), "{name}: {error}");
        let skipped = logged(&tiny.path(name));
        assert_eq!(skipped.len(), 2, "{name}: one step may be skipped, the second ends the run");
        assert!(skipped.iter().all(|line| line["optim/skipped_step"] == 1), "{name}");
    }
}

/// What a rank does wrong in its second step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Panics,
    Fails,
    /// Ends well, and too early.
    Leaves,
    /// Cuts the graph behind an exchange, so that its backward is skipped.
    Skips,
}

const FAULTY: usize = 1;
const BROKEN: &str = "a broken rank";

/// A dispatcher that goes wrong in the second layer of the second step.
struct Faulty {
    inner: Dispatcher,
    fault: Option<Fault>,
    dispatched: AtomicUsize,
    combined: AtomicUsize,
}

impl Faulty {
    fn of(rank: &Rank<'_>, fault: Fault) -> Self {
        let fault = (rank.world.rank() == FAULTY).then_some(fault);
        let (dispatched, combined) = Default::default();
        Self { inner: rank.dispatcher.clone(), fault, dispatched, combined }
    }

    fn is_now(&self, calls: &AtomicUsize, fault: Fault) -> bool {
        calls.load(Ordering::Relaxed) == 3 && self.fault == Some(fault)
    }
}

impl TokenDispatcher for Faulty {
    type Handle = <Dispatcher as TokenDispatcher>::Handle;

    fn local_experts(&self) -> Range<usize> {
        self.inner.local_experts()
    }

    fn group(&self) -> &Group {
        self.inner.group()
    }

    fn dispatch(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
    ) -> Result<Dispatched<Self::Handle>, EpError> {
        assert!(!self.is_now(&self.dispatched, Fault::Panics), "{BROKEN}");
        if self.is_now(&self.dispatched, Fault::Fails) {
            return Err(EpError::TooManyRows { found: 7_777_777_777 });
        }
        self.dispatched.fetch_add(1, Ordering::Relaxed);
        self.inner.dispatch(tokens, selected, demand)
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: Self::Handle,
    ) -> Result<Combined, EpError> {
        let mut combined = self.inner.combine(outputs, weights, handle)?;
        if self.is_now(&self.combined, Fault::Skips) {
            combined.tokens = combined.tokens.detach();
        }
        self.combined.fetch_add(1, Ordering::Relaxed);
        Ok(combined)
    }
}

fn two_steps(mut rank: Rank<'_>, fault: Fault) -> Result<(), TrainError> {
    let dispatcher = Faulty::of(&rank, fault);
    for seed in [1, 2] {
        if seed == 2 && dispatcher.fault == Some(Fault::Leaves) {
            return Ok(());
        }
        rank.step_by(&dispatcher, &toy::batch(rank.config, seed))?;
    }
    Ok(())
}

/// How every rank ended, what their launcher says, and how long it took.
struct End {
    of_ranks: BTreeMap<usize, String>,
    cause: Box<WorldError<TrainError>>,
    took: Duration,
}

fn end(config: &RunConfig, deadline: Duration, fault: Fault) -> End {
    let (of_ranks, started) = (Mutex::new(BTreeMap::new()), Instant::now());
    let done = try_ranks(config, deadline, |rank| {
        let number = rank.world.rank();
        let say = |text: String| drop(of_ranks.lock().expect("no panic").insert(number, text));
        match catch_unwind(AssertUnwindSafe(|| two_steps(rank, fault))) {
            Ok(result) => {
                say(result.as_ref().map_or_else(ToString::to_string, |()| "well".to_owned()));
                result
            }
            Err(panic) => {
                say(text_of(&*panic));
                resume_unwind(panic)
            }
        }
    });
    let cause = done.expect_err("a rank has failed");
    let of_ranks = of_ranks.into_inner().expect("no panic");
    End { of_ranks, cause, took: started.elapsed() }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let error = panic.downcast_ref::<TransportError>().map(ToString::to_string);
    let error = error.or_else(|| panic.downcast_ref::<String>().cloned());
    error.or_else(|| panic.downcast_ref().map(|text: &&str| (*text).to_owned())).expect("a text")
}

impl End {
    /// Of a process that ends so.
    fn status(&self) -> u8 {
        match &self.cause.failure {
            RankFailure::Error(error) => exit::status_of(error),
            RankFailure::Transport(error) => exit::status_of(&error.clone().into()),
            RankFailure::Panic(_) => exit::OTHER,
        }
    }

    /// All ranks but `except` ended badly and say `cause`.
    fn assert_all_say(&self, what: &str, except: Option<usize>, cause: &str) {
        assert_eq!(self.of_ranks.len(), 4, "{what}: {:?}", self.of_ranks);
        for (rank, text) in self.of_ranks.iter().filter(|(rank, _)| Some(**rank) != except) {
            assert!(text.contains(cause), "{what}: rank {rank} says {text}, needed {cause}");
        }
    }
}

/// The exchanges that differ in their collectives.
fn exchanges() -> Vec<(String, RunConfig)> {
    let mut all = every_exchange(&[]);
    all.retain(|(name, _)| !name.contains("factor") && name != "local");
    assert_eq!(all.len(), 6);
    all
}

#[test]
fn a_panic_or_an_error_of_one_rank_ends_all_at_once_and_is_the_cause() {
    for (name, config) in exchanges() {
        let end = end(&config, DEADLINE, Fault::Panics);
        assert!(end.took < DEADLINE / 2, "{name}: {:?}", end.took);
        let RankFailure::Panic(message) = &end.cause.failure else { panic!("{}", end.cause) };
        assert_eq!((end.cause.rank, message.as_str()), (FAULTY, BROKEN), "{name}");
        end.assert_all_say(&name, None, BROKEN);
    }
    for (name, config) in exchanges() {
        let end = end(&config, DEADLINE, Fault::Fails);
        assert!(end.took < DEADLINE / 2, "{name}: {:?}", end.took);
        assert_eq!(end.cause.rank, FAULTY, "{name}: {}", end.cause);
        end.assert_all_say(&name, None, "7777777777 rows");
    }
}

#[test]
fn a_rank_that_leaves_early_is_missed_by_all() {
    for (name, config) in exchanges() {
        let end = end(&config, DEADLINE, Fault::Leaves);
        assert!(end.took < DEADLINE / 2, "{name}: {:?}", end.took);
        assert_eq!(end.of_ranks[&FAULTY], "well", "{name}");
        end.assert_all_say(&name, Some(FAULTY), "lost rank 1: it has ended");
        assert_eq!(end.status(), exit::PEER_LOST, "{name}: {}", end.cause);
    }
}

#[test]
fn an_exchange_skipped_in_backward_ends_all_within_the_deadline() {
    // Long enough that no sound wait is cut short on a busy machine.
    let deadline = Duration::from_secs(3);
    // All at once: they wait more than they compute.
    std::thread::scope(|scope| {
        for (name, config) in exchanges() {
            scope.spawn(move || {
                let end = end(&config, deadline, Fault::Skips);
                // A wait begins up to a step late, and ends when its thread gets a core.
                assert!(end.took < 4 * deadline, "{name}: {:?}", end.took);
                // Parts of other sizes are noticed at once; equal ones when the last is missing.
                let cause = end.cause.failure.to_string();
                let mismatch = cause.contains("got all_to_all_v") && cause.contains("from rank");
                assert!(mismatch || cause.contains("did not come"), "{name}: {cause}");
                assert!(cause.contains("(number "), "{name}: {cause}");
                assert_eq!(end.status(), exit::PEER_LOST, "{name}: {cause}");
                assert_eq!(end.of_ranks.len(), 4, "{name}: {:?}", end.of_ranks);
                for (rank, text) in &end.of_ranks {
                    // Two ranks may give up at the same moment.
                    let own = text.contains("did not come") || text.contains("got all_to_all_v");
                    assert!(own || text.contains(&cause), "{name}: rank {rank} says {text}");
                }
            });
        }
    });
}

#[test]
fn ranks_with_different_recipes_do_not_start() {
    let config = toy::config([2, 2], &[]);
    let other = toy::config([2, 2], &["seed=6"]);
    let refused = run_world(4, DEADLINE, |transport| {
        let recipe = if transport.rank() == 2 { &other } else { &config };
        meet(recipe, transport).map(drop)
    });
    let error = refused.expect_err("one rank has another seed").to_string();
    assert!(error.contains("`recipe` differs between ranks"), "{error}");
    for (rank, recipe) in [(0, &config), (2, &other)] {
        assert!(error.contains(&format!("rank {rank} has {}", recipe.digest())), "{error}");
    }
}

#[test]
fn a_process_whose_rank_panics_fails_and_says_why_once() {
    let name = "ranks_failure::a_process_whose_rank_panics_fails_and_says_why_once";
    if process::handed_over().is_some() {
        let config = toy::config([2, 2], &[]);
        let done = on_ranks(&config, |world| two_steps(Rank::new(&config, world)?, Fault::Panics));
        let error = done.expect_err("a rank panics");
        eprintln!("error: {}", chain(&error));
        std::process::exit(1);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = process::start(name, folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    // The panic itself, with its place and backtrace; the other ranks' ends are silent.
    assert_eq!(said.matches("panicked at").count(), 1, "{said}");
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{said}");
    assert!(errors[0].starts_with(&format!("error: rank {FAULTY}: panicked: {BROKEN}")), "{said}");
}
