//! `train doctor` as people run it.

use std::process::{Command, Output};

fn doctor(arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    let output = command.arg("doctor").args(arguments).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

#[test]
fn the_cpu_is_healthy_and_every_operation_is_listed() {
    let (output, said) = doctor(&["--device", "cpu"]);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("CPU, ") && said.contains("kernels  Flex"), "{said}");
    for op in fulmar_train::doctor::operations() {
        let row = said.lines().find(|line| line.starts_with(&format!("{op} ")));
        assert!(row.is_some_and(|row| row.ends_with("  ok")), "{op}: {said}");
    }
}

#[test]
fn an_unknown_operation_is_named_with_those_that_are_known() {
    let (output, _) = doctor(&["--op", "softmax", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("`--op` is `softmax`, needed one of: adam, "), "{said}");
}
