//! Forecasts from the runs of a ladder, the file that fixes one, and a run beside it.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use fulmar::eval::forecast::PowerLaw;
use fulmar::train::cli::Cli;
use fulmar::train::exit::{DATA, USAGE, status_of};
use fulmar::train::forecast::{
    DEFAULT_METRIC, FORECAST_DIGEST, Preregistration, RungRun, Watched, ladder_of, point_step,
    read_rung,
};
use fulmar::train::history::History;
use fulmar::train::telemetry::Metrics;
use fulmar::train::{RunConfig, TrainError, recipe, run};
use serde_json::{Value, json};

use crate::tiny::{Tiny, chain, logged};

const ASYMPTOTE: f64 = 2.0;
const LAW: PowerLaw = PowerLaw { asymptote: ASYMPTOTE, amplitude: 40.0, exponent: 0.1 };

/// The recipe of a rung of so many layers and steps.
fn config(tiny: &Tiny, layers: u64, steps: u64, more: &[&str]) -> RunConfig {
    let own = [
        format!("name=\"l{layers}\""),
        format!("model.num_layers={layers}"),
        format!("schedule.steps={steps}"),
        "evaluation.points=20".to_owned(),
    ];
    let all: Vec<&str> = own.iter().map(String::as_str).chain(more.iter().copied()).collect();
    tiny.config(&all)
}

fn flops(config: &RunConfig, steps: u64) -> f64 {
    config.model.step_flops_without_head(config.tokens_per_step()) * steps as f64
}

/// The log of a run that follows the law, until step `until`.
fn lines(config: &RunConfig, until: u64) -> Vec<Metrics> {
    let horizon = config.schedule.horizon();
    let mut lines = Vec::new();
    let mut put = |line: Value| lines.push(line.as_object().expect("an object").clone());
    for step in 1..=until {
        put(json!({
            "step": step, "attempt": 1, "train/loss": 5.0 - 0.01 * step as f64,
            "grad/norm/total": if step == 5 { 1.0 } else { 0.3 }, "moe/drop_fraction": 0.0,
            "optim/skipped_step": 0, "throughput/flops_rule": "with_head",
        }));
        if (0..20).any(|point| point_step(point, horizon) == step) {
            let loss = LAW.loss(flops(config, step));
            put(json!({ "step": step, "attempt": 1, DEFAULT_METRIC: loss }));
        }
    }
    lines
}

/// A folder with that log and the recipe.
fn write_run(tiny: &Tiny, name: &str, config: &RunConfig, lines: &[Metrics]) -> PathBuf {
    let folder = tiny.path(name);
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("recipe.toml"), recipe::to_toml(config)).expect("written");
    let text: String =
        lines.iter().map(|line| Value::Object(line.clone()).to_string() + "\n").collect();
    std::fs::write(folder.join("metrics.jsonl"), text).expect("written");
    folder
}

/// Three rungs that follow the law.
fn ladder(tiny: &Tiny) -> Vec<RungRun> {
    let rung = |(layers, steps): (u64, u64)| {
        let config = config(tiny, layers, steps, &[]);
        let folder = write_run(tiny, &config.name, &config, &lines(&config, steps));
        read_rung(&folder, DEFAULT_METRIC).expect("a whole rung")
    };
    [(1, 40), (2, 60), (3, 80)].map(rung).to_vec()
}

fn message(result: Result<impl std::fmt::Debug, TrainError>) -> String {
    chain(&result.expect_err("a bad ladder"))
}

