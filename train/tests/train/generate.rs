//! `train generate` as a command.

use std::process::Command;

use serde_json::Value;

use crate::process::Folder;

#[test]
fn a_run_continues_prompts_on_the_command_line() {
    let folder = Folder::new("generate");
    let ended = folder.run("run", &["schedule.steps=1"]).output().expect("started");
    assert!(ended.status.success(), "{ended:?}");
    let generate = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        command.current_dir(folder.path("")).args(["generate", "run", "--device=cpu"]).args(flags);
        let output = command.output().expect("started");
        (
            output.status.code(),
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()),
        )
    };
    let usual = ["--prompt", "the sea ", "--prompt", "a gull ", "--new-tokens", "5"];
    let (status, [text, _]) = generate(&usual);
    assert_eq!(status, Some(0));
    assert!(text.contains("the sea |") && text.contains("a gull |"), "{text}");

    let mut json = usual.to_vec();
    json.extend(["--json", "--temperature", "0", "--seed", "4"]);
    let (_, [lines, _]) = generate(&json);
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[1]["prompt"], "a gull ");
    assert_eq!((&lines[1]["seed"], &lines[1]["temperature"]), (&5.into(), &0.0.into()));
    assert_eq!((&lines[0]["step"], &lines[0]["ended"]), (&1.into(), &false.into()));
    assert!(lines[0]["text"].is_string());

    let (status, [_, said]) = generate(&["--prompt", "the", "--top-p", "2"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("`--top-p` is 2"), "{said}");
    let (status, [_, said]) = generate(&[]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--prompt"), "{said}");
}
