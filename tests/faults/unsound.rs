//! A transport on which one rank goes wrong at one of its collectives.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fulmar::ep::transport::{Buffer, Collective, Pending, Transport, TransportError};
use serde::{Deserialize, Serialize};

/// What a rank does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Wrong {
    Panics,
    Fails,
    /// Goes on as if the collective had been, with its own words alone.
    Skips,
    /// Is silent for so many seconds before it.
    SilentBefore(f64),
    /// Is silent for so many seconds when it is done.
    SilentAfter(f64),
    /// Is silent for good.
    Hangs,
}

/// Where which rank goes wrong.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) rank: usize,
    /// The collective, from 1, over all its groups of several ranks.
    pub(crate) at: u64,
    pub(crate) wrong: Wrong,
}

pub(crate) const BROKEN: &str = "a broken rank";

/// Passes collectives on but for the one.
#[derive(Debug)]
pub(crate) struct Unsound {
    inner: Arc<dyn Transport>,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    /// Of this rank, if it is the one.
    fault: Option<Fault>,
    /// What each collective so far was for.
    labels: Mutex<Vec<&'static str>>,
}

impl Unsound {
    pub(crate) fn new(inner: Arc<dyn Transport>, fault: Option<Fault>) -> Self {
        let fault = fault.filter(|fault| fault.rank == inner.rank());
        Self { inner, plan: Arc::new(Plan { fault, labels: Mutex::default() }) }
    }

    /// What each collective so far was for.
    pub(crate) fn labels(&self) -> Vec<&'static str> {
        self.plan.labels.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Transport for Unsound {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }

    fn start(
        self: Arc<Self>,
        label: &'static str,
        collective: Collective,
    ) -> Result<Pending, TransportError> {
        if self.size() == 1 {
            return self.inner.clone().start(label, collective);
        }
        let number = {
            let mut labels = self.plan.labels.lock().unwrap_or_else(PoisonError::into_inner);
            labels.push(label);
            labels.len() as u64
        };
        let wrong = self.plan.fault.filter(|fault| fault.at == number).map(|fault| fault.wrong);
        let start = |collective| self.inner.clone().start(label, collective);
        match wrong {
            None => start(collective),
            Some(Wrong::Panics) => panic!("{BROKEN}"),
            Some(Wrong::Fails) => Err(TransportError::Library {
                rank: self.rank(),
                library: "faults",
                problem: BROKEN.to_owned(),
            }),
            Some(Wrong::Skips) => {
                let alone = alone(collective, self.size());
                Ok(Pending::new(move || Ok(alone)))
            }
            Some(Wrong::SilentBefore(secs)) => {
                std::thread::sleep(Duration::from_secs_f64(secs));
                start(collective)
            }
            Some(Wrong::SilentAfter(secs)) => {
                let pending = start(collective)?;
                Ok(Pending::new(move || {
                    let words = pending.wait();
                    std::thread::sleep(Duration::from_secs_f64(secs));
                    words
                }))
            }
            Some(Wrong::Hangs) => loop {
                std::thread::park();
            },
        }
    }

    fn subgroup(&self, members: &[usize]) -> Arc<dyn Transport> {
        Arc::new(Self { inner: self.inner.subgroup(members), plan: self.plan.clone() })
    }

    fn fail(&self, cause: &str) {
        self.inner.fail(cause);
    }
}

/// What would have come if every other member were as this one, or sent zeros.
fn alone(collective: Collective, size: usize) -> Vec<u32> {
    let words = |send: &Buffer| match send {
        Buffer::Host(words) => words.words().to_vec(),
        Buffer::Device(region) => vec![0; region.words],
    };
    match collective {
        Collective::AllToAll { send }
        | Collective::AllReduce { send, .. }
        | Collective::Broadcast { send, .. } => words(&send),
        Collective::AllToAllV { recv_words, .. } => vec![0; recv_words.iter().sum()],
        Collective::AllGather { send, .. } => words(&send).repeat(size),
        Collective::Barrier => Vec::new(),
    }
}
