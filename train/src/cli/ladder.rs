//! `train ladder`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::device::DeviceChoice;
use crate::error::TrainError;
use crate::ladder::{Climb, Ladder, LadderPlan, LadderStatus, climb};
use crate::plan::grouped;
use crate::stop_signal::StopSignal;

/// Flags of `ladder`.
#[derive(Debug, Args)]
pub struct LadderArgs {
    /// What to do.
    #[command(subcommand)]
    command: LadderCommand,
}

#[derive(Debug, Subcommand)]
enum LadderCommand {
    /// Say what the rungs amount to, and check them against the ladder's rule.
    #[command(after_help = "Example: train ladder plan examples/ladders/published.toml")]
    Plan(TableArgs),
    /// Train every rung that is not done, one after another; stopped, it goes on where it was.
    #[command(after_help = "Example: train ladder run examples/ladders/mini.toml")]
    Run(RunArgs),
    /// Say how far each rung is.
    #[command(after_help = "Example: train ladder status examples/ladders/mini.toml")]
    Status(TableArgs),
}

#[derive(Debug, Args)]
struct TableArgs {
    /// File of the ladder (TOML).
    ladder: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// File of the ladder (TOML).
    ladder: PathBuf,
    /// Train these rungs only.
    #[arg(long = "rung", value_name = "NAME,..", value_delimiter = ',')]
    rungs: Vec<String>,
    /// auto, cpu, wgpu or cuda.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    device: DeviceChoice,
}

impl LadderArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        match self.command {
            LadderCommand::Plan(args) => {
                let plan = LadderPlan::new(&Ladder::read(&args.ladder)?);
                print(&plan, args.json);
                Ok(())
            }
            LadderCommand::Status(args) => {
                let status = LadderStatus::of(&Ladder::read(&args.ladder)?)?;
                print(&status, args.json);
                Ok(())
            }
            LadderCommand::Run(args) => args.execute(),
        }
    }
}

fn print(table: &(impl serde::Serialize + std::fmt::Display), json: bool) {
    if json {
        println!("{}", serde_json::to_string_pretty(table).expect("plain values"));
    } else {
        print!("{table}");
    }
}

impl RunArgs {
    fn execute(self) -> Result<(), TrainError> {
        let ladder = Ladder::read(&self.ladder)?;
        let how = Climb { device: self.device, rungs: self.rungs, stop: StopSignal::listen()? };
        let num_rungs = ladder.rungs.len();
        let whole = climb(
            &ladder,
            &how,
            &mut |rung, status| {
                let place =
                    1 + ladder.rungs.iter().position(|of| of.name() == rung.name()).unwrap_or(0);
                println!(
                    "\nrung {place} of {num_rungs}: {}, from update {} to {}",
                    rung.name(),
                    grouped(status.step),
                    grouped(status.steps)
                );
            },
            &mut |rung, summary| {
                if let Some(heldout) = &summary.heldout {
                    println!(
                        "{}: held-out {:.4} macro, {:.0} tokens/s",
                        rung.name(),
                        heldout.macro_loss(),
                        summary.tokens_per_second(&rung.config)
                    );
                }
            },
        )?;
        println!();
        print!("{}", LadderStatus::of(&ladder)?);
        if !whole {
            println!("stopped; the same command goes on");
        }
        Ok(())
    }
}
