//! Grouped experts over ragged rows, and over the same rows in groups padded to a capacity.

use burn::tensor::Tensor;
use fulmar_kernels::grouped_swiglu::{Groups, grouped_swiglu, reference};

use super::inputs::{forward_backward, leaf};
use super::secs::Secs;
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

/// Rows of each expert, about as 1 over a power of its rank; the last ones get none.
fn zipf_counts(experts: usize, rows: usize, power: f64) -> Vec<usize> {
    let in_use = experts - experts / 16;
    let of_rank = |rank: usize| ((rank + 1) as f64).powf(-power);
    let total: f64 = (0..in_use).map(of_rank).sum();
    let share = |rank: usize| (rows as f64 * of_rank(rank) / total) as usize;
    let mut counts: Vec<usize> = (0..in_use).map(share).collect();
    let missing = rows - counts.iter().sum::<usize>();
    (0..missing).for_each(|i| counts[i % in_use] += 1);
    counts.resize(experts, 0);
    // Popular experts do not lie side by side.
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
    let row = |name: &str, counts: &[usize], secs| {
        let shape = format!("{name} E {experts} c f {width} rows {rows}");
        Row::new("grouped_swiglu", shape, secs, work(counts, width))
    };
    let steep = zipf_counts(experts, rows, 1.0);
    let problem = Problem::new(Groups::from_counts(&steep), width);
    let steep_secs = settings.best(|| problem.run());
    drop(problem);
    // The reference writes a gradient of all experts' size for each expert.
    let (few, few_rows) = settings.pick((24, 512), (4, 64));
    let few = Problem::new(Groups::from_counts(&zipf_counts(few, few_rows, 1.0)), width);
    let reference = settings.best(|| few.run_reference());
    let own = settings.best(|| few.run());

    // Where the largest group is that of the steep law, the padding would be gigabytes.
    let flat = zipf_counts(experts, rows, 0.5);
    let capacity = flat.iter().copied().max().unwrap_or(0);
    let starts = (0..experts).map(|i| i * capacity).collect();
    let padded = Groups::new(starts, flat.clone(), experts * capacity).expect("a capacity");
    let padded = Problem::new(padded, width);
    let ragged = Problem::new(Groups::from_counts(&flat), width);
    let (mut ragged_secs, mut padded_secs) = (Secs::NEVER, Secs::NEVER);
    // Turns, so that whatever disturbs the machine disturbs both.
    for _ in 0..settings.pick(3, 1) {
        ragged_secs = ragged_secs.min(settings.best(|| ragged.run()));
        padded_secs = padded_secs.min(settings.best(|| padded.run()));
    }
    let note = format!("{:.2} of the time padded, target 1", ragged_secs.wall / padded_secs.wall);
    vec![
        row("1/rank", &steep, steep_secs).target(0.7).reference(reference, own, "24 experts"),
        row("1/rank^0.5", &flat, ragged_secs).target(0.7).note(note),
        row("1/rank^0.5 padded", &flat, padded_secs),
    ]
}
