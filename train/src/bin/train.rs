//! The `train` binary: parse, load, run, print the chain of causes.

use std::process::ExitCode;

use clap::Parser as _;
use fulmar_train::cli::{CapacityArgs, Cli, Command, PlanArgs, RunArgs};
use fulmar_train::{RunOptions, TrainError, capacity, plan::Plan, recipe, report, run};

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    let done = match Cli::parse().command {
        Command::Run(args) => run_recipe(args),
        Command::Plan(args) => print_plan(&args),
        Command::Capacity(args) => print_capacity(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}

fn run_recipe(args: RunArgs) -> Result<(), TrainError> {
    let config = recipe::load(&args.recipe, &args.set)?;
    let options = RunOptions {
        out: args.out.unwrap_or_else(|| std::path::Path::new("runs").join(&config.name)),
        device: args.device,
        resume: args.resume,
        stop_after: args.steps,
        samples: true,
    };
    let summary = run(&config, &options)?;
    report::print(&config, &options, &summary)
}

fn print_plan(args: &PlanArgs) -> Result<(), TrainError> {
    let plan = Plan::new(&recipe::load(&args.recipe, &args.set)?);
    if args.json {
        println!("{}", plan.to_json());
    } else {
        print!("{plan}");
    }
    Ok(())
}

fn print_capacity(args: &CapacityArgs) -> Result<(), TrainError> {
    let report = match &args.choices {
        Some(file) => capacity::plan_recorded(&args.exchange(), file)?,
        None => capacity::plan(&args.exchange(), &args.drawn())?,
    };
    if args.json {
        println!("{}", report.to_json());
    } else {
        print!("{report}");
    }
    Ok(())
}
