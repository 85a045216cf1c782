//! What it costs to carry rows to their experts and back: dispatch and combine, forward and
//! backward, with experts that return what they get.
//!
//! ```text
//! cargo bench --workspace --bench exchange
//! cargo bench --workspace --bench exchange -- --quick
//! ```
//!
//! Four thread ranks exchange the rows of 2,048 tokens each, with 8 of 384 experts for every token.
//! All cases take turns in one world, so that whatever disturbs the machine disturbs all of them;
//! times are medians, and a ratio is the median of the ratios of the turns. Two of the cases are
//! bounds: `copy`, the same threads copying as many bytes as the four exchanges of `pooled_wave`
//! move, between buffers that are there already, and `local`, one rank with all tokens and all
//! experts.
//!
//! The allocator is mimalloc, which keeps freed blocks: with one that returns them to the system,
//! most of the time of a large buffer is that of mapping its pages again.

mod copies;
mod layer;
mod table;

use std::time::{Duration, Instant};

use fulmar_ep::transport::{Group, run_world};
use fulmar_ep::{DispatchReport, EpError};
use fulmar_tests::memory::{self, Counting};
use mimalloc::MiMalloc;
use rayon::{ThreadPool, ThreadPoolBuilder};

use copies::Copies;
use layer::{Layer, Rule};
use table::{Line, print};

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

const RANKS: usize = 4;
/// Of each rank.
const TOKENS: usize = 2_048;
const K: usize = 8;
const NUM_EXPERTS: usize = 384;
const WIDTHS: [usize; 2] = [96, 384];
const WAVES: usize = 3;
/// The capacity factor of every exchange that has one.
const FACTOR: f64 = 1.15;

const DEADLINE: Duration = Duration::from_secs(120);

/// What takes turns, the bounds first.
const CASES: [Case; 7] = [
    Case::Copy,
    Case::Layer(Rule::Local),
    Case::Layer(Rule::PooledWave),
    Case::Layer(Rule::Ragged { dropless: true }),
    Case::Layer(Rule::Ragged { dropless: false }),
    Case::Layer(Rule::FixedCells),
    Case::Layer(Rule::Ring),
];

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Copy,
    Layer(Rule),
}

/// How often everything is run.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    /// Turns of each case.
    rounds: usize,
    /// Timed repetitions in a turn, after one that is not.
    repeats: usize,
}

fn main() {
    let short = std::env::args().any(|arg| ["--quick", "--test"].contains(&arg.as_str()));
    let rounds =
        if short { Rounds { rounds: 5, repeats: 2 } } else { Rounds { rounds: 20, repeats: 3 } };
    for width in WIDTHS {
        let ranks =
            run_world(RANKS, DEADLINE, |transport| measure(&Group::new(transport), width, rounds));
        let ranks = ranks.unwrap_or_else(|error| panic!("{error}"));
        print(width, &ranks);
    }
}

/// A rank's part of every case, in the order of [`CASES`].
fn measure(group: &Group, width: usize, rounds: Rounds) -> Result<Vec<Line>, EpError> {
    let mut turns = Vec::new();
    for case in CASES {
        turns.push(Turn::new(case, group, width)?);
    }
    for turn in &mut turns {
        turn.measure_memory(group)?;
    }
    for _ in 0..rounds.rounds {
        for turn in &mut turns {
            turn.measure_time(group, rounds.repeats)?;
        }
    }
    Ok(turns.into_iter().map(|turn| turn.line).collect())
}

/// What a rank does in its turn.
enum Work {
    Copy(Copies),
    Layer(Box<Layer>),
    /// The only rank, with the threads of all.
    Alone(Box<Layer>, ThreadPool),
    /// It waits while another rank works alone.
    Idle,
}

struct Turn {
    work: Work,
    line: Line,
}

impl Turn {
    fn new(case: Case, group: &Group, width: usize) -> Result<Self, EpError> {
        let work = match case {
            Case::Copy => Work::Copy(Copies::new(width)),
            Case::Layer(Rule::Local) if group.rank() > 0 => Work::Idle,
            Case::Layer(Rule::Local) => {
                let tokens = RANKS * TOKENS;
                let layer = Layer::new(Rule::Local, &Group::solo(), tokens, width)?;
                let all_cores = ThreadPoolBuilder::new().build().expect("a pool of threads");
                Work::Alone(layer.into(), all_cores)
            }
            Case::Layer(rule) => Work::Layer(Layer::new(rule, group, TOKENS, width)?.into()),
        };
        Ok(Self { work, line: Line::new(case) })
    }

    fn run(&mut self) -> Result<Option<DispatchReport>, EpError> {
        match &mut self.work {
            Work::Copy(copies) => {
                copies.run();
                Ok(None)
            }
            Work::Layer(layer) => Ok(Some(layer.run()?)),
            Work::Alone(layer, all_cores) => Ok(Some(all_cores.install(|| layer.run())?)),
            Work::Idle => Ok(None),
        }
    }

    /// What all ranks allocate together beyond what they hold before, and what the layer reports.
    fn measure_memory(&mut self, group: &Group) -> Result<(), EpError> {
        self.run()?;
        group.barrier("before")?;
        // Between two barriers nobody else runs.
        if group.rank() == 0 {
            memory::restart();
        }
        let before = memory::live();
        group.barrier("memory")?;
        let report = self.run()?;
        group.barrier("after")?;
        self.line.extra_bytes = memory::peak() - before;
        if let Some(report) = report {
            self.line.wire = report.wire.bytes();
            self.line.counts = report.counts;
        }
        group.barrier("read")?;
        Ok(())
    }

    /// When this rank began and ended; the case lasts from the first rank's begin to the last one's
    /// end.
    fn measure_time(&mut self, group: &Group, repeats: usize) -> Result<(), EpError> {
        self.run()?;
        for _ in 0..repeats {
            group.barrier("start")?;
            let begin = Instant::now();
            self.run()?;
            self.line.spans.push((begin, Instant::now()));
            group.barrier("end")?;
        }
        Ok(())
    }
}