#[test]
fn runs_on_a_law_forecast_the_law() {
    let tiny = Tiny::new();
    let (rungs, target) = (ladder(&tiny), config(&tiny, 4, 120, &[]));
    assert!(rungs.iter().all(|rung| rung.losses.len() == 20 && rung.notes.is_empty()));
    let made =
        Preregistration::new(&rungs, &target, DEFAULT_METRIC, ASYMPTOTE).expect("a forecast");
    // Horizons are multiples of 20, so that every point lies at a whole step.
    for (point, at) in made.forecast.points.iter().enumerate() {
        let expected = LAW.loss(flops(&target, point_step(point, 120)));
        assert!((at.predicted - expected).abs() < 1e-9, "{at:?}, needed {expected}");
    }
    assert_eq!(made.trajectories.grad_norm.len(), 20);
    assert_eq!(made.trajectories.drop_fraction[19].high, 0.0);
    let [low, high] = made.grad_peak.expect("whole rungs");
    assert!(low > 0.0 && low <= high && high < 20.0, "{low} {high}");

    // The file is read as it was written, never overwritten, and refused when a digit is another.
    let file = tiny.path("forecast.json");
    let digest = made.write(&file).expect("written");
    let read = Preregistration::read(&file).expect("sealed");
    assert_eq!((&read.digest, &read.rungs[0].name), (&digest, &made.rungs[0].name));
    assert_eq!(read.rungs[2].log_digest, rungs[2].log_digest);
    assert!(message(made.write(&file)).contains("could not make the new file"));
    let text = std::fs::read_to_string(&file).expect("read");
    let altered = text.replacen("\"asymptote\": 2.0", "\"asymptote\": 2.1", 1);
    assert_ne!(text, altered);
    std::fs::write(&file, altered).expect("written");
    let said = message(Preregistration::read(&file));
    assert!(said.contains("altered: its digest is") && said.contains(&digest), "{said}");
}

#[test]
fn a_log_that_is_not_whole_is_no_rung() {
    type Spoil = fn(&mut Vec<Metrics>);
    fn at(lines: &[Metrics], step: u64, field: &str) -> usize {
        let found = lines.iter().position(|line| line["step"] == step && line.contains_key(field));
        found.expect("there")
    }
    fn remove(lines: &mut Vec<Metrics>, step: u64, field: &str) {
        let index = at(lines, step, field);
        lines.remove(index);
    }
    let cases: [(&str, Spoil, &[&str]); 9] = [
        (
            "gap",
            |lines| remove(lines, 7, "train/loss"),
            &[
                "rung `l1`: its log has no `train/loss` of 1 step(s) before step 40, the first of them 7",
            ],
        ),
        (
            "no beginning",
            |lines| lines.retain(|line| line["step"].as_u64() > Some(3)),
            &["of 3 step(s)", "first of them 1"],
        ),
        (
            "training loss not a number",
            |lines| {
                let index = at(lines, 9, "train/loss");
                lines[index]["train/loss"] = json!("NaN");
            },
            &["rung `l1`: `train/loss` at step 9 is NaN, needed a finite number"],
        ),
        (
            "evaluation not a number",
            |lines| {
                let index = at(lines, 10, DEFAULT_METRIC);
                lines[index][DEFAULT_METRIC] = json!("inf");
            },
            &["`eval/heldout/macro_loss` at step 10 is inf"],
        ),
        (
            "an evaluation missing",
            |lines| remove(lines, 10, DEFAULT_METRIC),
            &["the run is at step 40, and was at 25% (step 10) without `eval/heldout/macro_loss`"],
        ),
        (
            "no evaluation",
            |lines| lines.retain(|line| line.contains_key("train/loss")),
            &["no evaluation in its log has `eval/heldout/macro_loss`", "evaluation.points = 20"],
        ),
        (
            "written by two at once",
            |lines| {
                let twin = lines[at(lines, 9, "train/loss")].clone();
                lines.push(twin);
            },
            &["one attempt has logged `train/loss` 1 time(s) more than once"],
        ),
        ("nothing", Vec::clear, &["has no steps in its log"]),
        (
            "only evaluations",
            |lines| lines.retain(|line| line.contains_key(DEFAULT_METRIC)),
            &["has no steps in its log"],
        ),
    ];
    let tiny = Tiny::new();
    let config = config(&tiny, 1, 40, &[]);
    for (name, spoil, needed) in cases {
        let mut lines = lines(&config, 40);
        spoil(&mut lines);
        let error = read_rung(&write_run(&tiny, "spoilt", &config, &lines), DEFAULT_METRIC);
        let error = error.err().unwrap_or_else(|| panic!("{name}: read"));
        assert_eq!(status_of(&error), DATA, "{name}");
        let said = chain(&error);
        assert!(needed.iter().all(|part| said.contains(part)), "{name}: {said}");
    }
    let growing = ["context=[{ from_step = 20, seq_len = 64 }]"];
    let config = self::config(&tiny, 1, 40, &growing);
    let folder = write_run(&tiny, "growing", &config, &lines(&config, 40));
    let said = message(read_rung(&folder, DEFAULT_METRIC));
    assert!(said.contains("rows grow to 64 tokens"), "{said}");
    assert!(read_rung(&tiny.path("nowhere"), DEFAULT_METRIC).is_err());
}

