//! What cannot be read stops a run before anything is written.

use fulmar::train::{DeviceChoice, device, run};

use crate::tiny::{Tiny, chain};

const GOOD: &str = "{\"text\":\"a line that is fine\"}\n";

#[test]
fn a_bad_corpus_file_is_named_with_its_line_and_leaves_no_run_behind() {
    let tiny = Tiny::new();
    let cases = [
        ("missing.jsonl", None, "missing.jsonl"),
        ("empty.jsonl", Some(String::new()), "is empty"),
        ("not_json.jsonl", Some(format!("{GOOD}{GOOD}{{\"text\": oops}}\n")), "line 3"),
        ("not_object.jsonl", Some(format!("{GOOD}[1, 2]\n")), "line 2"),
        ("no_text.jsonl", Some(format!("{GOOD}{{\"id\":\"x\"}}\n")), "line 2"),
    ];
    for (file, text, needed) in cases {
        let path = tiny.path(file);
        if let Some(text) = text {
            std::fs::write(&path, text).expect("written");
        }
        let mut config = tiny.config(&[]);
        config.data.sources = vec![path.clone()];
        let error = run(&config, &tiny.options("run")).expect_err(file);
        let error = chain(&error);
        assert!(error.contains(file) && error.contains(needed), "{file}: {error}");
        assert!(!tiny.path("run").exists(), "{file}: a run's folder appeared");
        let cached = std::fs::read_dir(tiny.path("cache")).map_or(0, Iterator::count);
        assert_eq!(cached, 0, "{file}: something of a store was left in the cache");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_with_what_would_bring_it() {
    let Err(error) = device::open(DeviceChoice::Cuda) else {
        println!("skipped: this build has CUDA and this machine a card");
        return;
    };
    let error = error.to_string();
    let needed = ["device `cuda`", "--features cuda", "none was found"];
    assert!(error.contains(needed[0]), "{error}");
    assert!(needed[1..].iter().any(|needed| error.contains(needed)), "{error}");

    let tiny = Tiny::new();
    let mut options = tiny.options("run");
    options.device = DeviceChoice::Cuda;
    let stopped = run(&tiny.config(&[]), &options).expect_err("no device").to_string();
    assert_eq!(stopped, error);
    assert!(!tiny.path("run").exists() && !tiny.path("cache").exists());
}
