//! Experiments from their form to their verdict, with runs of seconds.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use fulmar::model::Recompute;
use fulmar::train::cli::Cli;
use fulmar::train::experiment::{
    self, CloseOptions, Conclusion, Protocol, Seal, Source, Standing, Verdict, close, seal,
};
use fulmar::train::history::History;
use fulmar::train::memory_plan::MemoryPlan;
use fulmar::train::prove::{ProveOptions, prove};
use fulmar::train::{DeviceChoice, RunConfig, TrainError, recipe, run};

use crate::tiny::{Tiny, steps_from};

/// A tiny experiment: two seeds, a criterion that holds and one that is `limit` away from holding.
struct Trial {
    tiny: Tiny,
    folder: PathBuf,
}

const TEXTS: &str = "
title = \"Two seeds\"
hypothesis = \"Seeds | bars differ.\"
plan = \"Two runs.\"
acceptance = \"Both criteria.\"
[[measures]]
name = \"loss\"
metric = \"train/loss\"
take = \"mean\"
from = 0.5
[[criteria]]
text = \"a loss is a number\"
measure = \"loss\"
of = [\"one\", \"two\"]
at_least = 0.0
[[criteria]]
text = \"it does not fall by a hundred nats\"
measure = \"loss\"
of = [\"two\"]
against = [\"one\"]
";

impl Trial {
    fn new(limit: &str) -> Self {
        let tiny = Tiny::new();
        let base = tiny.config(&["schedule.steps=4", "checkpoint.every=2"]);
        fs::write(tiny.path("base.toml"), recipe::to_toml(&base)).expect("written");
        let folder = tiny.path("trial");
        fs::create_dir(&folder).expect("made");
        let runs = [("one", 1), ("two", 2)].map(|(name, seed)| {
            format!(
                "[[runs]]\nname = {name:?}\nrecipe = \"../base.toml\"\nset = [\"seed={seed}\"]\n"
            )
        });
        let text = format!("{TEXTS}{limit}\n{}", runs.concat());
        fs::write(folder.join("experiment.toml"), text).expect("written");
        Self { tiny, folder }
    }

    /// With a rule that any run meets, sealed.
    fn sealed() -> Self {
        let trial = Self::new("at_least = -100.0");
        seal(&trial.folder).expect("complete");
        trial
    }

    fn config(&self, name: &str, overrides: &[&str]) -> RunConfig {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        let file = self.folder.join(format!("recipes/{name}.toml"));
        recipe::load(&file, &overrides).unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    fn run(&self, name: &str, overrides: &[&str]) -> Result<(), TrainError> {
        run(&self.config(name, overrides), &self.tiny.options(name)).map(drop)
    }

    fn run_both(&self) {
        for name in ["one", "two"] {
            self.run(name, &[]).expect("four steps");
        }
    }

    fn close(&self, verdict: Option<Verdict>) -> Result<Conclusion, TrainError> {
        let text = "It is so | said.".to_owned();
        close(&self.folder, &CloseOptions { runs: self.tiny.path(""), verdict, text })
    }

    fn alter(&self, file: &str, from: &str, to: &str) {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replacen(from, to, 1)).expect("written");
    }

    fn problem(&self) -> String {
        Standing::of(&self.folder).problem.expect("it does not check")
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, TrainError>) -> String {
    result.expect_err("refused").chain()
}

#[test]
fn a_run_has_the_seal_in_its_history_before_its_first_step() {
    let trial = Trial::sealed();
    let digest = Seal::checked(&trial.folder).expect("sealed").digest;
    trial.run("one", &["checkpoint.every=1"]).expect("where it saves is free");
    let history = History::read(&trial.tiny.path("one")).expect("read");
    assert_eq!((history[0].what.as_str(), history[0].step), ("started", 0));
    assert_eq!(history[0].detail["experiment_seal"], digest);
    let folder = trial.folder.display().to_string();
    assert_eq!(history[0].detail["experiment"], folder);
    let plain = trial.tiny.run("plain", &["schedule.steps=1"]).map(drop);
    plain.expect("without an experiment");
    let history = History::read(&trial.tiny.path("plain")).expect("read");
    assert!(!history[0].detail.contains_key("experiment_seal"));
}

#[test]
fn nothing_is_trained_under_a_seal_that_is_missing_or_altered_or_not_as_planned() {
    let trial = Trial::new("at_least = -100.0");
    let mut config = trial.tiny.config(&["name=\"one\"", "schedule.steps=4"]);
    config.experiment = Some(trial.folder.clone());
    let unsealed = refusal(run(&config, &trial.tiny.options("one")));
    assert!(unsealed.contains("there is no seal"), "{unsealed}");
    seal(&trial.folder).expect("complete");

    let other = refusal(trial.run("one", &["seed=2"]));
    assert!(other.contains("field `seed` is 1 there and 2 in the run"), "{other}");
    let stranger = refusal(trial.run("one", &["name=\"three\""]));
    assert!(stranger.contains("no run `three` is planned, but one, two"), "{stranger}");
    trial.alter("experiment.toml", "Two runs.", "Three runs.");
    let altered = refusal(trial.run("one", &[]));
    assert!(altered.contains("experiment.toml: it was altered"), "{altered}");
    assert!(!trial.tiny.path("one").join("metrics.jsonl").exists(), "nothing is logged");
    trial.alter("experiment.toml", "Three runs.", "Two runs.");
    trial.run("one", &[]).expect("as it was sealed");
}

#[test]
fn a_run_goes_on_under_the_seal_that_it_began_with_alone() {
    let trial = Trial::sealed();
    let go_on = |config: &RunConfig, out: &str, resume, stop_after| {
        let mut options = trial.tiny.options(out);
        (options.resume, options.stop_after) = (resume, stop_after);
        run(config, &options).map(drop)
    };
    let tied = trial.config("one", &[]);
    let mut untied = tied.clone();
    untied.experiment = None;
    go_on(&untied, "one", false, Some(2)).expect("two steps");
    let late = refusal(go_on(&tied, "one", true, None));
    assert!(late.contains("attempt 1 of") && late.contains("of no experiment"), "{late}");
    go_on(&untied, "one", true, None).expect("the rest, as a plain run");
    trial.run("two", &[]).expect("four steps");
    let foreign = refusal(trial.close(None));
    assert!(foreign.contains("attempt 1 began under the seal of no experiment"), "{foreign}");
}

#[test]
fn the_rule_gives_the_verdict_and_the_record_checks() {
    for (limit, verdict) in
        [("at_least = -100.0", Verdict::Accepted), ("at_most = -100.0", Verdict::Rejected)]
    {
        let trial = Trial::new(limit);
        seal(&trial.folder).expect("complete");
        trial.run_both();
        let other = match verdict {
            Verdict::Accepted => Verdict::Rejected,
            _ => Verdict::Accepted,
        };
        let against = refusal(trial.close(Some(other)));
        assert!(against.contains(&format!("`{verdict}`, which is what the criteria")), "{against}");
        let conclusion = trial.close(None).expect("all runs are made");
        assert_eq!(conclusion.verdict, verdict);
        let steps: Vec<_> = conclusion.runs.iter().map(|run| (run.steps, run.attempts)).collect();
        assert_eq!(steps, [(4, 1); 2]);
        assert!(conclusion.criteria[0].met);
        let losses = |name: &str| {
            let lines = steps_from(&trial.tiny.path(name), 3);
            let loss = |i: usize| lines[i]["train/loss"].as_f64().expect("a number");
            assert_eq!(lines.len(), 2);
            (loss(0) + loss(1)) / 2.0
        };
        let found = conclusion.criteria[1].value.expect("a number");
        assert!((found - (losses("two") - losses("one"))).abs() < 1e-12, "{found}");

        let standing = Standing::of(&trial.folder);
        assert_eq!((standing.problem, standing.logs), (None, (2, 2)));
        assert_eq!(standing.verdict, Some(verdict));
        let page = fs::read_to_string(trial.folder.join("README.md")).expect("read");
        assert!(page.contains(&format!("## Result: {verdict}")), "{page}");
        assert!(page.contains("Seeds | bars differ."), "{page}");
        assert!(page.contains("[one](recipes/one.toml)"), "{page}");
        let twice = refusal(trial.close(None));
        assert!(twice.contains("closed already"), "{twice}");
        let late = refusal(trial.run("one", &[]));
        assert!(late.contains("closed") || late.contains("holds a run"), "{late}");
    }
}

#[test]
fn a_run_of_a_closed_experiment_can_be_proved_and_branched_off() {
    let trial = Trial::sealed();
    trial.run_both();
    trial.close(None).expect("all runs are made");
    let run = trial.tiny.path("one");
    let options =
        ProveOptions { run: run.clone(), steps: None, until: None, device: DeviceChoice::Cpu };
    prove(&options).and_then(|proof| proof.verdict()).expect("trained again");
    let (run, branch) = (run.display().to_string(), trial.tiny.path("end"));
    let place = branch.display().to_string();
    let rest = ["--from", "2", "--steps", "6", "--reason", "a look", "--branch", &place];
    train(&[&["replan", run.as_str()][..], &rest].concat()).expect("made");
    let recipe = recipe::load(&branch.join("recipe.toml"), &[]).expect("a recipe");
    assert_eq!(recipe.experiment, None);
    // The line about the branch is a later one of the run's history.
    assert_eq!(Standing::of(&trial.folder).problem, None);
}

#[test]
fn every_later_edit_is_named() {
    let trial = Trial::sealed();
    trial.run_both();
    trial.close(None).expect("all runs are made");
    for (file, from, to) in [
        ("experiment.toml", "at_least = 0.0", "at_least = 0.1"),
        ("recipes/two.toml", "seed = 2", "seed = 3"),
        ("seal.json", "sealed_unix_secs\": 1", "sealed_unix_secs\": 2"),
        ("result.json", "\"accepted\"", "\"rejected\""),
        ("result.json", "\"steps\": 4", "\"steps\": 5"),
        ("README.md", "accepted", "rejected"),
    ] {
        trial.alter(file, from, to);
        let problem = trial.problem();
        assert!(problem.contains(file) && problem.contains("altered"), "{file}: {problem}");
        trial.alter(file, to, from);
        assert_eq!(Standing::of(&trial.folder).problem, None, "{file}");
    }
    let log = trial.tiny.path("two/metrics.jsonl");
    let text = fs::read_to_string(&log).expect("read");
    fs::write(&log, text.replacen("\"step\":4", "\"step\":5", 1)).expect("written");
    assert!(trial.problem().contains("two/metrics.jsonl: it was altered"), "{}", trial.problem());
    fs::remove_file(&log).expect("removed");
    assert_eq!(Standing::of(&trial.folder).logs, (1, 2), "a log elsewhere is no fault");
    fs::remove_file(trial.folder.join("recipes/two.toml")).expect("removed");
    assert!(trial.problem().contains("recipes/two.toml"), "{}", trial.problem());
}

#[test]
fn a_run_that_was_not_made_or_not_finished_gives_no_accepted_verdict() {
    let trial = Trial::sealed();
    trial.run("one", &[]).expect("four steps");
    let missing = refusal(trial.close(None));
    assert!(missing.contains("the planned run two was not made"), "{missing}");
    let mut options = trial.tiny.options("two");
    options.stop_after = Some(3);
    run(&trial.config("two", &[]), &options).expect("three steps");
    let accepted = refusal(trial.close(Some(Verdict::Accepted)));
    assert!(accepted.contains("`rejected`"), "{accepted}");
    let conclusion = trial.close(Some(Verdict::Inconclusive)).expect("it can be left open");
    assert_eq!((conclusion.runs[1].steps, conclusion.criteria[0].met), (3, false));
    assert_eq!(Standing::of(&trial.folder).state(), "inconclusive");

    let none = Trial::sealed();
    let conclusion = none.close(Some(Verdict::Inconclusive)).expect("it can be left open");
    assert_eq!(conclusion.missing, ["one", "two"]);
    let page = fs::read_to_string(none.folder.join("README.md")).expect("read");
    assert_eq!(page.matches("not made").count(), 2, "{page}");
}

#[test]
fn a_protocol_that_is_not_complete_is_not_sealed() {
    for (from, to, said) in [
        ("\"Two runs.\"", "\" \"", "plan of the experiment"),
        ("name = \"two\"", "name = \"one\"", "\"one\" twice"),
        ("of = [\"two\"]", "of = [\"tow\"]", "\"tow\", needed names of runs"),
        ("measure = \"loss\"", "measure = \"los\"", "\"los\", needed the name of a measure"),
        ("at_least = 0.0\n", "", "one number or two"),
        ("from = 0.5", "from = 1.5", "0 or more and below 1"),
        ("seed=2", "sed=2", "did you mean `seed`"),
        ("acceptance", "aceptance", "unknown field `aceptance`"),
    ] {
        let trial = Trial::new("at_least = -100.0");
        trial.alter("experiment.toml", from, to);
        let refused = refusal(seal(&trial.folder));
        assert!(refused.contains(said), "{said}: {refused}");
        assert!(!trial.folder.join("seal.json").exists() && !trial.folder.join("recipes").exists());
    }
    let trial = Trial::sealed();
    assert!(refusal(seal(&trial.folder)).contains("sealed already"));
}

#[test]
fn a_public_record_is_checked_for_its_digests() {
    let tiny = Tiny::new();
    let folder = tiny.path("records/public");
    experiment::found(&folder, "Others \"did\" it", Source::PublicRecord).expect("written");
    assert!(refusal(seal(&folder)).contains("hypothesis of the experiment"));
    let again = experiment::found(&folder, "", Source::Runs);
    assert!(refusal(again).contains("an experiment already"));
    let file = folder.join("experiment.toml");
    let filled = fs::read_to_string(&file).expect("read").replace(" = \"\"\n", " = \"said\"\n");
    let fact = "[[facts]]\nwhat = \"bytes\"\npublic = \"5\"\nsource = \"there\"\nours = \"6\"\n";
    fs::write(&file, filled + fact).expect("written");
    train(&["experiment", "seal", folder.to_str().expect("a plain path")]).expect("complete");
    let options =
        CloseOptions { runs: tiny.path(""), verdict: None, text: "It did not fit.".to_owned() };
    assert!(refusal(close(&folder, &options)).contains("--verdict"));
    close(&folder, &CloseOptions { verdict: Some(Verdict::Rejected), ..options }).expect("closed");
    let page = fs::read_to_string(folder.join("README.md")).expect("read");
    assert!(page.contains("| bytes | 5 (there) | 6 |"), "{page}");
    let records = tiny.path("records");
    assert_eq!(
        experiment::experiments_in(&records).expect("listed"),
        std::slice::from_ref(&folder)
    );
    list(&records).expect("checks");
    fs::write(&file, fs::read_to_string(&file).expect("read") + "\n").expect("written");
    assert!(refusal(list(&records)).contains("altered"));
}

fn train(args: &[&str]) -> Result<(), TrainError> {
    let cli = Cli::try_parse_from([&["train"], args].concat()).unwrap_or_else(|e| panic!("{e}"));
    cli.command.execute()
}

fn list(folder: &Path) -> Result<(), TrainError> {
    train(&["experiment", "list", folder.to_str().expect("a plain path")])
}

/// A folder of the repository.
fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

#[test]
fn every_experiment_that_ships_is_complete_and_checks() {
    let folders = experiment::experiments_in(&shipped("examples/experiments")).expect("listed");
    assert!(folders.len() >= 6, "{folders:?}");
    for folder in folders {
        let place = folder.display();
        assert_eq!(Standing::of(&folder).problem, None, "{place}");
        let protocol = Protocol::read(&folder).unwrap_or_else(|e| panic!("{}", e.chain()));
        protocol.validate().unwrap_or_else(|e| panic!("{place}: {}", e.chain()));
        for run in &protocol.runs {
            run.config(&folder).unwrap_or_else(|e| panic!("{place}: {}", e.chain()));
        }
    }
}

/// The plan of the published run on one rack with another exchange.
fn hero_with(exchange: &str) -> MemoryPlan {
    let overrides = [
        "batch.rows=1024",
        "batch.micro_rows=16",
        "parallel.shards=64",
        &format!("parallel.dispatch={{ kind = {exchange} }}"),
    ];
    let overrides = overrides.map(str::to_owned);
    let file = shipped("examples/recipes/d6144.toml");
    MemoryPlan::new(&recipe::load(&file, &overrides).unwrap_or_else(|e| panic!("{}", e.chain())))
}

#[test]
fn the_worked_records_have_the_figures_of_our_planner() {
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
    let cells = hero_with("\"fixed_cells\", capacity_factor = 1.0");
    let [one, three] = [1, 3].map(|waves| {
        let exchange = format!("\"pooled_wave\", num_expert_waves = {waves}");
        hero_with(&exchange)
    });
    let mode = |plan: &MemoryPlan| *plan.mode(Recompute::Block);
    let of_record = |record: &str| -> Vec<String> {
        let folder = shipped("examples/experiments").join(record);
        let facts = Protocol::read(&folder).expect("a record").facts.into_iter();
        facts
            .filter(|fact| fact.how.contains("plan") || fact.how == "the same")
            .map(|f| f.ours)
            .collect()
    };
    assert_eq!(
        of_record("fixed_cells_at_64_shards"),
        [cells.exchange, three.exchange, mode(&cells).block, mode(&three).block, mode(&cells).peak]
            .map(gib)
    );
    let spared = mode(&one).peak - mode(&three).peak;
    assert_eq!(
        of_record("six_expert_receiver_bank"),
        [one.exchange, three.exchange, mode(&one).block, mode(&three).block, spared].map(gib)
    );
}
