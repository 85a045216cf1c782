//! Suites of a user's files: in a run, outside of it, over ranks, and document by document.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulmar::eval::suite::{DocumentLine, DocumentLines, Mode, Scores, read_lines};
use fulmar::eval::{EvalReport, SuiteConfig};
use fulmar::train::evaluate::{EvaluateOptions, Evaluation, Exchange, evaluate};
use fulmar::train::history::{History, STARTED};
use fulmar::train::telemetry::Metrics;
use fulmar::train::{DeviceChoice, RunConfig, RunSummary, TrainError, run};

use crate::tiny::{Tiny, chain, logged};

/// A folder with a tag in a file, one in a folder of two files, and what is no text among them.
fn write_suite(folder: &Path) {
    let line = |id: &str, text: &str| format!("{{\"id\":\"{id}\",\"text\":\"{text}\"}}\n");
    let letters: String = (0..5)
        .map(|n| line(&format!("l{n}"), &"dear gull, the sea is grey. ".repeat(n + 1)))
        .collect();
    let mut notes =
        [line("n0", "é"), line("n1", ""), line("n2", &"ab".repeat(400))].concat().into_bytes();
    notes.extend(b"{\"id\":\"n3\",\"text\":\"\xff\xfeA\"}\n");
    std::fs::create_dir_all(folder.join("notes")).expect("a folder");
    std::fs::write(folder.join("letters.jsonl"), letters).expect("written");
    std::fs::write(folder.join("notes/one.jsonl"), notes).expect("written");
    std::fs::write(folder.join("notes/two.jsonl"), line("n4", "rain on stone")).expect("written");
    std::fs::write(folder.join("README.md"), "no tag").expect("written");
}

/// A run of `overrides` on the tiny corpus that evaluates the suite `mine`, both ways.
fn config(tiny: &Tiny, overrides: &[&str]) -> RunConfig {
    let folder = tiny.path("texts/mine");
    write_suite(&folder);
    let mut config = tiny.config(overrides);
    config.evaluation.suites = vec![SuiteConfig::of_folder("mine", folder)];
    config.evaluation.as_trained = true;
    config
}

fn options() -> EvaluateOptions {
    EvaluateOptions { device: DeviceChoice::Cpu, as_trained: true, ..EvaluateOptions::default() }
}

fn evaluations(
    places: &[PathBuf],
    options: &EvaluateOptions,
) -> Result<Vec<Evaluation>, TrainError> {
    let mut all = Vec::new();
    evaluate(places, options, &mut |place, evaluation| {
        all.push((place.to_owned(), evaluation));
        Ok(())
    })?;
    Ok(all.into_iter().map(|(_, evaluation)| evaluation).collect())
}

