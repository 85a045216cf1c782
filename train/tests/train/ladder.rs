//! `train ladder` on four rungs of one narrow layer.

use std::process::{Command, Output};

use fulmar_model::rung_steps;
use fulmar_train::forecast::Preregistration;
use fulmar_train::history::History;
use fulmar_train::recipe;

use crate::process::{Folder, said};

const RATIO: f64 = 0.6;
const NAMES: [&str; 4] = ["w16", "w24", "w32", "w48"];

/// A folder with recipes of widths 16 to 48 by the rule, and the ladder.
fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    for (name, width) in NAMES.into_iter().zip([16, 24, 32, 48]) {
        let set = [
            format!("name={name}"),
            format!("model.hidden_dim={width}"),
            "model.head_dim=8".to_owned(),
            "evaluation.points=20".to_owned(),
            "checkpoint.every=5".to_owned(),
        ];
        let mut config = recipe::load(&folder.path("recipe.toml"), &set).expect("a recipe");
        config.schedule.steps = rung_steps(&config.model, config.batch.rows, RATIO);
        let path = folder.path(&format!("{name}.toml"));
        std::fs::write(path, recipe::to_toml(&config)).expect("written");
    }
    write_ladder(&folder, RATIO, "w48");
    folder
}

fn write_ladder(folder: &Folder, ratio: f64, target: &str) {
    let rungs = NAMES.map(|name| format!("\"{name}.toml\"")).join(", ");
    let text = format!(
        "name = \"small\"\nout = \"rungs\"\ntokens_per_active_param = {ratio}\nasymptote = 0.5\n\
         target = \"{target}\"\nrungs = [{rungs}]\n"
    );
    std::fs::write(folder.path("ladder.toml"), text).expect("written");
}

fn ladder(folder: &Folder, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.current_dir(folder.path("")).arg("ladder").arg(words[0]).arg("ladder.toml");
    command.args(&words[1..]).output().expect("the binary starts")
}

#[test]
fn rungs_are_trained_one_after_another_and_gone_on_with_where_they_stopped() {
    let folder = folder("ladder");
    // One rung stopped in its course.
    let mut stopped = Command::new(env!("CARGO_BIN_EXE_train"));
    stopped.current_dir(folder.path("")).args(["run", "w24.toml", "--device=cpu"]);
    let stopped = stopped.args(["--out=rungs/w24", "--steps=7"]).output().expect("started");
    assert!(stopped.status.success(), "{}", said(&stopped));
    let status = said(&ladder(&folder, &["status"]));
    assert!(status.contains("w16        not begun") && status.contains("w24        stopped"));

    let first = ladder(&folder, &["run", "--device=cpu", "--rung=w16,w24"]);
    let text = said(&first);
    assert!(first.status.success(), "{text}");
    assert!(text.contains("rung 1 of 4: w16, from update 0"), "{text}");
    assert!(text.contains("rung 2 of 4: w24, from update 7 "), "{text}");
    assert!(text.contains("w32        not begun"), "{text}");

    let early = ladder(&folder, &["run", "--device=cpu", "--rung=w48"]);
    assert!(said(&early).contains("`w32` at update 0 of"), "{}", said(&early));

    let rest = ladder(&folder, &["run", "--device=cpu"]);
    let text = said(&rest);
    assert!(rest.status.success(), "{text}");
    // The target was forecast before it was trained, and its run knows the forecast.
    let forecast = Preregistration::read(&folder.path("rungs/w48.forecast.json")).expect("fixed");
    assert_eq!(forecast.rungs.iter().map(|rung| &rung.name[..]).collect::<Vec<_>>(), &NAMES[..3]);
    let started = History::read(&folder.path("rungs/w48")).expect("a history").remove(0);
    assert_eq!(started.detail["forecast_digest"], forecast.digest);
    assert!(text.contains("w48 is forecast to end at"), "{text}");
    assert!(!text.contains("rung 1 of 4") && text.contains("rung 4 of 4: w48, from update 0"));
    let status = ladder(&folder, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    for (index, rung) in status["rungs"].as_array().expect("rungs").iter().enumerate() {
        assert_eq!((&rung["standing"], &rung["step"]), (&"done".into(), &rung["steps"]), "{rung}");
        assert_eq!(rung["attempts"], if index == 1 { 2 } else { 1 }, "{rung}");
        assert!(rung["heldout"][1].as_f64().is_some_and(f64::is_finite), "{rung}");
    }
}

#[test]
fn what_is_no_rung_of_the_ladder_is_named() {
    let folder = folder("ladder_bad");
    let refused = |needed: &str| {
        let output = ladder(&folder, &["plan"]);
        let text = said(&output);
        assert!(!output.status.success() && text.contains(needed), "{text}");
    };
    write_ladder(&folder, 0.7, "w48");
    refused("`w16` has");
    write_ladder(&folder, RATIO, "w64");
    refused("found `w64`, needed one of w16, w24, w32, w48");
    write_ladder(&folder, RATIO, "w32");
    refused("2 rung(s) spend less than it, needed 3");
    write_ladder(&folder, RATIO, "w48");
    let text = std::fs::read_to_string(folder.path("w24.toml")).expect("a recipe");
    std::fs::write(folder.path("w24.toml"), text.replace("points = 20", "points = 10"))
        .expect("written");
    refused("`w24` has 10 evaluations");
    std::fs::write(folder.path("w24.toml"), text.replace("\"w24\"", "\"w16\"")).expect("written");
    refused("two recipes are named `w16`");
    std::fs::write(folder.path("w24.toml"), &text).expect("written");

    // A run of another recipe in a rung's folder.
    std::fs::create_dir_all(folder.path("rungs/w24")).expect("a folder");
    let other = text.replace("seed = 0", "seed = 7");
    std::fs::write(folder.path("rungs/w24/recipe.toml"), other).expect("written");
    let output = ladder(&folder, &["status"]);
    let said = said(&output);
    assert!(said.contains("seed") && said.contains("the run there has 7, the rung 0"), "{said}");
}
