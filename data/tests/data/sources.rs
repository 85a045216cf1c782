//! Globs, formats and names of files.

use std::fs;

use fulmar_data::{
    Compression, DocumentMarks, DocumentReader, Format, Pool, Source, SourceConfig, StoreOrigin,
    Tokenizer, build_or_open, find_sources,
};

use crate::fixture::{Folder, Test, chain, gzip, line, zstd};

fn config(paths: &[&str]) -> SourceConfig {
    let paths = paths.iter().map(ToString::to_string).collect();
    SourceConfig { name: "books".to_owned(), paths, ..SourceConfig::default() }
}

fn names(sources: &[Source]) -> Vec<&str> {
    sources.iter().map(Source::name).collect()
}

/// Writes small files of one document each.
fn with_files(names: &[&str]) -> Folder {
    let folder = Folder::new();
    for name in names {
        let path = folder.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is writable");
        fs::write(path, line("a", name, "d", 0)).expect("the folder is writable");
    }
    folder
}

#[test]
fn files_come_in_the_order_of_their_names_whatever_the_order_of_the_globs() -> Test {
    let files = ["b/2.jsonl", "b/10.jsonl", "b/c/1.jsonl", "a.jsonl", "B.jsonl", "b/.hidden.jsonl"];
    let folder = with_files(&files);
    let expected = ["B.jsonl", "a.jsonl", "b/10.jsonl", "b/2.jsonl", "b/c/1.jsonl"];
    let base = folder.path("");
    let one = find_sources(&[config(&["**/*.jsonl"])], &base)?;
    assert_eq!(names(&one), expected);
    let three = find_sources(&[config(&["b/", "./B.jsonl", "a*"])], &base)?;
    assert_eq!(names(&three), expected);
    assert!(three.iter().all(|source| source.group() == "books"));
    // Documents have the file's name as the recipe has it, wherever the folder lies.
    let document = DocumentReader::open(&three[2])?.next().expect("a document")?;
    assert_eq!((&*document.file, document.record), ("b/10.jsonl", 1));
    Ok(())
}

#[test]
fn sources_come_in_the_order_of_the_recipe() -> Test {
    let folder = with_files(&["a.jsonl", "b.jsonl"]);
    let configs =
        [config(&["b.jsonl"]), SourceConfig { name: "web".to_owned(), ..config(&["a.jsonl"]) }];
    let sources = find_sources(&configs, folder.path(""))?;
    assert_eq!(names(&sources), ["b.jsonl", "a.jsonl"]);
    let twice = find_sources(&[config(&["a.jsonl"]), config(&["b.jsonl"])], folder.path(""));
    assert!(twice.expect_err("two names").to_string().contains("two sources are called `books`"));
    Ok(())
}

#[test]
fn special_characters_in_names_are_met_by_the_name_itself() -> Test {
    let folder = with_files(&["[x]*/a[1].jsonl", "[x]*/b.jsonl"]);
    let file = find_sources(&[config(&["[x]*/a[1].jsonl"])], folder.path(""))?;
    assert_eq!(names(&file), ["[x]*/a[1].jsonl"]);
    let below = find_sources(&[config(&["*.jsonl"])], folder.path("[x]*"))?;
    assert_eq!(names(&below), ["a[1].jsonl", "b.jsonl"]);
    Ok(())
}

#[test]
fn a_path_without_a_file_is_an_error() {
    let folder = with_files(&["a.jsonl"]);
    fs::create_dir(folder.path("folder.jsonl")).expect("the folder is writable");
    for pattern in ["*.parquet", "absent.jsonl", "folder*", "folder.jsonl"] {
        let error = find_sources(&[config(&["a.jsonl", pattern])], folder.path(""));
        let message = error.expect_err(pattern).to_string();
        assert!(message.contains("source `books`") && message.contains(pattern), "{message}");
    }
    let error = find_sources(&[config(&["a***"])], folder.path("")).expect_err("no glob");
    assert!(error.to_string().contains("`paths` is \"a***\""), "{error}");
}