fn only(place: &Path, options: &EvaluateOptions) -> Evaluation {
    let mut all = evaluations(&[place.to_owned()], options)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The last evaluation in the log of a run: names with their figures.
fn last_logged(run: &Path) -> Metrics {
    let log = logged(run);
    let last = log.into_iter().rev().find(|line| line.contains_key("eval/heldout/loss"));
    figures(&last.expect("an evaluation was logged"))
}

fn figures(metrics: &Metrics) -> Metrics {
    let of_suites = |name: &str| name.starts_with("eval/") || name.starts_with("eval_as_trained/");
    let about = ["eval_as_trained/exchange", "eval_as_trained/shards"];
    let all = metrics.clone().into_iter();
    all.filter(|(name, _)| of_suites(name) && !about.contains(&&name[..])).collect()
}

fn trained(config: &RunConfig, tiny: &Tiny, out: &str) -> RunSummary {
    run(config, &tiny.options(out)).unwrap_or_else(|error| panic!("{}", error.chain()))
}

#[test]
fn a_run_evaluates_its_suites_each_time_and_from_its_checkpoint_come_the_same_figures() {
    let tiny = Tiny::new();
    let config =
        config(&tiny, &["schedule.steps=4", "evaluation.every=2", "evaluation.max_rows=2"]);
    let summary = trained(&config, &tiny, "run");
    let last = last_logged(&tiny.path("run"));
    let counts = ["empty_documents", "rejected_documents", "partial_documents"];
    for under in ["eval/mine", "eval_as_trained/mine"] {
        for name in ["loss", "macro_loss", "bpb", "macro_bpb", "letters/loss", "notes/bpb"] {
            assert!(last[&format!("{under}/{name}")].as_f64() > Some(0.0), "{under}/{name}");
        }
        assert_eq!(counts.map(|name| &last[&format!("{under}/{name}")]), [1, 1, 0]);
    }
    // Before the end only two rows of the held-out text were taken, and all of the suite.
    let log = logged(&tiny.path("run"));
    let evaluated: Vec<_> = log.iter().filter(|line| line.contains_key("eval/mine/loss")).collect();
    assert_eq!(evaluated.iter().map(|line| &line["step"]).collect::<Vec<_>>(), [2, 4]);
    assert!(evaluated[0]["eval/heldout/partial_documents"].as_u64() > Some(0));
    assert_eq!(evaluated[0]["eval/mine/partial_documents"], 0);

    let evaluation = only(&tiny.path("run"), &options());
    assert_eq!(figures(&evaluation.metrics()), last);
    assert_eq!(evaluation.exchange, Some(Exchange { name: "local", shards: 1 }));
    let [(name, report)] = &summary.suites[..] else { panic!("one suite") };
    assert_eq!((&name[..], report), ("mine", &evaluation.suites[1].dropless.report));
    assert!(evaluation.table().contains("(besides 1 empty documents and 1 rejected ones)"));
    // Without the recipe's suites: another one by a flag, at any batch.
    let other = SuiteConfig::of_folder("other", tiny.path("texts/mine"));
    for batch_rows in [1, 7, 64] {
        let (suites, batch_rows) = (vec![other.clone()], Some(batch_rows));
        let found = only(&tiny.path("run"), &EvaluateOptions { suites, batch_rows, ..options() });
        let names: Vec<_> = found.suites.iter().map(|figures| &figures.suite.name[..]).collect();
        assert_eq!(names, ["heldout", "other"]);
        assert_eq!(found.suites[1].dropless, evaluation.suites[1].dropless, "{batch_rows:?} rows");
        assert_eq!(found.suites[1].suite.digest(), evaluation.suites[1].suite.digest());
    }
}

#[test]
fn what_was_evaluated_stands_in_the_history() {
    let tiny = Tiny::new();
    trained(&config(&tiny, &["schedule.steps=1"]), &tiny, "run");
    let evaluation = only(&tiny.path("run"), &options());
    let history = History::read(&tiny.path("run")).expect("a history");
    let started = history.iter().find(|event| event.what == STARTED).expect("a start");
    assert_eq!(started.detail["suites"]["mine"], evaluation.suites[1].suite.digest());
    assert_eq!(evaluation.metrics()["suites/mine"], evaluation.suites[1].suite.digest());
}

#[test]
fn figures_do_not_depend_on_the_ranks_that_share_the_rows() {
    let tiny = Tiny::new();
    let drops = "parallel.dispatch={kind=\"pooled_wave\",num_expert_waves=2,capacity_factor=0.25,\
                 transport_capacity_factor=2.0}";
    let layout = ["parallel.replicas=2", "parallel.shards=2", "schedule.steps=2", drops];
    trained(&config(&tiny, &layout), &tiny, "run");
    // Four ranks in the run; one without drops and two with them here.
    let evaluation = only(&tiny.path("run"), &options());
    assert_eq!(figures(&evaluation.metrics()), last_logged(&tiny.path("run")));
    let mine = &evaluation.suites[1];
    let lossy = &mine.as_trained.as_ref().expect("asked for").report;
    assert_eq!(lossy.total().tokens, mine.dropless.report.total().tokens);
    assert!((lossy.total().loss() - mine.dropless.report.total().loss()).abs() > 1e-4, "no drops");
}

#[test]
fn a_suite_takes_the_longer_rows_of_its_run() {
    let tiny = Tiny::new();
    let longer = ["schedule.steps=16", "context=[{from_step=5, seq_len=64}]"];
    let summary = trained(&config(&tiny, &longer), &tiny, "run");
    assert_eq!(summary.data.suites[0].rows.seq_len(), 64);
    let evaluation = only(&tiny.path("run"), &options());
    assert_eq!(evaluation.suites[1].suite.rows.seq_len(), 64);
    assert_eq!(figures(&evaluation.metrics()), last_logged(&tiny.path("run")));
}

#[test]
fn rows_are_planned_once_for_all_weights_of_a_call() {
    let tiny = Tiny::new();
    let config = config(&tiny, &["schedule.steps=2", "checkpoint.every=1"]);
    trained(&config, &tiny, "one");
    trained(&RunConfig { seed: 9, ..config }, &tiny, "two");
    let places = ["one", "two"].map(|name| tiny.path(name));
    let options = EvaluateOptions { steps: vec![1, 2], ..options() };
    let all = evaluations(&places, &options).expect("four checkpoints");
    assert_eq!(all.iter().map(|one| one.step).collect::<Vec<_>>(), [1, 2, 1, 2].map(Some));
    for evaluation in &all {
        for (figures, first) in evaluation.suites.iter().zip(&all[0].suites) {
            assert!(Arc::ptr_eq(&figures.suite, &first.suite), "{}", figures.suite.name);
        }
    }
    assert_ne!(all[0].suites[1].dropless, all[2].suites[1].dropless);
}

#[test]
fn sums_of_documents_read_back_give_every_figure_to_the_bit() {
    let tiny = Tiny::new();
    let drops = "parallel.dispatch={kind=\"pooled_wave\",num_expert_waves=2,capacity_factor=0.25,\
                 transport_capacity_factor=2.0}";
    let overrides = ["parallel.shards=2", "schedule.steps=2", "checkpoint.every=1", drops];
    trained(&config(&tiny, &overrides), &tiny, "run");
    let options = EvaluateOptions { steps: vec![1, 2], ..options() };
    let all = evaluations(&[tiny.path("run")], &options).expect("two checkpoints");
    let path = tiny.path("sums.jsonl");
    let mut lines = DocumentLines::create(&path).expect("a file");
    for evaluation in &all {
        evaluation.write_documents(&mut lines).expect("written");
    }
    let reports = read_lines(&path).expect("read back");
    assert_eq!(reports.len(), 2 * 2 * 2, "steps, suites and modes");
    for evaluation in &all {
        for figures in &evaluation.suites {
            let as_trained = figures.as_trained.as_ref().expect("asked for");
            for (mode, needed) in
                [(Mode::Dropless, &figures.dropless), (Mode::AsTrained, as_trained)]
            {
                let weights = evaluation.weights.display().to_string();
                let (step, suite) = (evaluation.step, figures.suite.name.clone());
                let found = &reports[&Scores { weights, step, mode, suite }];
                // What has no loss has no line.
                let needed = EvalReport {
                    empty_documents: 0,
                    rejected_documents: 0,
                    ..needed.report.clone()
                };
                assert_eq!(*found, needed, "{mode:?}");
            }
        }
    }
    // The lines themselves: tag, id and bytes of each document of the suite.
    let text = std::fs::read_to_string(&path).expect("the file");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("a sum"));
    let lines: Vec<DocumentLine> = lines.collect();
    let of_mine = |line: &&DocumentLine| {
        line.scores.suite == "mine"
            && line.scores.step == Some(2)
            && line.scores.mode == Mode::Dropless
    };
    let found: Vec<_> = lines
        .iter()
        .filter(of_mine)
        .map(|line| (&line.tag[..], &line.id[..], line.bytes, line.partial))
        .collect();
    let letters = ["l0", "l1", "l2", "l3", "l4"].into_iter().zip(1..);
    let mut needed: Vec<_> =
        letters.map(|(id, times)| ("letters", id, 28 * times, false)).collect();
    needed.extend([
        ("notes", "n0", 2, false),
        ("notes", "n2", 800, false),
        ("notes", "n4", 13, false),
    ]);
    assert_eq!(found, needed);
    std::fs::write(&path, text + "{\"suite\":\"mine\"}\n").expect("written");
    let error = read_lines(&path).expect_err("no sum").to_string();
    assert!(error.starts_with(&format!("line {} of ", lines.len() + 1)), "{error}");
}

