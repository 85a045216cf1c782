//! The `train` binary: a file a subcommand, with its flags and what it prints.
//!
//! Exit statuses are those of [`crate::exit`].

mod capacity;
mod checkpoint;
mod data;
mod doctor;
mod eval;
mod experiment;
mod explain;
mod forecast;
mod generate;
mod ladder;
mod plan;
mod prove;
mod replan;
mod report;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::TrainError;

/// Trains fine-grained mixture-of-experts language models from recipes.
#[derive(Debug, Parser)]
#[command(
    name = "train",
    version,
    disable_help_subcommand = true,
    help_template = "{about-with-newline}{usage-heading} {usage}\n\n{all-args}{after-help}",
    after_help = "\
Example: train run examples/recipes/mini_d96.toml
Exit status: 0 done, 2 usage, 3 data, 4 not finite, 5 peer lost, 6 checkpoint, 7 device, 1 other"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a recipe to its end, or to --steps.
    #[command(after_help = "Example: train run mini.toml --set seed=7 --steps 50 --out runs/seven")]
    Run(run::RunArgs),
    /// Say what a recipe amounts to: counts, FLOPs by part, steps, rates, memory.
    #[command(after_help = "Example: train plan examples/recipes/d768.toml --json")]
    Plan(plan::PlanArgs),
    /// Train a stretch of a run again, and compare every step and the weights with its record.
    #[command(after_help = "Example: train prove runs/mini_d96 --steps 50")]
    Prove(prove::ProveArgs),
    /// Change the plan of a run in its course, by rule; or branch a cooldown off.
    #[command(after_help = "\
Example: train replan runs/hero --steps 300000 --reason 'the machines go back in May'
         train replan runs/hero --branch runs/end --from 200000 --steps 212000 --reason 'a look'")]
    Replan(replan::ReplanArgs),
    /// Look at checkpoints, verify, keep and reshard them, exchange weights with other tools.
    #[command(after_help = "Example: train checkpoint list runs/mini")]
    Checkpoint(checkpoint::CheckpointArgs),
    /// Make token stores of files, look at them, clean, sort into cells and mix.
    #[command(after_help = "Example: train data inspect runs/cache/0123456789abcdef")]
    Data(data::DataArgs),
    /// Say what was in force in one update of a run, or will be, and why.
    #[command(after_help = "Example: train explain runs/hero 58015")]
    Explain(explain::ExplainArgs),
    /// Say what each exchange rule would drop, hold and send, by replaying choices of experts.
    #[command(after_help = "\
Example: train capacity --rows 65536 --factors 1.15,1.33 --documents lognormal:600:1.2
         train capacity --choices step-81000.safetensors --experts 384 --json")]
    Capacity(capacity::CapacityArgs),
    /// Say what a large run will reach, from the losses of a ladder of small ones.
    #[command(after_help = "\
Example: train forecast ladder.json --run d128 --asymptote 3
         train forecast --runs runs/d48 runs/d64 runs/d96 --target d128.toml --preregister d128.json")]
    Forecast(forecast::ForecastArgs),
    /// Plan and train a ladder: small runs by one rule, from which a large one is forecast.
    #[command(after_help = "Example: train ladder run examples/ladders/mini.toml")]
    Ladder(ladder::LadderArgs),
    /// Keep record of experiments: what is expected, before; what came of it, after.
    #[command(after_help = "Example: train experiment list examples/experiments")]
    Experiment(experiment::ExperimentArgs),
    /// Make one page of runs: loss, drops, loads, speed, evaluations, events, lineage.
    #[command(after_help = "\
Example: train report runs/mini_d48 runs/mini_d64 -o report.html
         train report runs/hero --forecast hero.json --experiments experiments --follow")]
    Report(report::ReportArgs),
    /// Evaluate checkpoints or exported weights on held-out text and suites.
    #[command(after_help = "\
Example: train eval runs/mini_d96 --step 200,706 --as-trained --record
         train eval runs/a runs/b --suite paloma=texts/paloma --documents sums.jsonl")]
    Eval(eval::EvalArgs),
    /// Let a checkpoint or exported weights continue texts.
    #[command(after_help = "\
Example: train generate runs/mini_d96 --prompt 'My lord, I ' --prompt 'Enter ' --temperature 0
         train generate mini-hf --prompt 'And ' --new-tokens 300 --top-p 0.9 --seed 7 --json")]
    Generate(generate::GenerateArgs),
    /// Say which device and kernels a run would use, and whether they compute what they mean.
    #[command(after_help = "Example: train doctor --device wgpu")]
    Doctor(doctor::DoctorArgs),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// Whatever stopped it.
    pub fn execute(self) -> Result<(), TrainError> {
        match self {
            Self::Run(args) => args.execute(),
            Self::Plan(args) => args.execute(),
            Self::Prove(args) => args.execute(),
            Self::Replan(args) => args.execute(),
            Self::Checkpoint(args) => args.execute(),
            Self::Data(args) => args.execute(),
            Self::Explain(args) => args.execute(),
            Self::Capacity(args) => args.execute(),
            Self::Forecast(args) => args.execute(),
            Self::Ladder(args) => args.execute(),
            Self::Experiment(args) => args.execute(),
            Self::Report(args) => args.execute(),
            Self::Eval(args) => args.execute(),
            Self::Generate(args) => args.execute(),
            Self::Doctor(args) => args.execute(),
        }
    }
}

/// Everything that the `train` binary does: parse, do, print the chain of causes.
pub fn main() -> ExitCode {
    fulmar_kernels::allocator::keep_freed_memory();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    match Cli::parse().command.execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.chain());
            crate::exit::status_of(&error).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The words of every command, and of those below it.
    fn all(words: &str, command: &clap::Command, found: &mut Vec<String>) {
        found.push(words.to_owned());
        for below in command.get_subcommands() {
            all(&format!("{words} {}", below.get_name()), below, found);
        }
    }

    #[test]
    fn every_help_fits_a_screen_and_ends_with_an_example() {
        let mut commands = Vec::new();
        all("train", &Cli::command(), &mut commands);
        assert!(commands.len() >= 17, "{}", commands.len());
        let mut problems = Vec::new();
        for words in commands {
            let asked = Cli::try_parse_from(words.split(' ').chain(["--help"]));
            let said = asked.expect_err("a help").to_string();
            let wide = said.lines().filter(|line| line.chars().count() > 100);
            problems.extend(wide.map(|line| format!("{words}: {line}")));
            let lines = said.lines().count();
            if lines > 26 {
                problems.push(format!("{words}: {lines} lines"));
            }
            let example = said.find("Example: train ").unwrap_or_else(|| panic!("{words}: {said}"));
            assert!(said[example..].lines().count() <= 4, "{said}");
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
