//! Many steps over ranks, an exchange after the other, and whole runs: nothing hangs and nothing piles
//! up.
//!
//! `tests/README.md` has the command of the long form and what it printed.

mod runs;

use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use fulmar::ep::{DispatchConfig, Payload};
use fulmar::train::TrainError;

use crate::process;
use crate::toy::{self, Rank, on_every_rank};

/// Ranks that make no step for so long hang: a step takes a fraction of a second.
const SILENCE: Duration = Duration::from_secs(60);

/// How long, and what memory may do meanwhile.
struct Soak {
    steps: u64,
    /// Steps until buffers, pools and the allocator's arenas have their size.
    warm_up: u64,
    /// Steps between samples of the memory.
    sample_every: u64,
    /// Largest slope, in KiB per 100 steps.
    bound: f64,
}

#[test]
fn sixty_steps_through_every_exchange_neither_hang_nor_grow() {
    // After so few steps the allocator has not settled. A single step's graphs, kept by mistake,
    // are 1,000 KiB and more: they would be 100 times that.
    let soak = Soak { steps: 60, warm_up: 20, sample_every: 4, bound: 20_000.0 };
    soak.run("soak::sixty_steps_through_every_exchange_neither_hang_nor_grow");
}

#[test]
#[ignore = "minutes; see tests/README.md"]
fn two_thousand_steps_through_every_exchange_neither_hang_nor_grow() {
    // The samples scatter by some 350 KiB, which is 11 KiB per 100 steps for the slope, and the
    // allocator still settles a little: up to 26 was seen. One buffer of rows, kept by mistake in
    // each step, would be 1,000.
    let soak = Soak { steps: 2_000, warm_up: 200, sample_every: 50, bound: 100.0 };
    soak.run("soak::two_thousand_steps_through_every_exchange_neither_hang_nor_grow");
}

/// Every kind of exchange, with room and tight, in both types.
fn exchanges() -> Vec<DispatchConfig> {
    let (f32, bf16) = (Payload::F32, Payload::Bf16);
    let waves = |num_expert_waves, factor, payload| DispatchConfig::PooledWave {
        num_expert_waves,
        capacity_factor: factor,
        transport_capacity_factor: factor,
        payload,
    };
    let ragged = |capacity_factor, payload| DispatchConfig::Ragged { capacity_factor, payload };
    let cells = |capacity_factor, payload| DispatchConfig::FixedCells { capacity_factor, payload };
    let ring = |capacity_factor, payload| DispatchConfig::Ring { capacity_factor, payload };
    vec![
        waves(2, 1.15, f32),
        ragged(None, f32),
        cells(1.15, f32),
        ring(None, f32),
        waves(4, 2.0, bf16),
        ragged(Some(1.0), bf16),
        cells(2.0, bf16),
        ring(Some(1.0), bf16),
    ]
}

impl Soak {
    /// In a process of its own, so that no other test's memory is counted.
    fn run(&self, test: &str) {
        if process::handed_over().is_some() {
            return self.watch();
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        print!("{}", process::again(test, folder.path()));
    }

    /// Lets the ranks go and watches them; what hangs cannot be ended but with the process.
    fn watch(&self) {
        let (steps, watched) = channel();
        let (count, soak) = (self.steps, [self.steps, self.sample_every]);
        let ranks = std::thread::spawn(move || run_ranks(soak, &steps));
        let started = Instant::now();
        let (mut last, mut samples) = (0, Vec::new());
        loop {
            match watched.recv_timeout(SILENCE) {
                Ok((step, resident)) => {
                    last = step;
                    samples.extend(resident.map(|kib| (step, kib)));
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("no step for {SILENCE:?} after step {last}: the ranks hang");
                    exit(2);
                }
            }
        }
        let drops = ranks.join().expect("no rank fails");
        assert_eq!(last, count);
        assert!(drops > 0, "tight exchanges drop");
        println!("{count} steps over 2 x 2 ranks in {:.1} s", started.elapsed().as_secs_f64());
        self.judge(&samples);
    }

    fn judge(&self, samples: &[(u64, u64)]) {
        if samples.is_empty() {
            println!("memory: skipped, there is no /proc/self/status");
            return;
        }
        for (step, kib) in samples {
            println!("step {step:>5}: {kib} KiB");
        }
        let settled = samples.iter().filter(|(step, _)| *step >= self.warm_up);
        let settled: Vec<_> = settled.map(|(step, kib)| (*step as f64, *kib as f64)).collect();
        let slope = 100.0 * slope(&settled);
        let most = samples.iter().map(|(_, kib)| kib).max().expect("not empty");
        println!(
            "memory after step {}: {slope:.1} KiB per 100 steps, at most {} allowed; {most} KiB at most",
            self.warm_up, self.bound
        );
        assert!(slope <= self.bound, "memory grows by {slope:.1} KiB per 100 steps");
    }
}

/// Makes the steps on every rank, tells of each, and returns how many assignments were dropped.
fn run_ranks([steps, sample_every]: [u64; 2], made: &Sender<(u64, Option<u64>)>) -> u64 {
    let config = toy::config([2, 2], &[&format!("schedule.steps={steps}")]);
    let exchanges = exchanges();
    let made = std::sync::Mutex::new(made.clone());
    let of_rank = |mut rank: Rank<'_>| -> Result<u64, TrainError> {
        let mut drops = 0;
        for step in 0..steps {
            rank.exchange_by(&exchanges[step as usize % exchanges.len()])?;
            let report = rank.step(&toy::batch(&config, step))?;
            assert!(report.updated, "step {step}");
            for layer in &report.layers {
                drops += layer.counts.sender_dropped + layer.counts.receiver_dropped;
            }
            if rank.world.is_first() {
                let sample = (step + 1).is_multiple_of(sample_every);
                let resident = sample.then(resident_kib).flatten();
                made.lock().expect("no panic").send((step + 1, resident)).expect("watched");
            }
        }
        Ok(drops)
    };
    on_every_rank(&config, of_rank)[0]
}

/// Memory of this process that is in RAM; none where the system has no `/proc`.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Of the least-squares line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let mean =
        |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let products = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>();
    products / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
}
