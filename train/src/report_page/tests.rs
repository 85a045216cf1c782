use std::path::Path;

use fulmar_eval::forecast::Band;
use fulmar_model::Preset;
use serde_json::json;

use super::*;
use crate::config::RunConfig;
use crate::experiment::{CloseOptions, Verdict, close, seal};
use crate::forecast::{DEFAULT_METRIC, read_rung};
use crate::recipe;
use crate::telemetry::jsonl::LOG_FILE;

fn config(preset: Preset, name: &str) -> RunConfig {
    let mut config = RunConfig::preset(preset);
    config.name = name.to_owned();
    config.schedule.steps = 20;
    config.evaluation.points = 20;
    config
}

/// A folder of a run of 20 updates whose losses are 5 less a tenth of the update.
fn run_of(folder: &Path, config: &RunConfig) -> PathBuf {
    let run = folder.join(&config.name);
    std::fs::create_dir(&run).expect("made");
    std::fs::write(run.join("recipe.toml"), recipe::to_toml(config)).expect("written");
    let line = |step: u64| {
        let loss = 5.0 - 0.1 * step as f64;
        let update = json!({
            "step": step, "attempt": 1, "train/loss": loss, "grad/norm/total": 0.3,
            "moe/drop_fraction": 0.0, "throughput/flops_rule": "with_head",
        });
        let evaluation = json!({ "step": step, "attempt": 1, "eval/heldout/macro_loss": loss });
        format!("{update}\n{evaluation}\n")
    };
    let log: String = (1..=20).map(line).collect();
    std::fs::write(run.join(LOG_FILE), log).expect("written");
    run
}

fn run_in(folder: &Path, name: &str) -> PathBuf {
    run_of(folder, &config(Preset::MiniD48, name))
}

/// A forecast of `target` that is right at half of the run and wrong at its end.
fn forecast_in(folder: &Path, target: &str) -> PathBuf {
    let rungs = [(Preset::MiniD48, "d48"), (Preset::MiniD64, "d64"), (Preset::MiniD96, "d96")];
    let rungs = rungs.map(|(preset, name)| {
        read_rung(&run_of(folder, &config(preset, name)), DEFAULT_METRIC).expect("a whole rung")
    });
    let target = config(Preset::MiniD48, target);
    let mut made = Preregistration::new(&rungs, &target, DEFAULT_METRIC, 2.0).expect("a forecast");
    let band = |progress, low, mid, high| Band { progress, low, mid, high };
    made.loss_band = vec![band(50, 3.9, 3.98, 4.1), band(100, 2.5, 2.6, 2.7)];
    made.made_unix_secs = 1_796_078_773;
    let path = folder.join("forecast.json");
    made.write(&path).expect("written");
    path
}

fn page_of(options: &ReportOptions) -> String {
    write(options).unwrap_or_else(|error| panic!("{}", error.chain()));
    std::fs::read_to_string(&options.out).expect("the page")
}

#[test]
fn a_run_is_measured_against_its_forecast_at_each_point() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let mut options = ReportOptions {
        runs: vec![run_in(folder, "target"), run_in(folder, "other")],
        out: folder.join("report.html"),
        forecast: Some(forecast_in(folder, "target")),
        experiments: None,
    };
    let text = page_of(&options);
    let row = |progress: &str| {
        let begin = text.find(&format!(">{progress}</td>")).expect(progress);
        text[begin..begin + text[begin..].find("</tr>").expect("an end")].to_owned()
    };
    assert!(row("50%").contains("4.0000") && row("50%").contains("+0.0200"), "{}", row("50%"));
    assert!(row("50%").contains("inside") && row("100%").contains("outside"));
    assert!(text.contains("Distance from the forecast") && text.contains("2026-11-30 22:46 UTC"));
    options.runs.remove(0);
    let text = page_of(&options);
    assert!(
        text.contains("the forecast is of the run &quot;target&quot;, which is not among these.")
    );
}

#[test]
fn a_run_without_steps_has_a_page_that_says_what_is_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let run = run_in(folder, "run");
    std::fs::remove_file(run.join(LOG_FILE)).expect("removed");
    let (out, forecast, experiments) = (folder.join("report.html"), None, None);
    let text = page_of(&ReportOptions { runs: vec![run], out, forecast, experiments });
    assert!(text.contains("not begun") && !text.contains("<svg"), "{text}");
    for title in ["Training loss", "Speed", "Attempts and branches", "Evaluations by tag"] {
        let missing = format!("<div class=\"missing\"><h3>{title}</h3>");
        assert!(text.contains(&missing), "{title}");
    }
}

#[test]
fn experiments_are_shown_with_their_verdicts_and_their_text_is_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let record = folder.join("records").join("first");
    std::fs::create_dir_all(&record).expect("made");
    let protocol = "title = \"Does it <b>help</b>?\"\nsource = \"public record\"\n\
        hypothesis = \"It does.\"\nplan = \"Two runs.\"\nacceptance = \"0.01 nats\"\n\
        [[facts]]\nwhat = \"gain\"\npublic = \"0.002\"\nsource = \"a log\"\nours = \"0.003\"\n";
    std::fs::write(record.join("experiment.toml"), protocol).expect("written");
    let options = ReportOptions {
        runs: vec![run_in(folder, "run")],
        out: folder.join("report.html"),
        forecast: None,
        experiments: Some(folder.join("records")),
    };
    let text = page_of(&options);
    assert!(text.contains("Does it &lt;b&gt;help&lt;/b&gt;? — draft"), "{text}");
    seal(&record).expect("complete");
    assert!(page_of(&options).contains("— sealed"));
    let (verdict, text) = (Some(Verdict::Rejected), "It does not.".to_owned());
    close(&record, &CloseOptions { runs: folder.to_owned(), verdict, text }).expect("closed");
    let text = page_of(&options);
    for shown in ["— rejected", "It does not.", "gain: 0.002; ours: 0.003"] {
        assert!(text.contains(shown), "{shown}");
    }
    let altered = protocol.replace("0.01 nats", "0.001 nats");
    std::fs::write(record.join("experiment.toml"), altered).expect("written");
    let text = page_of(&options);
    assert!(text.contains("Does not check: ") && text.contains("altered"), "{text}");
}

#[test]
fn a_page_that_cannot_be_written_leaves_the_old_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let (out, forecast, experiments) = (folder.join("report.html"), None, None);
    let mut options =
        ReportOptions { runs: vec![run_in(folder, "run")], out, forecast, experiments };
    let text = page_of(&options);
    options.runs.push(folder.join("nowhere"));
    write(&options).expect_err("no such run");
    assert_eq!(std::fs::read_to_string(&options.out).expect("the old page"), text);
    assert_eq!(std::fs::read_dir(folder).expect("listed").count(), 2, "no other file is left");
}