#[test]
fn a_file_that_is_matched_twice_is_an_error_under_any_name() {
    let folder = with_files(&["a/1.jsonl", "a/2.jsonl"]);
    let refused = |configs: &[SourceConfig]| {
        find_sources(configs, folder.path("")).expect_err("matched twice").to_string()
    };
    let message = refused(&[config(&["a/*.jsonl", "a/2*"])]);
    assert!(message.contains("`a/2.jsonl`") && message.contains("`a/2*` of source"), "{message}");
    let web = SourceConfig { name: "web".to_owned(), ..config(&["**/1.jsonl"]) };
    let message = refused(&[config(&["a/1.jsonl"]), web]);
    assert!(message.contains("source `books`") && message.contains("source `web`"), "{message}");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path("a/1.jsonl"), folder.path("link.jsonl"))
            .expect("the folder is writable");
        let message = refused(&[config(&["a/1.jsonl", "link.jsonl"])]);
        assert!(message.contains("`link.jsonl`"), "{message}");
    }
}

#[test]
fn format_and_compression_are_told_from_the_file() -> Test {
    let folder = Folder::new();
    let json = line("a", "text", "d", 0);
    for (name, bytes) in [
        ("a.json.gz", gzip(json.as_bytes())),
        ("b.gz", zstd(json.as_bytes())),
        ("c", json.clone().into_bytes()),
        ("d.md.zst", zstd(b"# Title")),
    ] {
        folder.source(name, bytes);
    }
    let sources = find_sources(&[config(&["*"])], folder.path(""))?;
    let mut found = Vec::new();
    for source in &sources {
        for file in source.files()? {
            assert_eq!(file.bytes, fs::metadata(folder.path(&file.name))?.len());
            found.push((file.name, file.format, file.compression));
        }
    }
    let expected = [
        ("d.md.zst", Format::Text, Compression::Zstd),
        ("a.json.gz", Format::JsonLines, Compression::Gzip),
        ("b.gz", Format::JsonLines, Compression::Zstd),
        ("c", Format::JsonLines, Compression::None),
    ];
    assert_eq!(found, expected.map(|(name, format, how)| (name.to_owned(), format, how)));
    let as_text = SourceConfig { format: Some(Format::Text), ..config(&["c"]) };
    let source = &find_sources(&[as_text], folder.path(""))?[0];
    let document = DocumentReader::open(source)?.next().expect("a document")?;
    assert_eq!((document.id.as_str(), document.text), ("c", json));
    Ok(())
}

