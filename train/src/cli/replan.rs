//! `train replan`.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use fulmar_data::Stage;
use fulmar_ep::DispatchConfig;

use crate::config::RunConfig;
use crate::context::ContextStage;
use crate::error::TrainError;
use crate::history::{Event, History};
use crate::operations::{
    self, Comparison, Operation, Position, change_mixture, move_horizon, plan_context, set_decay,
    switch_exchange,
};
use crate::run_lock::RunLock;
use crate::{assemble, recipe};

/// Flags of `replan`.
#[derive(Debug, Args)]
#[command(override_usage = "train replan <RUN> --reason <TEXT> <CHANGE>... [OPTIONS]")]
#[command(group = ArgGroup::new("change")
    .args(["steps", "mixture", "exchange", "decay", "context"])
    .required(true)
    .multiple(true))]
pub struct ReplanArgs {
    /// Folder of the run; it must not be running.
    pub run: PathBuf,
    /// Why; kept in the run's history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Another horizon, in updates of the whole run.
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Stages (TOML) in the place of those that have not begun.
    #[arg(long, value_name = "FILE")]
    pub mixture: Option<PathBuf>,
    /// Another exchange, as in a recipe: '{ kind = "ragged" }'.
    #[arg(long, value_name = "TOML")]
    pub exchange: Option<String>,
    /// Decay on gates and router as of step 0; it falls to 0 at the horizon.
    #[arg(long, value_name = "X")]
    pub decay: Option<f64>,
    /// A stage of longer rows, and the step from which it may open.
    #[arg(long, value_name = "TOKENS@STEP", value_parser = parse_context)]
    pub context: Option<ContextStage>,
    /// The checkpoint that the change starts from; the newest when absent.
    #[arg(long, value_name = "STEP")]
    pub from: Option<u64>,
    /// Leave the run as it is; make a branch with its own horizon here.
    #[arg(long, value_name = "DIR", requires = "steps")]
    pub branch: Option<PathBuf>,
    /// Show the plan before and after, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn parse_context(text: &str) -> Result<ContextStage, String> {
    let parts =
        text.split_once('@').and_then(|(len, step)| Some((len.parse(), step.parse().ok()?)));
    match parts {
        Some((Ok(len), step)) => Ok(ContextStage::new(step, len)),
        _ => Err("needs the form TOKENS@STEP, such as 8192@195000".to_owned()),
    }
}

