//! `train eval` on suites, as a process.

use std::process::{Command, Output};

use fulmar_eval::suite::read_lines;

use crate::process::{Folder, said};

fn eval(folder: &Folder, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.current_dir(folder.path("")).args(["eval", "--device=cpu"]).args(flags);
    command.output().expect("the binary starts")
}

#[test]
fn several_runs_are_evaluated_on_a_suite_and_document_by_document() {
    let folder = Folder::new("suites");
    std::fs::create_dir(folder.path("texts")).expect("a folder");
    for (tag, text) in [("sea", "the sea was grey"), ("rain", "rain on stone")] {
        let line = format!("{{\"id\":\"{tag}-0\",\"text\":\"{text}\"}}\n");
        std::fs::write(folder.path(&format!("texts/{tag}.jsonl")), line).expect("written");
    }
    for (out, seed) in [("a", "seed=1"), ("b", "seed=2")] {
        let output = folder.run(out, &["schedule.steps=1", seed]).output().expect("it starts");
        assert!(output.status.success(), "{}", said(&output));
    }
    let suite = "--suite=mine=texts";
    let output = eval(&folder, &["a", "b", suite, "--json", "--documents=sums.jsonl"]);
    assert!(output.status.success(), "{}", said(&output));
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines = lines.lines().map(|line| serde_json::from_str(line).expect("an object"));
    let lines: Vec<serde_json::Value> = lines.collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_ne!(lines[0]["eval/mine/loss"], lines[1]["eval/mine/loss"]);
    let reports = read_lines(&folder.path("sums.jsonl")).expect("sums");
    for line in &lines {
        let weights = line["weights"].as_str().expect("a path");
        let of_line = |suite: &str| {
            let mut all = reports.iter();
            all.find(|(scores, _)| scores.weights == weights && scores.suite == suite)
                .expect("read")
        };
        for suite in ["heldout", "mine"] {
            let (scores, report) = of_line(suite);
            assert_eq!(scores.step, Some(1));
            for (name, found) in [
                ("loss", report.total().loss()),
                ("macro_loss", report.macro_loss()),
                ("bpb", report.total().bits_per_byte()),
                ("macro_bpb", report.macro_bits_per_byte()),
            ] {
                let needed = line[format!("eval/{suite}/{name}")].as_f64().expect("a number");
                assert!((found / needed - 1.0).abs() < 1e-15, "{suite}/{name}: {found}, {needed}");
            }
        }
    }
    let output = eval(&folder, &["a", suite]);
    let table = said(&output);
    for needed in ["held-out text", "\nmine ", "\n  sea ", "\n  rain ", "\n  macro "] {
        assert!(table.contains(needed), "{needed:?} is missing: {table}");
    }
    for (flags, status, needed) in [
        (["a", "--suite=mine"], 2, "needed a name and a folder"),
        (["a", "--suite=heldout=texts"], 2, "`data.heldout`"),
        (["a", "--suite=mine=nowhere"], 3, "nowhere"),
        (["a", "--suite=uncheatable=texts"], 3, "`uncheatable` lacks `ao3_english`"),
    ] {
        let output = eval(&folder, &flags);
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        assert!(said(&output).contains(needed), "{}", said(&output));
    }
}