#[test]
fn what_is_not_read_is_refused_by_its_first_bytes() {
    let folder = Folder::new();
    for (bytes, what) in [
        (&b"\xfd7zXZ\0rest"[..], "compressed with xz"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\xff\xfe{\0", "text in UTF-16"),
    ] {
        let source = folder.source("x.jsonl", bytes);
        let message = DocumentReader::open(&source).err().expect(what).to_string();
        assert!(message.contains("x.jsonl` is") && message.contains(what), "{message}");
    }
}

#[test]
fn text_files_of_a_folder_are_one_source_with_paths_as_ids() -> Test {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("notes/deep/er"))?;
    fs::write(folder.path("notes/b.txt"), "\u{feff}one\r\ntwo\r\n")?;
    fs::write(folder.path("notes/deep/er/a.txt"), "no line end")?;
    fs::write(folder.path("notes/deep/c.txt.gz"), gzip("packed".as_bytes()))?;
    fs::write(folder.path("notes/empty.txt"), "")?;
    let constants = SourceConfig {
        domain: Some("notes".to_owned()),
        quality: Some(4),
        ..config(&["notes/**/*.txt*"])
    };
    let sources = find_sources(&[constants], folder.path(""))?;
    assert_eq!(names(&sources), ["notes"]);
    let mut reader = DocumentReader::open(&sources[0])?;
    let documents = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    let found: Vec<_> = documents
        .iter()
        .map(|d| (d.id.as_str(), &*d.file, d.record, d.text.as_str(), d.cell().to_string()))
        .collect();
    let cell = || "notes/q4".to_owned();
    let expected = [
        ("b.txt", "notes/b.txt", 1, "one\r\ntwo\r\n", cell()),
        ("deep/c.txt.gz", "notes/deep/c.txt.gz", 1, "packed", cell()),
        ("deep/er/a.txt", "notes/deep/er/a.txt", 1, "no line end", cell()),
    ];
    assert_eq!(found, expected);
    let ledger = reader.ledger();
    assert_eq!((ledger.lines, ledger.documents, ledger.empty, ledger.kept), (0, 4, 1, 3));
    assert!(ledger.closes());
    // The digest is that of names and contents.
    let digest = sources[0].digest()?;
    fs::write(folder.path("notes/deep/er/a.txt"), "no line and")?;
    assert_ne!(sources[0].digest()?, digest);
    Ok(())
}

#[test]
fn columns_of_a_text_file_are_refused() {
    let folder = with_files(&["a.txt"]);
    let mut columns = config(&["a.txt"]);
    columns.columns.id = Some("name".to_owned());
    let message = find_sources(&[columns], folder.path("")).expect_err("no columns").to_string();
    assert!(message.contains("`a.txt` is a text file, which has no columns"), "{message}");
}

#[test]
fn a_pool_is_what_a_recipe_reads() -> Test {
    let folder = with_files(&["data/a.jsonl", "data/b.jsonl"]);
    let recipe = folder.path("data/pool.toml");
    let rest = "[limits]\nmin_characters = 3\n[[sources]]\nname = \"x\"\npaths = [\"*.jsonl\"]\n";
    fs::write(&recipe, format!("strict = true\ntokenizer = \"t.json\"\n{rest}"))?;
    let pool = Pool::of_recipe(&recipe)?;
    assert_eq!(names(&pool.sources), ["a.jsonl", "b.jsonl"]);
    assert!(pool.options.strict && pool.options.checks_domain);
    assert_eq!(pool.options.limits.min_characters, 3);
    assert_eq!(pool.options.limits.max_bytes, 100_000_000);
    fs::write(&recipe, format!("[cells]\nclusters = \"c.json\"\n{rest}"))?;
    assert!(!Pool::of_recipe(&recipe)?.options.checks_domain);
    for (text, said) in [
        ("strict = true", "`sources` is empty; need at least one"),
        ("[[sources]]\nname = \"x\"\npath = []", "unknown field `path`"),
        ("[limits]\nmax = 3\n", "unknown field `max`"),
    ] {
        fs::write(&recipe, text)?;
        let message = chain(&Pool::of_recipe(&recipe).expect_err(said));
        assert!(message.contains("recipe") && message.contains(said), "{message}");
    }
    let files = [folder.path("data/*.jsonl").display().to_string()];
    let pool = Pool::of_files(&files)?;
    assert_eq!(pool.sources.len(), 2);
    assert!(pool.sources[0].name().ends_with("data/a.jsonl") && !pool.options.strict);
    Ok(())
}

#[test]
fn what_a_recipe_makes_of_a_file_is_part_of_a_store() -> Test {
    let folder = with_files(&["a.jsonl"]);
    let source = |config: SourceConfig| {
        find_sources(&[config], folder.path("")).map(|mut found| found.remove(0))
    };
    assert_eq!(Source::file("a").meaning_digest(), None);
    assert_eq!(source(config(&["a.jsonl"]))?.meaning_digest(), None);
    let one = source(SourceConfig { quality: Some(1), ..config(&["a.jsonl"]) })?;
    let two = source(SourceConfig { quality: Some(2), ..config(&["*.jsonl"]) })?;
    let again = SourceConfig { name: "web".to_owned(), quality: Some(2), ..config(&["a*"]) };
    assert!(one.meaning_digest().is_some() && one.meaning_digest() != two.meaning_digest());
    assert_eq!(source(again)?.meaning_digest(), two.meaning_digest());
    let tokenizer = Tokenizer::shipped()?;
    let build = |source| {
        build_or_open(&[source], &tokenizer, DocumentMarks::default(), folder.path("cache"))
    };
    let (first, _) = build(one)?;
    let (second, origin) = build(two)?;
    assert_eq!(origin, StoreOrigin::Built);
    assert_eq!([first.cells()[0].name(), second.cells()[0].name()], ["d/q1", "d/q2"]);
    Ok(())
}
