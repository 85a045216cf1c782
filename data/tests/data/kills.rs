//! A build in a process of its own, killed and started again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use fulmar_data::{
    Build, BuildSettings, Built, DocumentMarks, Source, Store, StoreOrigin, Tokenizer,
    build_or_open,
};

use crate::{
    fixture::{Folder, Test, line},
    rules::{Numbered, Without},
};

/// Names the folder to the second process.
const FOLDER: &str = "FULMAR_DATA_KILLS_FOLDER";

/// Bytes of text of a part, so that the corpus is some 40 of them.
const PART_BYTES: &str = "FULMAR_DATA_KILLS_PART";

/// 1 MB in four files, of which one has 1,300 documents and one none that is kept.
fn sources(folder: &Path) -> Vec<Source> {
    let names = ["a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"];
    names.map(|name| Source::file(folder.join(name))).into()
}

fn write_sources(folder: &Folder) {
    for (name, documents) in
        [("a", 0..150), ("b", 150..1_450), ("c", 1_450..1_451), ("d", 1_451..1_500)]
    {
        let document = |i: usize| {
            let domain = ["verse", "prose"][i % 2];
            let text: String =
                (0..20 + i % 30).map(|j| format!("Word{} of line {i}. ", i * j)).collect();
            let text = if i == 1_450 { String::new() } else { text };
            line(&format!("doc{i}"), &text, domain, (i % 3) as u32)
        };
        folder.source(&format!("{name}.jsonl"), documents.map(document).collect::<String>());
    }
}

fn build(folder: &Path, out: &str, part_bytes: u64) -> Result<Built, fulmar_data::DataError> {
    let tokenizer = Tokenizer::shipped()?;
    let settings = BuildSettings { part_bytes, in_flight_bytes: 60_000 };
    let build = Build::new(sources(folder), &tokenizer, DocumentMarks::default())
        .judge(Box::new(Without("7")))
        .assign(Box::new(Numbered))
        .settings(settings);
    build.run(folder.join(out))
}

/// Not a test: what the second process does.
#[test]
fn a_child_builds() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let part_bytes = std::env::var(PART_BYTES).expect("a size").parse().expect("a number");
    let built = build(&folder, "store", part_bytes).expect("a good corpus");
    let counts = format!("{} {}", built.tokenised, built.taken_over);
    fs::write(folder.join("counts"), counts).expect("the folder is writable");
}

fn child(folder: &Folder, part_bytes: u64, threads: usize) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "kills::a_child_builds", "--nocapture"])
        .env(FOLDER, folder.path(""))
        .env(PART_BYTES, part_bytes.to_string())
        .env("RAYON_NUM_THREADS", threads.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts")
}

/// Runs a child until something lies at `path`, and kills it. False if it was done before.
fn kill_at(folder: &Folder, path: &str, part_bytes: u64, threads: usize) -> bool {
    let mut child = child(folder, part_bytes, threads);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !folder.path(path).exists() {
        if child.try_wait().expect("its own child").is_some() {
            return false;
        }
        assert!(Instant::now() < deadline, "nothing lies at {path}");
        std::thread::sleep(Duration::from_micros(200));
    }
    child.kill().expect("it runs");
    let status = child.wait().expect("its own child");
    assert!(!status.success() || folder.path("store").exists());
    true
}

/// The documents of the parts in the work folder that are whole, by what they say.
fn documents_in_parts(folder: &Folder) -> u64 {
    let documents = |number: usize| {
        let path = folder.path(&format!(".store.partial/parts/{number:05}.json"));
        let sealed = fs::read_to_string(path).ok()?;
        let part: serde_json::Value = serde_json::from_str(sealed.split_once('\n')?.1).ok()?;
        part["num_documents"].as_u64()
    };
    (0..).map_while(documents).sum()
}

