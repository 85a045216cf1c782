use std::path::Path;

use fulmar_model::Preset;
use serde_json::json;

use super::*;
use crate::config::RunConfig;
use crate::recipe;
use crate::telemetry::jsonl::LOG_FILE;

/// A folder of a run of 20 updates whose held-out loss is 5 less a tenth of the update.
fn run_in(folder: &Path, name: &str) -> PathBuf {
    let mut config = RunConfig::preset(Preset::MiniD48);
    config.name = name.to_owned();
    config.schedule.steps = 20;
    let run = folder.join(name);
    std::fs::create_dir(&run).expect("made");
    std::fs::write(run.join("recipe.toml"), recipe::to_toml(&config)).expect("written");
    let line = |step: u64| {
        let loss = 5.0 - 0.1 * step as f64;
        let update = json!({ "step": step, "attempt": 1, "train/loss": loss });
        let evaluation = json!({ "step": step, "attempt": 1, "eval/heldout/macro_loss": loss });
        format!("{update}\n{evaluation}\n")
    };
    let log: String = (1..=20).map(line).collect();
    std::fs::write(run.join(LOG_FILE), log).expect("written");
    run
}

/// A forecast of `target` that is right at half of the run and wrong at its end.
fn forecast_in(folder: &Path, target: &str) -> PathBuf {
    let unsealed = json!({
        "target": target,
        "metric": "eval/heldout/macro_loss",
        "asymptote": 2.0,
        "made_unix_secs": 1_796_078_773,
        "rungs": [{ "name": "d48", "flops": 1e15 }],
        "loss_band": [
            { "progress": 50, "low": 3.9, "mid": 3.98, "high": 4.1 },
            { "progress": 100, "low": 2.5, "mid": 2.6, "high": 2.7 },
        ],
        "zdigest": "",
    });
    // The seal is the last field; `json!` sorts names.
    let unsealed = unsealed.to_string().replace("zdigest", "digest");
    let digest = blake3::hash(unsealed.as_bytes()).to_hex().to_string();
    let end = unsealed.rfind("\"\"").expect("the empty digest");
    let path = folder.join("forecast.json");
    std::fs::write(&path, format!("{}\"{digest}\"}}", &unsealed[..end])).expect("written");
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
    let protocol = "title = \"Does it <b>help</b>?\"\nhypothesis = \"It does.\"\nplan = \"Two runs.\"\n\
        acceptance = \"0.01 nats\"\n";
    std::fs::write(record.join("experiment.toml"), protocol).expect("written");
    let options = ReportOptions {
        runs: vec![run_in(folder, "run")],
        out: folder.join("report.html"),
        forecast: None,
        experiments: Some(folder.join("records")),
    };
    let text = page_of(&options);
    assert!(text.contains("Does it &lt;b&gt;help&lt;/b&gt;? — draft"), "{text}");
    let result = json!({
        "verdict": "rejected",
        "text": "It does not.",
        "missing": ["third"],
        "criteria": [{ "text": "gains 0.01", "value": 0.002, "met": false }],
    });
    std::fs::write(record.join("result.json"), result.to_string()).expect("written");
    let text = page_of(&options);
    for shown in ["— rejected", "It does not.", "gains 0.01: 0.00200, not met", "third"] {
        assert!(text.contains(shown), "{shown}");
    }
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