#[test]
fn a_suite_that_cannot_be_is_refused_before_the_first_step_by_name() {
    let tiny = Tiny::new();
    let good = config(&tiny, &[]);
    let empty = tiny.path("texts/empty");
    std::fs::create_dir_all(&empty).expect("a folder");
    let hollow = tiny.path("texts/hollow");
    std::fs::create_dir_all(&hollow).expect("a folder");
    std::fs::write(hollow.join("void.jsonl"), "{\"text\":\"\"}\n").expect("written");
    std::fs::write(hollow.join("rain.jsonl"), "{\"text\":\"rain\"}\n").expect("written");
    let of = |name: &str, folder: &Path| SuiteConfig::of_folder(name, folder);
    let mine = tiny.path("texts/mine");
    let cases = [
        (vec![of("paloma", &mine)], "suite `paloma` lacks `4chan`, `c4_100_domains`"),
        (vec![of("paloma", &mine)], "and has besides `letters`, `notes`, needed the 16"),
        (vec![of("mine", &empty)], "needed one a tag"),
        (vec![of("mine", &tiny.path("nowhere"))], "nowhere"),
        (vec![of("mine", &hollow)], "suite `mine`: tag `void` has no document"),
        (vec![of("mine", &mine), of("mine", &hollow)], "`name` is that of another"),
        (vec![of("heldout", &mine)], "`data.heldout`"),
    ];
    for (suites, needed) in cases {
        let mut config = good.clone();
        config.evaluation.suites = suites;
        let error = run(&config, &tiny.options("run")).expect_err(needed);
        assert!(chain(&error).contains(needed), "{}", chain(&error));
        assert!(!tiny.path("run").join("recipe.toml").exists());
    }
}

#[test]
fn a_recipe_names_suites_by_folder_or_by_tag() {
    let tiny = Tiny::new();
    let overrides = [
        "evaluation.suites=[{name=\"mine\",folder=\"texts\"},{name=\"two\",tags={a=[\"a.jsonl\"]}}]",
        "evaluation.as_trained=true",
    ];
    let config = tiny.config(&overrides);
    let [mine, two] = &config.evaluation.suites[..] else { panic!("two suites") };
    assert_eq!(mine, &SuiteConfig::of_folder("mine", "texts"));
    assert_eq!((&two.folder, &two.tags["a"]), (&None, &vec!["a.jsonl".to_owned()]));
    // As a run writes it, and reads it again.
    let text = fulmar::train::recipe::to_toml(&config);
    let again = fulmar::train::recipe::parse(&text, "recipe.toml", &[]).expect("its own text");
    assert_eq!(again, config);
}
