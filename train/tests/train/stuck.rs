//! A process in which nothing moves any more ends by itself and says what each rank was doing.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{Folder, said};

#[test]
fn a_process_without_progress_names_every_rank_and_exits_with_5() {
    let folder = Folder::new("stuck");
    // Nobody ever writes to it, so opening it for reading never returns.
    let fifo = folder.path("silent.jsonl");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("`mkfifo` runs").success());
    let set = [
        "data.sources=[\"silent.jsonl\"]",
        "guard.stuck_secs=1",
        "parallel.shards=2",
        "parallel.dispatch={kind=\"ragged\"}",
    ];
    let started = Instant::now();
    let output = folder.run("run", &set).output().expect("the binary runs");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("no rank of this process has made progress for 1."), "{text}");
    for rank in [0, 1] {
        assert!(text.contains(&format!("rank {rank}: starting after 0 updates")), "{text}");
    }
    // Far below the deadline of collectives, ten minutes.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}
