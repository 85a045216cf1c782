//! Where the time of a training step goes, f32, with optimizer.
//!
//! ```text
//! cargo bench --workspace --bench step
//! cargo bench --workspace --bench step -- mini
//! cargo bench --workspace --bench step -- d768_block
//! ```
//!
//! The shape is the proxy (4 layers, 48 experts, width 192, 8 rows of 256 tokens) unless an argument
//! names another: the `mini` preset, or one layer of d768 with a small vocabulary and one row.
//!
//! The parts are timed one by one, each forward and backward at its shape in the step and times the
//! number of layers; the whole step is timed as it is. What the parts do not explain is `other`.
//! Beside a part stands what its reference in plain tensor operations takes. The share of the peak
//! counts what a step must do, whatever is executed: the model's FLOP and those of Newton-Schulz
//! with symmetric products. What a step pays for its log, its alarms and its norms is timed with its
//! own report. The last line is `tokens/s: N`.

mod inputs;
mod parts;
mod shape;
mod telemetry;
mod timing;
mod whole;

use std::time::Instant;

use fulmar_train::optim::Rule;

use parts::Part;
use shape::Shape;
use telemetry::Telemetry;
use timing::{best, gemm_gflops};
use whole::WholeStep;

fn main() {
    fulmar_kernels::allocator::keep_freed_memory();
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` passes `--test`: then one short round shows that the bench runs.
    let repeats = if args.iter().any(|arg| arg == "--test") { 1 } else { 7 };
    let name = args.iter().find(|arg| !arg.starts_with('-')).map_or("proxy", String::as_str);
    let config = Shape::from_name(name).config();
    let mut step = WholeStep::new(&config);
    step.once();
    let peak = gemm_gflops(repeats);
    let total = best(repeats, || step.once());
    let parts: Vec<Part> = parts::all(&config.model, config.batch.rows as usize, repeats)
        .into_iter()
        .chain(step.parts(repeats))
        .collect();
    println!("{name}: {} tokens a step", config.tokens_per_step());
    print(&parts, total);

    let tokens = config.tokens_per_step();
    let model = config.model.step_flops(tokens) / 1e9;
    let newton_schulz = newton_schulz_flop(&step) / 1e9;
    let reached = (model + newton_schulz) / total;
    println!("counted: {model:.1} GFLOP of the model, {newton_schulz:.1} of Newton-Schulz");
    println!(
        "{reached:.1} GFLOP/s, {:.1}% of {peak:.1} that f32 products of 1024 reach, target 60%",
        100.0 * reached / peak
    );
    let telemetry = Telemetry::measure(&step, repeats);
    println!(
        "telemetry: {:.2}% of a step, limit 2% (a line {:.2} ms, norms {:.2} ms each {} steps)",
        100.0 * telemetry.per_step() / total,
        telemetry.line * 1e3,
        telemetry.norms * 1e3,
        telemetry.norms_every,
    );
    println!("tokens/s: {:.0}", tokens as f64 / total);
}

fn print(parts: &[Part], total: f64) {
    println!("{:<16}{:>10}{:>9}{:>14}", "part", "ms", "share", "reference ms");
    let other = total - parts.iter().map(|part| part.secs).sum::<f64>();
    for part in parts {
        let reference = part.reference.map_or(String::new(), |secs| format!("{:.2}", secs * 1e3));
        let (ms, share) = (part.secs * 1e3, 100.0 * part.secs / total);
        println!("{:<16}{ms:>10.2}{share:>8.1}%{reference:>14}", part.name);
    }
    println!("{:<16}{:>10.2}{:>8.1}%", "other", other * 1e3, 100.0 * other / total);
    println!("{:<16}{:>10.2}", "step", total * 1e3);
    let gained = |part: &Part| part.reference.map_or(0.0, |reference| reference - part.secs);
    let reference = total + parts.iter().map(gained).sum::<f64>();
    println!("with the references in their places: {:.1} times as long", reference / total);
}

/// In each of five iterations `X X^T` and its square, of which half is enough, and the product with
/// X.
fn newton_schulz_flop(step: &WholeStep<'_>) -> f64 {
    let matrices = step.table().iter().filter(|(_, entry)| entry.rule == Rule::MuonH);
    let flop = matrices.map(|(_, entry)| {
        let [.., p, q] = entry.shape[..] else { return 0.0 };
        let count: usize = entry.shape[..entry.shape.len() - 2].iter().product();
        let (short, long) = (p.min(q) as f64, p.max(q) as f64);
        5.0 * count as f64 * (3.0 * short * short * long + short.powi(3))
    });
    flop.sum()
}

/// Seconds of one run.
fn seconds(run: &mut impl FnMut()) -> f64 {
    let started = Instant::now();
    run();
    started.elapsed().as_secs_f64()
}
