//! Held-out text outside of a run: the figures of the run, from any layout and any batch.

use std::path::Path;

use fulmar::eval::EvalReport;
use fulmar::train::evaluate::{
    self, AS_TRAINED, DROPLESS, EVALUATIONS_FILE, EvaluateOptions, Evaluation, Exchange, evaluate,
};
use fulmar::train::interchange::{ExportDtype, ExportOptions, Saved, export};
use fulmar::train::telemetry::Metrics;
use fulmar::train::{DeviceChoice, TrainError};

use crate::tiny::{Tiny, logged};

fn options(batch_rows: Option<usize>) -> EvaluateOptions {
    EvaluateOptions { device: DeviceChoice::Cpu, batch_rows, ..EvaluateOptions::default() }
}

fn evaluations(place: &Path, options: &EvaluateOptions) -> Result<Vec<Evaluation>, TrainError> {
    let mut all = Vec::new();
    evaluate(&[place.to_owned()], options, &mut |_, evaluation| {
        all.push(evaluation);
        Ok(())
    })?;
    Ok(all)
}

fn only(place: &Path, options: &EvaluateOptions) -> Evaluation {
    let mut all = evaluations(place, options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The held-out figures without drops.
fn dropless(evaluation: &Evaluation) -> EvalReport {
    evaluation.heldout().dropless.report.clone()
}

/// The held-out figures with the exchange of training.
fn lossy(evaluation: &Evaluation) -> EvalReport {
    evaluation.heldout().as_trained.as_ref().expect("asked for").report.clone()
}

/// The losses of two reports, domain by domain, as one pair of lists.
fn losses(report: &EvalReport) -> Vec<f64> {
    report.domains.values().map(|tally| tally.loss()).collect()
}

#[test]
fn a_checkpoint_has_the_last_figures_of_its_run_to_the_bit() {
    let tiny = Tiny::new();
    let summary = tiny.run("run", &["schedule.steps=4", "checkpoint.every=2"]).expect("four steps");
    for batch_rows in [None, Some(1), Some(3)] {
        let evaluation = only(&tiny.path("run"), &options(batch_rows));
        assert_eq!(Some(dropless(&evaluation)), summary.heldout, "{batch_rows:?} rows");
        assert_eq!(evaluation.step, Some(4));
    }
    // By the names and in the digits of the run's own log.
    let evaluation = only(&tiny.checkpoint("run", 4), &options(None));
    let log = logged(&tiny.path("run"));
    let last = log.iter().rev().find(|line| line.contains_key("eval/heldout/loss"));
    let last = last.expect("an evaluation was logged");
    let metrics = evaluation.metrics();
    let of_eval = |line: &Metrics| -> Metrics {
        line.clone().into_iter().filter(|(name, _)| name.starts_with("eval/")).collect()
    };
    assert!(of_eval(last).len() >= 9, "{last:?}");
    assert_eq!(of_eval(&metrics), of_eval(last));

    let steps = EvaluateOptions { steps: vec![2, 4], ..options(None) };
    let both = evaluations(&tiny.path("run"), &steps).expect("both are there");
    assert_eq!(both.iter().map(|one| one.step).collect::<Vec<_>>(), [Some(2), Some(4)]);
    assert_ne!(dropless(&both[0]), dropless(&both[1]));
    let steps = EvaluateOptions { steps: vec![3], ..options(None) };
    let error = evaluations(&tiny.path("run"), &steps).expect_err("no step 3").to_string();
    assert!(error.contains("step-00000003"), "{error}");
}

#[test]
fn an_export_has_the_figures_of_its_checkpoint() {
    let tiny = Tiny::new();
    let summary = tiny.run("run", &["schedule.steps=2"]).expect("two steps");
    let saved = Saved::find(&tiny.path("run"), None).expect("saved");
    let out = tiny.path("hf");
    let (dtype, max_shard_bytes) = (ExportDtype::F32, 50_000);
    export(&saved, &ExportOptions { out, dtype, max_shard_bytes, check: false }).expect("exported");
    // An export has no recipe that would say what is held out.
    let heldout = vec![tiny.path("corpus.jsonl")];
    let cache = Some(tiny.path("cache"));
    let by_file = EvaluateOptions { heldout, cache, ..options(Some(5)) };
    let evaluation = only(&tiny.path("hf"), &by_file);
    assert_eq!((Some(dropless(&evaluation)), evaluation.step), (summary.heldout, None));
    for (wrong, flag) in [
        (EvaluateOptions { as_trained: true, ..options(None) }, "`--as-trained`"),
        (EvaluateOptions { steps: vec![2], ..options(None) }, "`--step`"),
        (EvaluateOptions { batch_rows: Some(0), ..by_file.clone() }, "`--batch-rows`"),
    ] {
        let error = evaluations(&tiny.path("hf"), &wrong).expect_err(flag).to_string();
        assert!(error.contains(flag), "{error}");
    }
}

#[test]
fn shards_are_evaluated_in_one_process_and_drops_stand_under_their_own_names() {
    let exchange = |factor: f64| {
        format!(
            "parallel.dispatch={{kind=\"pooled_wave\",num_expert_waves=2,capacity_factor={factor:?},\
             transport_capacity_factor=2.0}}"
        )
    };
    let layout = ["parallel.shards=2", "parallel.replicas=2", "schedule.steps=2"];
    let figures = |factor: f64| {
        let tiny = Tiny::new();
        let exchange = exchange(factor);
        let mut overrides = layout.to_vec();
        overrides.push(&exchange);
        let summary = tiny.run("run", &overrides).expect("two steps");
        let both = |batch_rows| {
            let options = EvaluateOptions { as_trained: true, ..options(batch_rows) };
            only(&tiny.path("run"), &options)
        };
        let evaluation = both(None);
        let heldout = summary.heldout.as_ref().expect("evaluated");
        assert_eq!(dropless(&evaluation), *heldout, "four ranks and one");
        let other = both(Some(2));
        assert_eq!(dropless(&other), dropless(&evaluation));
        assert_eq!(lossy(&other), lossy(&evaluation), "rows of a pass change what drops");
        evaluation
    };
    // Room for everything: an expert could take all rows of a wave.
    let roomy = figures(16.0);
    assert_eq!(roomy.exchange, Some(Exchange { name: "pooled_wave", shards: 2 }));
    for (found, needed) in losses(&lossy(&roomy)).iter().zip(losses(&dropless(&roomy))) {
        assert!((found - needed).abs() < 1e-5, "{found} is not {needed}");
    }
    assert_eq!(lossy(&roomy).total().tokens, dropless(&roomy).total().tokens);
    let tight = figures(0.25);
    let metrics = tight.metrics();
    let [whole, dropped] = [DROPLESS, AS_TRAINED]
        .map(|under| metrics[&format!("{under}/loss")].as_f64().expect("a number"));
    assert!((whole - dropped).abs() > 1e-4, "nothing was dropped: {whole} and {dropped}");
    assert_eq!(whole, dropless(&tight).total().loss());
}

#[test]
fn evaluations_are_recorded_line_by_line_where_it_is_asked_for() {
    let tiny = Tiny::new();
    tiny.run("run", &["schedule.steps=2"]).expect("two steps");
    let evaluation = only(&tiny.path("run"), &options(None));
    let file = tiny.path("run").join(EVALUATIONS_FILE);
    assert!(!file.exists(), "an evaluation alone leaves nothing behind");
    for _ in 0..2 {
        evaluate::record(&tiny.path("run"), &evaluation).expect("recorded");
    }
    let text = std::fs::read_to_string(&file).expect("a record");
    let lines: Vec<Metrics> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(lines.len(), 2);
    for mut line in lines {
        assert!(line.remove("unix_secs").is_some());
        assert_eq!(line, evaluation.metrics());
    }
    let error = evaluate::record(&tiny.checkpoint("run", 2), &evaluation).expect_err("no run");
    assert!(error.to_string().contains("`--record`"), "{error}");
}