impl ReplanArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let first = recipe::load(&self.run.join("recipe.toml"), &[])?;
        // What a run that is under way does meanwhile would not be of the plan that is recorded.
        let changes = self.branch.is_none() && !self.dry_run;
        let _lock = changes.then(|| RunLock::take(&self.run)).transpose()?;
        let at = operations::position(&first, &self.run, self.from)?;
        if self.branch.is_none() {
            self.nothing_is_past(&first, at)?;
        }
        let before = operations::plan_in_force(&first, &self.run, at)?;
        match &self.branch {
            Some(folder) => self.make_branch(&before, at, folder),
            None => self.change(&before, at),
        }
    }

    /// A run goes on from its newest checkpoint, of which nothing can be changed any more.
    fn nothing_is_past(&self, first: &RunConfig, at: Position) -> Result<(), TrainError> {
        let newest = operations::position(first, &self.run, None)?;
        if at.step < newest.step {
            let rule = format!(
                "at least {}, where the run stands; an earlier state can be branched off (`--branch`)",
                newest.step
            );
            return Err(TrainError::config("--from", at.step, rule));
        }
        Ok(())
    }

    /// Records every change that was asked for, in the order of the flags.
    fn change(&self, before: &RunConfig, at: Position) -> Result<(), TrainError> {
        let mut after = before.clone();
        let mut operations = Vec::new();
        for operation in self.wanted() {
            let operation = operation(self, &after, at)?;
            let next = operation.apply(&after)?;
            operations.push((operation, Comparison::new(&after, &next, at)));
            after = next;
        }
        self.show(&Comparison::new(before, &after, at));
        if self.dry_run {
            return Ok(());
        }
        let mut history = History::open(&self.run)?;
        for (operation, change) in &operations {
            history.append(&operation.event(at, 0, &self.reason, change))?;
        }
        if !self.json {
            println!("recorded; the run takes it up with: train run {0} --resume", self.place());
        }
        Ok(())
    }

    fn wanted(&self) -> Vec<Rule> {
        let all: [(bool, Rule); 5] = [
            (self.steps.is_some(), Self::horizon),
            (self.mixture.is_some(), Self::stages),
            (self.exchange.is_some(), Self::dispatch),
            (self.decay.is_some(), Self::gate_router_decay),
            (self.context.is_some(), Self::longer_rows),
        ];
        all.into_iter().filter(|(given, _)| *given).map(|(_, rule)| rule).collect()
    }

    fn horizon(&self, plan: &RunConfig, at: Position) -> Result<Operation, TrainError> {
        move_horizon(plan, at, self.steps.expect("given"))
    }

    fn stages(&self, plan: &RunConfig, at: Position) -> Result<Operation, TrainError> {
        let new = operations::read_stages(self.mixture.as_ref().expect("given"))?;
        change_mixture(plan, &current_stages(plan)?, at, new)
    }

    fn dispatch(&self, plan: &RunConfig, at: Position) -> Result<Operation, TrainError> {
        #[derive(serde::Deserialize)]
        struct Given {
            exchange: DispatchConfig,
        }
        let text = format!("exchange = {}", self.exchange.as_ref().expect("given"));
        let given: Given = recipe::from_toml(&text, "--exchange")?;
        switch_exchange(plan, at, given.exchange)
    }

    fn gate_router_decay(&self, plan: &RunConfig, at: Position) -> Result<Operation, TrainError> {
        set_decay(plan, at, self.decay.expect("given"))
    }

    fn longer_rows(&self, plan: &RunConfig, at: Position) -> Result<Operation, TrainError> {
        plan_context(plan, at, self.context.clone().expect("given"))
    }

    /// A folder with a recipe of its own; the run keeps a pin on the state and a line in its history.
    fn make_branch(
        &self,
        before: &RunConfig,
        at: Position,
        folder: &Path,
    ) -> Result<(), TrainError> {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let run = std::path::absolute(&self.run).map_err(TrainError::io("find", &self.run))?;
        let name = name.unwrap_or_default();
        let steps = self.steps.expect("clap requires it");
        let mut after = operations::branch(before, &run, at, &name, steps)?;
        for operation in self.wanted().into_iter().skip(1) {
            after = operation(self, &after, at)?.apply(&after)?;
        }
        let change = Comparison::new(before, &after, at);
        self.show(&change);
        if self.dry_run {
            return Ok(());
        }
        operations::found_branch(&after, folder, &self.reason)?;
        let event = |what: &str, of: &str| {
            let text = format!("{}: {}", of, self.reason);
            let change = serde_json::to_value(&change).expect("plain values");
            Event::now(at.step, 0, what, text).with("change", change)
        };
        let (from, to) = (self.run.display(), folder.display());
        History::open(folder)?.append(&event("branched_from", &from.to_string()))?;
        History::open(&self.run)?.append(&event("branch", &to.to_string()))?;
        if !self.json {
            println!("made; it starts with: train run {0} --resume", folder.display());
        }
        Ok(())
    }

    fn place(&self) -> std::path::Display<'_> {
        self.run.display()
    }

    fn show(&self, change: &Comparison) {
        if self.json {
            println!("{}", serde_json::to_string_pretty(change).expect("plain values"));
        } else {
            print!("{change}");
        }
    }
}

/// What makes an operation of a flag.
type Rule = fn(&ReplanArgs, &RunConfig, Position) -> Result<Operation, TrainError>;

/// The stages of a plan; those that follow from the store are found there.
fn current_stages(plan: &RunConfig) -> Result<Vec<Stage>, TrainError> {
    match &plan.data.stages {
        Some(stages) => Ok(stages.clone()),
        None => assemble::proportional_stages(plan),
    }
}
