//! Logs that cannot be written stop no training.

use std::process::Command;

use crate::process::{Folder, said};

/// Bytes at which a file is full.
const MOST_BYTES: u64 = 48 * 1024;

#[test]
fn a_run_goes_on_when_its_logs_cannot_grow_and_says_so_once_and_at_the_end() {
    let folder = Folder::new("disk_full");
    let set = ["checkpoint.enabled=false"];
    // Makes the store of tokens, which has to be larger.
    let output = folder.run("first", &set).arg("--steps=1").output().expect("runs");
    assert!(output.status.success(), "{}", said(&output));
    let run = folder.run("run", &set);
    // A write beyond the limit fails with an error where the signal is ignored. `ulimit -f` counts
    // blocks of 512 bytes.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", MOST_BYTES / 512);
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(run.get_program())
        .args(run.get_args())
        .arg("--steps=60")
        .current_dir(folder.path(""))
        .output()
        .expect("`sh` runs");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("step 60/60"), "the run comes to its end: {text}");
    let log = folder.path("run/metrics.jsonl");
    let bytes = std::fs::metadata(&log).expect("a log").len();
    assert!(bytes <= 2 * MOST_BYTES && bytes > 0, "{bytes} bytes");
    assert_eq!(text.matches("training goes on").count(), 1, "said once: {text}");
    assert!(text.contains("could not write run/metrics.jsonl"), "{text}");
    let last = text.lines().find(|line| line.contains("writes failed")).expect("said at the end");
    assert!(last.starts_with("run/metrics.jsonl: ") && last.contains(" unwritten"), "{text}");
}