#[test]
fn of_two_attempts_the_newest_counts_and_a_run_that_stopped_early_is_a_rung() {
    let tiny = Tiny::new();
    let config = config(&tiny, 1, 40, &[]);
    let mut log = lines(&config, 12);
    // Killed after step 12, resumed from step 7.
    let again = lines(&config, 30).into_iter().filter(|line| line["step"].as_u64() > Some(7));
    log.extend(again.map(|mut line| {
        line.insert("attempt".to_owned(), json!(2));
        if let Some(loss) = line.get(DEFAULT_METRIC).and_then(Value::as_f64) {
            line.insert(DEFAULT_METRIC.to_owned(), json!(loss + 1.0));
        }
        line
    }));
    let folder = write_run(&tiny, "twice", &config, &log);
    let rung = read_rung(&folder, DEFAULT_METRIC).expect("merged");
    assert_eq!((rung.completed, rung.losses.len()), (30, 15));
    for (point, loss) in rung.losses.iter().enumerate() {
        let step = point_step(point, 40);
        let expected = LAW.loss(flops(&config, step)) + f64::from(u8::from(step > 7));
        assert!((loss - expected).abs() < 1e-9, "step {step}: {loss}, needed {expected}");
    }
    let notes = rung.notes.join("\n");
    assert!(notes.contains("5 steps made again") && notes.contains("at step 30 of 40"), "{notes}");

    // Its last points go on along a line, and are marked.
    let mut rungs = ladder(&tiny);
    rungs[0] = rung;
    let target = self::config(&tiny, 4, 130, &[]);
    let made = Preregistration::new(&rungs, &target, DEFAULT_METRIC, ASYMPTOTE).expect("made");
    assert_eq!(made.forecast.end().extrapolated, ["l1"]);
    assert_eq!(made.forecast.points[14].extrapolated, Vec::<String>::new());
}

