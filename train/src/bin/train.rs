//! The `train` binary: parse, load, run, print the chain of causes.

use std::process::ExitCode;

use clap::Parser as _;
use fulmar_train::cli::{CapacityArgs, Cli, Command, DoctorArgs, PlanArgs, RunArgs};
use fulmar_train::doctor::{self, Diagnosis};
use fulmar_train::{RunOptions, TrainError, capacity, device, plan::Plan, recipe, report, run};

fn main() -> ExitCode {
    fulmar_kernels::allocator::keep_freed_memory();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    let done = match Cli::parse().command {
        Command::Run(args) => run_recipe(args),
        Command::Plan(args) => print_plan(&args),
        Command::Capacity(args) => print_capacity(&args),
        Command::Doctor(args) => diagnose(&args),
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

fn diagnose(args: &DoctorArgs) -> Result<(), TrainError> {
    if let Some(op) = &args.op {
        return examine(op, args);
    }
    let doing = |source| TrainError::Io { doing: "find", path: "train".into(), source };
    let program = std::env::current_exe().map_err(doing)?;
    let (text, json) = (!args.json, args.json);
    let heading = |diagnosis: &Diagnosis| {
        if text {
            println!("{}", diagnosis.heading());
        }
    };
    let examined = |of_op: &doctor::Examined| {
        if text {
            println!("{of_op}");
        }
    };
    let diagnosis = Diagnosis::new(&program, args.device, heading, examined)?;
    if json {
        println!("{}", diagnosis.to_json());
    } else {
        println!("{}", diagnosis.verdict());
    }
    let operations: Vec<String> = diagnosis.unhealthy().into_iter().map(str::to_owned).collect();
    if operations.is_empty() {
        return Ok(());
    }
    Err(TrainError::Unhealthy { device: diagnosis.device, operations })
}

fn examine(op: &str, args: &DoctorArgs) -> Result<(), TrainError> {
    let open = device::open(args.device)?;
    let Some(findings) = doctor::examine(op, &open.device) else {
        let (found, known) = (op.to_owned(), doctor::operations());
        return Err(TrainError::UnknownOperation { found, known });
    };
    println!("{}", serde_json::to_string(&findings).expect("plain values"));
    Ok(())
}