/// Every file of a store with its bytes.
fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root").to_owned();
                found.push((name, fs::read(&path).expect("a file")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_killed_build_goes_on_without_tokenising_its_parts_again_to_the_same_bytes() -> Test {
    let folder = Folder::new();
    write_sources(&folder);
    let whole = build(&folder.path(""), "whole", 64 << 20)?;
    let documents = whole.store.manifest().num_documents();
    assert_eq!((whole.tokenised, whole.taken_over), (documents, 0));
    let expected = files(&folder.path("whole"));
    assert!(expected.iter().any(|(name, _)| name.ends_with("quarantine.jsonl")));
    // In the first file, in the middle of the second, near the end; with the store half put together;
    // several in a row, with other parts and threads.
    let part = |number: u64| format!(".store.partial/parts/{number:05}.json");
    let staging = ".store.partial/store/c01q0/00000.tokens".to_owned();
    for (places, sizes) in [
        (vec![part(0)], [20_000, 20_000]),
        (vec![part(9), part(20), part(31)], [20_000, 1_000]),
        (vec![part(24), staging.clone(), part(24)], [30_000, 12_000]),
        (vec![staging], [20_000, 1 << 20]),
    ] {
        let mut kills = 0;
        for (turn, place) in places.iter().enumerate() {
            kills += u32::from(kill_at(&folder, place, sizes[0], turn % 2 + 1));
        }
        assert!(kills > 0, "no child was alive at {places:?}");
        let in_parts = documents_in_parts(&folder);
        assert!(in_parts > 0 && !folder.path("store").exists(), "{places:?}");
        assert!(child(&folder, sizes[1], 2).wait()?.success());
        let counts = fs::read_to_string(folder.path("counts"))?;
        assert_eq!(counts, format!("{} {in_parts}", documents - in_parts), "{places:?}");
        assert!(files(&folder.path("store")) == expected, "other bytes after {places:?}");
        assert!(!folder.names().contains(&".store.partial".to_owned()));
        fs::remove_dir_all(folder.path("store"))?;
        fs::remove_file(folder.path("counts"))?;
    }
    Ok(())
}

#[test]
fn a_build_killed_at_any_instant_ends_with_the_same_bytes() -> Test {
    let folder = Folder::new();
    write_sources(&folder);
    build(&folder.path(""), "whole", 64 << 20)?;
    let expected = files(&folder.path("whole"));
    for turn in 0..8 {
        // From before the first part on, farther each time; then to the end.
        for millis in [turn * 15, turn * 9 + 5] {
            let mut child = child(&folder, 15_000, 1);
            std::thread::sleep(Duration::from_millis(millis));
            // An error means that it was done.
            let _ = child.kill();
            child.wait()?;
        }
        assert!(child(&folder, 15_000, 2).wait()?.success());
        assert!(files(&folder.path("store")) == expected, "other bytes in turn {turn}");
        fs::remove_dir_all(folder.path("store"))?;
    }
    Ok(())
}

#[test]
fn a_part_that_is_damaged_is_made_again_with_those_behind_it() -> Test {
    let folder = Folder::new();
    write_sources(&folder);
    build(&folder.path(""), "whole", 64 << 20)?;
    for (name, at) in [("00003.tokens", 1_000), ("00003.json", 200)] {
        assert!(kill_at(&folder, ".store.partial/parts/00008.json", 20_000, 1));
        let path = folder.path(&format!(".store.partial/parts/{name}"));
        let mut bytes = fs::read(&path)?;
        bytes[at] ^= 1;
        fs::write(&path, bytes)?;
        let built = build(&folder.path(""), "store", 20_000)?;
        assert!(built.taken_over > 0 && built.taken_over < documents_of(&built.store) / 4);
        assert!(files(&folder.path("store")) == files(&folder.path("whole")), "{name}");
        fs::remove_dir_all(folder.path("store"))?;
    }
    Ok(())
}

fn documents_of(store: &Store) -> u64 {
    store.manifest().num_documents()
}

#[test]
fn a_killed_build_of_the_cache_goes_on_and_leaves_nothing_behind() -> Test {
    let folder = Folder::new();
    write_sources(&folder);
    let tokenizer = Tokenizer::shipped()?;
    let sources = sources(&folder.path(""));
    let open = |cache| build_or_open(&sources, &tokenizer, DocumentMarks::default(), cache);
    let (first, _) = open(folder.path("cache"))?;
    // What a killed build leaves: a folder without its process, with a part or without.
    let name = first.path().file_name().ok_or("a name")?.to_string_lossy().into_owned();
    fs::rename(first.path(), folder.path("cache/elsewhere"))?;
    fs::create_dir_all(folder.path(&format!("cache/.{name}.partial/store/verse")))?;
    let (second, origin) = open(folder.path("cache"))?;
    assert_eq!(origin, StoreOrigin::Built);
    assert!(files(second.path()) == files(&folder.path("cache/elsewhere")));
    assert_eq!(fs::read_dir(folder.path("cache"))?.count(), 2);
    Ok(())
}