#[test]
fn what_is_no_ladder_is_refused_by_name() {
    let tiny = Tiny::new();
    let target = config(&tiny, 4, 130, &[]);
    let forecast = |rungs: &[RungRun], target: &RunConfig| {
        Preregistration::new(rungs, target, DEFAULT_METRIC, ASYMPTOTE)
    };
    let said = message(forecast(&ladder(&tiny)[..2], &target));
    assert!(said.contains("found 2 rung(s)") && said.contains("needed 3"), "{said}");

    // As much compute as a rung has: as many layers and steps under another name.
    let equal = config(&tiny, 3, 80, &["name=\"twin\"", "seed=9"]);
    let folder = write_run(&tiny, "twin", &equal, &lines(&equal, 80));
    let mut rungs = ladder(&tiny);
    rungs.push(read_rung(&folder, DEFAULT_METRIC).expect("a rung"));
    let said = message(forecast(&rungs, &target));
    assert!(said.contains("both spend") && said.contains("`twin`"), "{said}");

    // The same run twice.
    rungs[3] = rungs[2].clone();
    assert!(message(forecast(&rungs, &target)).contains("are both named `l3`"));
    assert!(
        message(forecast(&ladder(&tiny), &config(&tiny, 3, 99, &[]))).contains("`l3`, the run in")
    );

    // Everything that may not differ is named at once; what a ladder varies is not.
    let other = config(
        &tiny,
        2,
        60,
        &[
            "model.z_loss=0.5",
            "optimizer.rate_fit=\"may\"",
            "model.num_experts_per_token=3",
            "model.max_seq_len=64",
            "evaluation.max_rows=7",
            "schedule.final_ratio=0.5",
            "data.tokenizer=\"other.json\"",
            "parallel.shards=2",
            "parallel.dispatch={kind=\"pooled_wave\",num_expert_waves=2}",
        ],
    );
    let folder = write_run(&tiny, "other", &other, &lines(&other, 60));
    let mut rungs = ladder(&tiny);
    rungs[1] = read_rung(&folder, DEFAULT_METRIC).expect("a rung by itself");
    let said = message(forecast(&rungs, &target));
    for field in [
        "`l1` and `l2`",
        "`model.z_loss` (0.0001 and 0.5)",
        "`optimizer.rate_fit` (\"hero\" and \"may\")",
        "`model.num_experts_per_token` (2 and 3)",
        "`model.max_seq_len` (32 and 64)",
        "`evaluation.max_rows` (0 and 7)",
        "`schedule.final_ratio`",
        "`data` (",
        "`data.heldout` (",
        "`drops in training` (none and pooled_wave, 2 waves, factors 1.15 and 1.15)",
    ] {
        assert!(said.contains(field), "{field} is not in: {said}");
    }
    for free in ["num_layers", "schedule.steps", "batch", "name", "parallel"] {
        assert!(!said.contains(free), "{free} is in: {said}");
    }
    // Other FLOPs in the log, and another target.
    let mut log = lines(&config(&tiny, 2, 60, &[]), 60);
    log.iter_mut().for_each(|line| {
        line.insert("throughput/flops_rule".to_owned(), json!("six_n"));
    });
    let folder = write_run(&tiny, "l2", &config(&tiny, 2, 60, &[]), &log);
    let mut rungs = ladder(&tiny);
    rungs[1] = read_rung(&folder, DEFAULT_METRIC).expect("a rung by itself");
    let folder = write_run(&tiny, "l2", &config(&tiny, 2, 60, &[]), &log);
    rungs[1] = read_rung(&folder, DEFAULT_METRIC).expect("a rung by itself");
    let said = message(ladder_of(&rungs, &target, DEFAULT_METRIC));
    assert!(said.contains("`throughput/flops_rule` (with_head and six_n)"), "{said}");
    let said = message(forecast(&ladder(&tiny), &config(&tiny, 4, 130, &["model.z_loss=0.0"])));
    assert!(said.contains("`l1` and `l4`") && said.contains("`model.z_loss`"), "{said}");
}

/// What `train` with these words ends with.
fn train(words: &[&str]) -> Result<(), TrainError> {
    let words = std::iter::once("train").chain(words.iter().copied());
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).command.execute()
}

/// Fails unless every point of a forecast is in the log and the history of the run in `folder`, which was
/// started twice, with what was measured beside it.
fn is_logged_beside(made: &Preregistration, folder: &Path) {
    let log = logged(folder);
    let beside: Vec<&Metrics> =
        log.iter().filter(|line| line.contains_key("forecast/progress")).collect();
    let progress: Vec<u64> = beside
        .iter()
        .map(|line| line["forecast/progress"].as_f64().expect("percent") as u64)
        .collect();
    assert_eq!(progress, (1..=20).map(|point| 5 * point).collect::<Vec<u64>>());
    for (line, band) in beside.iter().zip(&made.loss_band) {
        let value = |name: &str| line[name].as_f64().expect("a number");
        let measured = value(DEFAULT_METRIC);
        assert!((value("forecast/predicted") - band.mid).abs() < 1e-12);
        assert!((value("forecast/deviation") - (measured - band.mid)).abs() < 1e-12);
        let inside = line["forecast/inside_band"].as_u64().expect("0 or 1");
        assert_eq!(inside == 1, band.holds(measured), "{line:?}");
        assert!(value("forecast/grad_peak_progress") <= value("forecast/progress"));
    }
    let history = History::read(folder).expect("a history");
    let digests: Vec<&Value> =
        history.iter().filter_map(|event| event.detail.get(FORECAST_DIGEST)).collect();
    assert_eq!(digests, [&json!(made.digest); 2], "one for each start");
    let raised = beside.iter().filter(|line| {
        let value = |name: &str| line[name].as_f64().expect("a number");
        value(DEFAULT_METRIC) > value("forecast/high")
    });
    let alarms = history
        .iter()
        .filter(|event| event.what == "alarm_raised" && event.detail["alarm"] == "forecast");
    assert_eq!(raised.count() > 0, alarms.count() > 0);
}

