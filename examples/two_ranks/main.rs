//! The miniature over 2 and 4 ranks in one process: pooled-wave, ragged, a switch from one to the
//! other in mid-run, and a balance loss beside them.
//!
//! ```text
//! cargo run --release --example two_ranks
//! ```

use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::Device;
use clap::Parser;
use fulmar::data::Batch;
use fulmar::prelude::*;
use fulmar::train::assemble::{self, RunData};
use fulmar::train::launch::on_ranks;
use fulmar::train::layer_report::LayerReport;
use fulmar::train::recipe;
use fulmar::train::state::{self, TrainState};
use fulmar::train::step::{StepContext, StepReport};

const MINI: &str = include_str!("../recipes/mini_d96.toml");

/// Steps at the end over which drops by layer are summed.
const TAIL: usize = 10;

/// Trains the miniature over ranks, with one exchange after the other.
#[derive(Parser)]
#[command(after_help = "Example: cargo run --release --example two_ranks -- --steps 120")]
struct Args {
    /// Steps of each run; the switch comes after half of them.
    #[arg(long, default_value_t = 60)]
    steps: u64,
    /// Room of pools and experts in the pooled-wave exchange, as a multiple of an even load.
    #[arg(long, default_value_t = 1.15)]
    factor: f64,
    /// Weight of the sequence balance loss in the last run.
    #[arg(long, default_value_t = 0.01)]
    balance: f64,
    /// Seed of weights and of the order of rows.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// One run: its name, and what its steps said.
struct Curve {
    name: &'static str,
    steps: Vec<StepReport>,
    secs: f64,
}

fn main() -> ExitCode {
    keep_freed_memory();
    if cfg!(debug_assertions) {
        println!("this is a debug build, several times slower; add --release to cargo run");
    }
    abort_on_device_panic();
    match compare(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Args) -> Result<(), TrainError> {
    let pooled = format!(
        "{{ kind = \"pooled_wave\", capacity_factor = {0}, transport_capacity_factor = {0} }}",
        args.factor
    );
    let ragged = "{ kind = \"ragged\" }";
    let switch =
        format!("parallel.switches=[{{ step = {}, dispatch = {ragged} }}]", args.steps / 2);
    let balance = format!("model.sequence_balance_loss={}", args.balance);
    let none = "parallel.switches=[]";
    let runs = [
        ("1 rank", 1, "{ kind = \"local\" }", none),
        ("2 pooled", 2, pooled.as_str(), none),
        ("4 pooled", 4, pooled.as_str(), none),
        ("4 ragged", 4, ragged, none),
        ("4 switched", 4, pooled.as_str(), switch.as_str()),
        ("4 balanced", 4, pooled.as_str(), balance.as_str()),
    ];
    let config_of = |shards: usize, dispatch: &str, change: &str| {
        let set = [
            format!("seed={}", args.seed),
            format!("parallel.shards={shards}"),
            format!("parallel.dispatch={dispatch}"),
            change.to_owned(),
        ];
        recipe::parse(MINI, "mini_d96.toml", &set)
    };
    let data = assemble::data(&config_of(1, runs[0].2, none)?)?;
    let mut curves = Vec::new();
    for (name, shards, dispatch, change) in runs {
        let config = config_of(shards, dispatch, change)?;
        let started = Instant::now();
        let steps = on_ranks(&config, |world| train(&config, args.steps, world, &data))?;
        let curve = Curve { name, steps, secs: started.elapsed().as_secs_f64() };
        println!("{name:<11} {} steps in {:.0} s", args.steps, curve.secs);
        curves.push(curve);
    }
    print_by_step(&curves, "training loss", |step| format!("{:.4}", step.loss));
    print_by_step(&curves, "dropped assignments", |step| percent(drops(&step.layers)));
    print_layers(&curves);
    print_wire(&curves);
    println!(
        "`4 switched` goes from pooled-wave to ragged after step {}; `4 balanced` is `4 pooled` with \
         a sequence balance loss of weight {}",
        args.steps / 2,
        args.balance,
    );
    Ok(())
}

/// What every rank does: a state of its own, and the same steps as all others.
fn train(
    config: &RunConfig,
    steps: u64,
    world: &World,
    data: &RunData,
) -> Result<Vec<StepReport>, TrainError> {
    let device = Device::flex();
    let mut state = TrainState::new(config, world, &device)?;
    let balancing = state::balancing(config);
    let step = |step: u64| {
        let exchange = config.parallel.dispatch_at(step);
        let dispatcher = Dispatcher::new(exchange, config.model.num_experts, &world.expert)?;
        let context = StepContext::new(config, world, &dispatcher, &balancing, &device);
        let rows = config.batch.rows;
        let batch: Batch = data.rows.batch(step * rows..(step + 1) * rows);
        let rates = state.optimizer.rates(&config.schedule, step);
        state.step(&batch, rates, &context)
    };
    (0..steps).map(step).collect()
}

fn drops(layers: &[LayerReport]) -> f64 {
    let mut counts = DispatchCounts::default();
    layers.iter().for_each(|layer| counts += layer.counts);
    counts.drop_fraction()
}

fn percent(fraction: f64) -> String {
    format!("{:.2}%", 100.0 * fraction)
}

fn header(curves: &[Curve], first: &str) {
    let names = curves.iter().map(|curve| format!("{:>12}", curve.name));
    println!("\n{first:<22}{}", names.collect::<String>());
}

fn print_by_step(curves: &[Curve], title: &str, value: impl Fn(&StepReport) -> String) {
    header(curves, title);
    let steps = curves[0].steps.len();
    let shown = (0..steps).filter(|step| [0, 4].contains(step) || (step + 1) % 10 == 0);
    for step in shown {
        let values = curves.iter().map(|curve| format!("{:>12}", value(&curve.steps[step])));
        println!("  after step {:<9}{}", step + 1, values.collect::<String>());
    }
}

/// Sender and receiver drops of each layer over the last steps.
fn print_layers(curves: &[Curve]) {
    header(curves, &format!("drops, last {TAIL} steps"));
    for layer in 0..curves[0].steps[0].layers.len() {
        let of_curve = |curve: &Curve| {
            let mut counts = DispatchCounts::default();
            let tail = curve.steps.len().saturating_sub(TAIL);
            curve.steps[tail..].iter().for_each(|step| counts += step.layers[layer].counts);
            let percent = |fraction: f64| format!("{:.2}", 100.0 * fraction);
            let (sent, received) = (counts.sender_drop_fraction(), counts.receiver_drop_fraction());
            format!("{:>12}", format!("{}+{}%", percent(sent), percent(received)))
        };
        println!("  layer {layer:<14}{}", curves.iter().map(of_curve).collect::<String>());
    }
    println!("  (sender + receiver)");
}

fn print_wire(curves: &[Curve]) {
    header(curves, "wire, last step");
    let row = |name: &str, value: &dyn Fn(WireBytes) -> String| {
        let of_curve = |curve: &Curve| {
            let mut wire = WireBytes::default();
            curve
                .steps
                .last()
                .into_iter()
                .flat_map(|step| &step.layers)
                .for_each(|layer| wire += layer.wire);
            format!("{:>12}", value(wire))
        };
        println!("  {name:<20}{}", curves.iter().map(of_curve).collect::<String>());
    };
    row("MiB between ranks", &|wire| {
        format!("{:.2}", (wire.payload + wire.header) as f64 / f64::from(1 << 20))
    });
    row("header's share", &|wire| percent(wire.header_share()));
    println!();
}
