//! The head and its loss at the ladder's vocabulary.

use burn::tensor::{Int, Tensor};
use fulmar_kernels::cross_entropy::{cross_entropy, reference};

use super::inputs::{ints, leaf, tensor};
use super::memory;
use super::settings::Settings;
use super::table::{Row, Work, mebibytes};

const Z_LOSS: f64 = 1e-4;

struct Problem {
    hidden: Tensor<2>,
    head: Tensor<2>,
    targets: Tensor<1, Int>,
    weight: Tensor<1>,
}

impl Problem {
    fn new(t: usize, d: usize, v: usize) -> Self {
        let target = |i: usize| (i * 2_654_435_761 % v) as i32;
        let weight = tensor([t]).mul_scalar(0.0).add_scalar(1.0 / t as f32);
        let head = leaf([d, v]).inner().mul_scalar((d as f64).powf(-0.5));
        Self {
            hidden: leaf([t, d]),
            head: Tensor::from_inner(head).require_grad(),
            targets: ints((0..t).map(target).collect(), [t]),
            weight,
        }
    }

    fn run(&self) -> impl Sized {
        let (hidden, head) = (self.hidden.clone(), self.head.clone());
        let (targets, weight) = (self.targets.clone(), self.weight.clone());
        cross_entropy(hidden, head, targets, weight, Z_LOSS).total.backward()
    }

    fn run_reference(&self) -> impl Sized {
        let (hidden, head) = (self.hidden.clone(), self.head.clone());
        let (targets, weight) = (self.targets.clone(), self.weight.clone());
        reference(hidden, head, targets, weight, Z_LOSS).total.backward()
    }
}

/// The ladder's vocabulary.
pub(crate) fn rows(settings: &Settings) -> Vec<Row> {
    // The logits of all tokens are 2 GiB, and the reference holds several of their size.
    let few = Problem::new(256, settings.pick(768, 32), settings.pick(128_256, 1_000));
    let reference = settings.best(|| few.run_reference());
    let own = settings.best(|| few.run());
    drop(few);
    let large = row(settings, settings.pick((4_096, 768, 128_256), (256, 32, 1_000)));
    vec![large.reference(reference, own, "T 256")]
}

/// The vocabulary of a small run.
pub(crate) fn small_rows(settings: &Settings) -> Vec<Row> {
    vec![row(settings, settings.pick((2_048, 192, 8_192), (256, 32, 500)))]
}

fn row(settings: &Settings, (t, d, v): (usize, usize, usize)) -> Row {
    let problem = Problem::new(t, d, v);
    let secs = settings.best(|| problem.run());
    let (_, bytes) = memory::beside(|| problem.run());
    let results = size_of::<f32>() * (t * d + d * v);
    let note = format!(
        "{:.1} MiB beside {:.0} MiB of results, target 64",
        mebibytes(bytes.saturating_sub(results)),
        mebibytes(results)
    );
    let work = Work::flop(6.0 * (t * d) as f64 * v as f64);
    Row::new("cross_entropy", format!("T {t} d {d} V {v}"), secs, work).target(0.6).note(note)
}