#[test]
fn a_run_is_watched_against_the_forecast_that_was_fixed_before_it() {
    let tiny = Tiny::new();
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    for (layers, steps) in [(1, 20), (2, 30), (3, 40)] {
        let config = config(&tiny, layers, steps, &["evaluation.bigram=false"]);
        run(&config, &tiny.options(&config.name)).expect("a rung");
    }
    let file = tiny.path("forecast.json");
    let target = config(&tiny, 4, 50, &["evaluation.bigram=false", "checkpoint.every=10"]);
    let recipe_file = tiny.path("l4.toml");
    std::fs::write(&recipe_file, recipe::to_toml(&target)).expect("written");
    let recipe_file = text(&recipe_file);
    let runs = ["l1", "l2", "l3"].map(|rung| text(&tiny.path(rung)));
    let words = ["forecast", "--runs", &runs[0], &runs[1], &runs[2], "--target"];
    let words = [&words[..], &[&recipe_file, "--asymptote", "2", "--preregister"]].concat();
    train(&[&words[..], &[&text(&file)]].concat()).expect("a forecast");
    let made = Preregistration::read(&file).expect("sealed");
    assert!(made.data.is_some() && made.heldout.is_some(), "digests of what the rungs read");

    // Not of another recipe, not without evaluations, not once the file was touched.
    let watched = |more: &[&str]| {
        let forecast = format!("forecast={:?}", text(&file));
        let own = ["evaluation.bigram=false", "checkpoint.every=10", &forecast];
        config(&tiny, 4, 50, &[&own, more].concat())
    };
    let error = run(&watched(&["optimizer.momentum=0.9"]), &tiny.options("other"));
    let error = error.expect_err("another recipe");
    let said = chain(&error);
    assert!(said.contains("is of another run: `optimizer.momentum` is 0.95"), "{said}");
    assert!(!tiny.path("other/metrics.jsonl").exists());
    let mut blind = watched(&[]);
    blind.evaluation.points = 10;
    let error = run(&blind, &tiny.options("blind")).expect_err("too few evaluations");
    assert_eq!(status_of(&error), USAGE);
    assert!(chain(&error).contains("without an evaluation at step 3"), "{}", chain(&error));

    let mut options = tiny.options("l4");
    options.stop_after = Some(30);
    run(&watched(&[]), &options).expect("the first part");
    options.resume = true;
    options.stop_after = None;
    let whole = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, whole.replacen("eval/heldout", "eval/h3ldout", 1)).expect("written");
    assert!(message(run(&watched(&[]), &options)).contains("altered"));
    // Another forecast, sound in itself.
    std::fs::remove_file(&file).expect("removed");
    let other = [&words[..6], &[&recipe_file, "--asymptote", "1.9", "--preregister"]].concat();
    train(&[&other[..], &[&text(&file)]].concat()).expect("a forecast");
    let said = message(run(&watched(&[]), &options));
    assert!(said.contains("another one than this run began with"), "{said}");
    std::fs::write(&file, whole).expect("written");
    run(&watched(&[]), &options).expect("the rest");

    is_logged_beside(&made, &tiny.path("l4"));
    let table = Watched::read(&tiny.path("l4"), None).expect("a status");
    assert!(table.before_the_first_step && table.points.len() == 20);
    assert!(table.to_string().contains("which the run's first start has recorded"), "{table}");
    train(&["forecast", "--status", &text(&tiny.path("l4"))]).expect("a table");
    // A rung that was not watched, beside a forecast that is younger.
    let error = train(&["forecast", "--status", &runs[0]]).expect_err("no forecast");
    assert!(chain(&error).contains("name the file with `--against`"), "{}", chain(&error));
    let table = Watched::read(&tiny.path("l1"), Some(&file)).expect("a status");
    assert!(table.to_string().contains("NOT recorded"), "{table}");
    assert!(table.to_string().contains("the forecast is of 50 steps"), "{table}");
    train(&["forecast"]).expect("the published ladder");
}
