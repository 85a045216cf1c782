//! A run in a process of its own whose storage or ranks go wrong by plan.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fulmar::ep::transport::{RankFailure, WorldError, run_world};
use fulmar::train::stop_signal::StopSignal;
use fulmar::train::storage::{Call, Effect, Failure, Fault, FaultyStorage, Storage, open_storage};
use fulmar::train::watchdog::{Board, Limits, Watchdog};
use fulmar::train::{DeviceChoice, RunConfig, RunOptions, TrainError, exit, recipe, run, run_over};
use serde::{Deserialize, Serialize};

use crate::damage::Damage;
use crate::deadly::{Deadly, Death, Place};
use crate::unsound::{self, Unsound};

/// What a process of this binary does.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Play {
    pub(crate) recipe: PathBuf,
    pub(crate) out: PathBuf,
    /// Changes to the recipe.
    pub(crate) set: Vec<String>,
    pub(crate) stop_after: Option<u64>,
    /// Calls of the storage that go wrong.
    pub(crate) calls: Vec<Wrong>,
    /// The call in which it dies.
    pub(crate) death: Option<Death>,
    /// The ranks are threads on a transport that this may break.
    pub(crate) over: bool,
    pub(crate) rank: Option<unsound::Fault>,
    /// Instead of a run: each damage by itself, looked at and passed over.
    pub(crate) damages: Vec<Damage>,
    /// A file for all calls of the storage, or for the collectives of the last rank.
    pub(crate) trace: Option<PathBuf>,
}

/// Calls of the storage that go wrong.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wrong {
    /// By its place in [`Call::ALL`].
    call: usize,
    /// Part of the object's name.
    name: String,
    /// From 1, to the end if that is not given.
    first: u64,
    last: Option<u64>,
    how: How,
}

/// How a call goes wrong, by an error number of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Fails(i32),
    /// It is done, and says that it failed.
    Lost(i32),
    /// A part of it is done.
    Torn(i32),
    /// It takes so many milliseconds longer.
    Slow(u64),
}

impl Wrong {
    /// One call, the nth of its kind for the object.
    pub(crate) fn at(call: Call, name: &str, nth: u64, how: How) -> Self {
        Self { call: call as usize, name: name.to_owned(), first: nth, last: Some(nth), how }
    }

    /// Every call of its kind for objects whose names contain this, from the nth on.
    pub(crate) fn from(call: Call, name: &str, nth: u64, how: How) -> Self {
        Self { last: None, ..Self::at(call, name, nth, how) }
    }

    fn plan(&self) -> Fault {
        let failure = |code| Failure::Os(code);
        let effect = match self.how {
            How::Fails(code) => Effect::Fails(failure(code)),
            How::Lost(code) => Effect::Lost(failure(code)),
            How::Torn(code) => Effect::Torn { bytes: 7, failure: failure(code) },
            How::Slow(millis) => Effect::Slow(Duration::from_millis(millis)),
        };
        let fault = Fault::new(Call::ALL[self.call], effect).on(&self.name);
        match self.last {
            Some(nth) => fault.at(nth),
            None => fault.from(self.first),
        }
    }
}

impl Play {
    /// Does it, and ends as `train` would.
    pub(crate) fn act(&self) -> ExitCode {
        let done = recipe::load(&self.recipe, &self.set).map_err(|error| (2, error.chain()));
        let done = done.and_then(|config| match (&self.damages[..], self.over) {
            ([], true) => self.run_over(&config),
            ([], false) => self.run(&config).map_err(|e| (exit::status_of(&e), e.chain())),
            _ => self.look_at_damages(&config).map_err(|e| (exit::status_of(&e), e.chain())),
        });
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err((status, text)) => {
                eprintln!("error: {text}");
                status.into()
            }
        }
    }

    fn options(&self, storage: Arc<dyn Storage>) -> RunOptions {
        RunOptions {
            out: self.out.clone(),
            device: DeviceChoice::Cpu,
            resume: true,
            stop_after: self.stop_after,
            samples: false,
            stop: StopSignal::default(),
            storage: Some(storage),
        }
    }

    /// The run's own storage, with what is planned.
    fn storage(&self, config: &RunConfig) -> Result<Deadly, TrainError> {
        let faulty = FaultyStorage::new(open_storage(config, &self.out)?);
        self.calls.iter().for_each(|wrong| faulty.plan(wrong.plan()));
        Ok(Deadly::new(Arc::new(faulty), self.death.clone()))
    }

    fn run(&self, config: &RunConfig) -> Result<(), TrainError> {
        let storage = self.storage(config)?;
        let done = run(config, &self.options(Arc::new(storage.clone()))).map(drop);
        self.leave(&storage.calls());
        done
    }

    /// The run over threads whose transport may be unsound; says how every rank ended.
    fn run_over(&self, config: &RunConfig) -> Result<(), (u8, String)> {
        let storage = self.storage(config).map_err(|e| (exit::status_of(&e), e.chain()))?;
        let options = self.options(Arc::new(storage));
        let board = Board::default();
        let _watchdog = Watchdog::start(&board, Limits::of(config));
        let ranks = config.parallel.layout().ranks();
        let done = run_world(ranks, config.parallel.deadline(), |transport| {
            let rank = transport.rank();
            let transport = Arc::new(Unsound::new(transport, self.rank));
            let own = transport.clone();
            let ended = catch_unwind(AssertUnwindSafe(|| {
                run_over(config, &options, transport, &board).map(drop)
            }));
            let how = match &ended {
                Ok(Ok(())) => "well".to_owned(),
                Ok(Err(error)) => error.chain(),
                Err(_) => "by a panic or within a pass".to_owned(),
            };
            println!("rank {rank} ended: {how}");
            if rank + 1 == ranks {
                self.leave(&own.labels());
            }
            ended.unwrap_or_else(|panic| resume_unwind(panic))
        });
        done.map(drop).map_err(|error| (status(&error), error.to_string()))
    }

    fn leave(&self, what: &impl Serialize) {
        let Some(path) = &self.trace else { return };
        std::fs::write(path, serde_json::to_string(what).expect("plain values")).expect("written");
    }

    /// All calls of the storage in a sound play, left by [`trace`](Self::trace).
    pub(crate) fn calls_of(&self) -> Vec<Place> {
        self.traced()
    }

    /// What the last rank's collectives were for in a sound play.
    pub(crate) fn labels_of(&self) -> Vec<String> {
        self.traced()
    }

    fn traced<T: serde::de::DeserializeOwned>(&self) -> T {
        let mut play = self.clone();
        let trace = self.out.with_extension("trace");
        play.trace = Some(trace.clone());
        let end = crate::child::play(&play);
        assert!(end.status.success(), "a sound run: {end}");
        serde_json::from_slice(&std::fs::read(trace).expect("read")).expect("as it was left")
    }
}

/// Of a process that ends so.
fn status(error: &WorldError<TrainError>) -> u8 {
    match &error.failure {
        RankFailure::Error(error) => exit::status_of(error),
        RankFailure::Transport(error) => exit::status_of(&error.clone().into()),
        RankFailure::Panic(_) => exit::OTHER,
    }
}
