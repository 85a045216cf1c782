//! `train experiment`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::error::TrainError;
use crate::experiment::{
    self, CloseOptions, Conclusion, PROTOCOL_FILE, RECIPES, Source, Standing, Verdict,
};

/// Flags of `experiment`.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ExperimentCommand,
}

/// What to do with experiments.
#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// Make a folder with the form of an experiment, to be filled in and sealed.
    #[command(
        after_help = "Example: train experiment new examples/experiments/z_loss --title 'Z-loss'"
    )]
    New(NewArgs),
    /// Complete an experiment before its first step: whole recipes of its runs, digests of all.
    #[command(after_help = "Example: train experiment seal examples/experiments/z_loss")]
    Seal(SealArgs),
    /// Read what the runs logged, apply the acceptance rule, write the result; once.
    #[command(after_help = "\
Example: train experiment close examples/experiments/z_loss --runs runs/z_loss --text-file said.md")]
    Close(CloseArgs),
    /// Show experiments, their verdicts, and whether each record still checks.
    #[command(after_help = "Example: train experiment list examples/experiments --json")]
    List(ListArgs),
}

/// Flags of `experiment new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The experiment's folder.
    pub folder: PathBuf,
    /// Its title.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub title: String,
    /// Of what others did and published, without runs of one's own.
    #[arg(long)]
    pub public_record: bool,
}

/// Flags of `experiment seal`.
#[derive(Debug, Args)]
pub struct SealArgs {
    /// The experiment's folder.
    pub folder: PathBuf,
}

/// Flags of `experiment close`.
#[derive(Debug, Args)]
pub struct CloseArgs {
    /// The experiment's folder.
    pub folder: PathBuf,
    /// Where the runs' folders lie, by their names.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub runs: PathBuf,
    /// accepted, rejected or inconclusive; that of the criteria when absent.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub verdict: Option<Verdict>,
    /// What was learnt.
    #[arg(long, value_name = "TEXT", required_unless_present = "text_file")]
    pub text: Option<String>,
    /// A file that says what was learnt, as Markdown.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub text_file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `experiment list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Folders of experiments, or folders in which they lie.
    #[arg(value_name = "FOLDER", default_value = "examples/experiments")]
    pub folders: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ExperimentArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        match self.command {
            ExperimentCommand::New(args) => args.execute(),
            ExperimentCommand::Seal(args) => args.execute(),
            ExperimentCommand::Close(args) => args.execute(),
            ExperimentCommand::List(args) => args.execute(),
        }
    }
}

impl NewArgs {
    fn execute(&self) -> Result<(), TrainError> {
        let source = if self.public_record { Source::PublicRecord } else { Source::Runs };
        let path = experiment::found(&self.folder, &self.title, source)?;
        println!(
            "fill in {}, then: train experiment seal {}",
            path.display(),
            self.folder.display()
        );
        Ok(())
    }
}

impl SealArgs {
    fn execute(&self) -> Result<(), TrainError> {
        let folder = self.folder.display();
        let seal = experiment::seal(&self.folder)?;
        println!("sealed {folder} as {}", seal.digest);
        let runs = seal.files.keys().filter(|file| *file != PROTOCOL_FILE).count();
        if runs > 0 {
            println!("its {runs} runs start with: train run {folder}/{RECIPES}/NAME.toml");
        }
        Ok(())
    }
}

impl CloseArgs {
    fn execute(self) -> Result<(), TrainError> {
        let text = match (self.text, &self.text_file) {
            (None, Some(path)) => {
                std::fs::read_to_string(path).map_err(TrainError::io("read", path))?
            }
            (text, _) => text.unwrap_or_default(),
        };
        let options = CloseOptions { runs: self.runs, verdict: self.verdict, text };
        let conclusion = experiment::close(&self.folder, &options)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&conclusion).expect("plain values"));
        } else {
            show(&conclusion, &self.folder);
        }
        Ok(())
    }
}

fn show(conclusion: &Conclusion, folder: &Path) {
    for criterion in &conclusion.criteria {
        let met = if criterion.met { "met    " } else { "not met" };
        let value = criterion.value.map_or("none".to_owned(), |value| format!("{value:.5}"));
        println!("{met}  {value:>12}  {}", criterion.text);
    }
    println!("{}: {}", folder.display(), conclusion.verdict);
}

impl ListArgs {
    fn execute(&self) -> Result<(), TrainError> {
        let mut found = Vec::new();
        for folder in &self.folders {
            found.extend(experiment::experiments_in(folder)?);
        }
        let standings: Vec<Standing> = found.iter().map(|folder| Standing::of(folder)).collect();
        if self.json {
            println!("{}", serde_json::to_string_pretty(&standings).expect("plain values"));
        } else {
            standings.iter().for_each(show_standing);
        }
        let bad = standings.iter().find_map(|standing| {
            standing.problem.as_ref().map(|problem| (&standing.folder, problem))
        });
        bad.map_or(Ok(()), |(folder, problem)| Err(TrainError::experiment(folder, problem.clone())))
    }
}

fn show_standing(standing: &Standing) {
    let (here, all) = standing.logs;
    let logs = match standing.source {
        Source::PublicRecord => "public record".to_owned(),
        Source::Runs if all == 0 => String::new(),
        Source::Runs => format!("logs of {here} of {all} runs are here"),
    };
    let checks = match (&standing.problem, standing.sealed_unix_secs) {
        (Some(problem), _) => format!("DOES NOT CHECK: {problem}"),
        (None, None) => String::new(),
        (None, Some(_)) => "checks".to_owned(),
    };
    let said: Vec<String> = [checks, logs].into_iter().filter(|text| !text.is_empty()).collect();
    println!("{:<12}  {}  {}", standing.state(), standing.folder.display(), said.join("; "));
    println!("{:<12}  {}", "", standing.title);
}
