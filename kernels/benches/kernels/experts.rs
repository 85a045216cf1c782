//! Grouped experts over ragged rows, and over the same rows in groups padded to a capacity.

use burn::tensor::Tensor;
use fulmar_kernels::grouped_swiglu::{Groups, grouped_swiglu, reference};

use super::inputs::{forward_backward, leaf};
use super::settings::Settings;
use super::table::{Row, Work};

struct Problem {
    x: Tensor<2>,
    gate: Tensor<3>,
    up: Tensor<3>,
    down: Tensor<3>,
    groups: Groups,
}

impl Problem {
    fn new(groups: Groups, width: usize) -> Self {
        let matrices = || leaf([groups.num_groups(), width, width]);
        Self {
            x: leaf([groups.rows(), width]),
            gate: matrices(),
            up: matrices(),
            down: matrices(),
            groups,
        }
    }

    fn run(&self) -> impl Sized {
        let (x, gate) = (self.x.clone(), self.gate.clone());
        let (up, down) = (self.up.clone(), self.down.clone());
        forward_backward(grouped_swiglu(x, gate, up, down, &self.groups))
    }

    fn run_reference(&self) -> impl Sized {
        let (x, gate) = (self.x.clone(), self.gate.clone());
        let (up, down) = (self.up.clone(), self.down.clone());
        forward_backward(reference(x, gate, up, down, &self.groups))
    }
}

/// Rows of each expert, about as 1 over its rank; the last ones get none.
fn zipf_counts(experts: usize, rows: usize) -> Vec<usize> {
    let harmonic: f64 = (1..=experts).map(|rank| 1.0 / rank as f64).sum();
    let share = |rank: usize| rows as f64 / harmonic / (rank + 1) as f64;
    let mut counts: Vec<usize> = (0..experts).map(|rank| share(rank) as usize).collect();
    let idle = experts / 16;
    counts[experts - idle..].fill(0);
    let missing = rows - counts.iter().sum::<usize>();
    for i in 0..missing {
        counts[i % (experts - idle)] += 1;
    }
    // Popular experts do not lie side by side; 5 has no factor with a number of experts in use.
    (0..experts).map(|i| counts[(i * 5 + 3) % experts]).collect()
}

/// The FLOP of nine products, and the bytes that have to move: every matrix of an expert with rows
/// read forward and backward and its gradient written, that of an expert without written; rows read
/// and written once in each pass.
fn work(counts: &[usize], width: usize) -> Work {
    let rows: usize = counts.iter().sum();
    let matrices: usize = counts.iter().map(|&count| if count > 0 { 3 } else { 1 }).sum();
    let bytes = Work::values(3 * matrices * width * width + 5 * rows * width).bytes;
    Work { flop: 18.0 * (rows * width * width) as f64, bytes }
}

pub(crate) fn rows(settings: &Settings) -> Vec<Row> {
    let (experts, width, rows) = settings.pick((384, 384, 8_192), (16, 32, 256));
    let counts = zipf_counts(experts, rows);
    let capacity = counts.iter().copied().max().unwrap_or(0);
    let starts = (0..experts).map(|i| i * capacity).collect();
    let padded = Groups::new(starts, counts.clone(), experts * capacity).expect("a capacity");
    let ragged = Problem::new(Groups::from_counts(&counts), width);
    // Both take turns in one loop, so that whatever disturbs the machine disturbs both.
    let padded = Problem::new(padded, width);
    let ragged_secs = settings.best(|| ragged.run());
    let padded_secs = settings.best(|| padded.run());
    let shape = |kind: &str| format!("{kind} E {experts} c f {width} rows {rows}");
    let row = |kind, secs| Row::new("grouped_swiglu", shape(kind), secs, work(&counts, width));
    // The reference writes a gradient of all experts' size for each expert.
    let (few, few_rows) = settings.pick((24, 512), (4, 64));
    let few = Problem::new(Groups::from_counts(&zipf_counts(few, few_rows)), width);
    let reference = settings.best(|| few.run_reference());
    let own = settings.best(|| few.run());
    let note = format!("{:.2} of the time padded", ragged_secs.wall / padded_secs.wall);
    vec![
        row("ragged", ragged_secs).target(0.7).reference(reference, own, "24 experts").note(note),
        row("padded", padded_secs),
    ]
}
