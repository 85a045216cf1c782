use std::{fs, sync::Arc, time::Duration};

use fulmar_data::{
    Build, BuildRecipe, BuildSettings, DataError, DocumentMarks, Loader, MixtureConfig, Reason,
    Reject, RowLengths, RowSource, ShardLimits, Source, Store, Tokenizer, build_store,
};

use crate::{
    fixture::{Folder, Test, chain, corpus, line, store_of},
    rules::{Numbered, Without},
};

#[test]
fn documents_that_a_judge_leaves_out_are_counted_and_listed_and_the_ledger_closes() -> Test {
    let folder = Folder::new();
    let sources = vec![
        folder.source("x.jsonl", corpus() + "\n" + &line("none", "", "verse", 1)),
        folder.source("y.jsonl", line("doc100", "é", "verse", 1)),
    ];
    let tokenizer = Tokenizer::shipped()?;
    let build = Build::new(sources, &tokenizer, DocumentMarks::default())
        .judge(Box::new(Without("7")))
        .judge(Box::new(Without("57")))
        .assign(Box::new(Numbered));
    let built = build.run(folder.path("store"))?;
    let manifest = built.store.manifest();
    // Of doc0 to doc59 six have a 7; none is seen by the second judge.
    let ledger = manifest.sources[0].ledger;
    assert!(ledger.closes());
    let counts = (ledger.lines, ledger.blank_lines, ledger.documents, ledger.empty);
    assert_eq!(counts, (62, 1, 61, 1));
    assert_eq!((ledger.duplicate, ledger.kept), (6, 54));
    assert_eq!(manifest.sources[1].ledger.text_bytes, 2);
    let (bytes, tokens) = manifest.sources.iter().fold((0, 0), |(bytes, tokens), source| {
        (bytes + source.ledger.text_bytes, tokens + source.num_tokens)
    });
    assert_eq!((bytes, tokens), (manifest.source_bytes(), manifest.num_tokens()));
    assert_eq!((manifest.quarantined, manifest.num_documents(), built.tokenised), (7, 55, 55));
    assert_eq!(manifest.rules, ["without 7", "without 57", "numbered"]);
    let lines = fs::read_to_string(folder.path("store/quarantine.jsonl"))?;
    let first: Reject = serde_json::from_str(lines.lines().next().ok_or("no line")?)?;
    assert_eq!((first.record, first.reason), (8, Reason::Duplicate));
    assert_eq!(first.evidence, "7 in doc7");
    // The empty document too, which its reader leaves out.
    assert_eq!(lines.lines().count(), 7);
    let names = built.store.cell_names();
    assert!(names.iter().all(|name| name.parse::<fulmar_data::CellKey>().is_ok()), "{names:?}");
    assert!(names[0].starts_with("c00q") && folder.path("store").join(&names[0]).is_dir());
    let table = manifest.account();
    assert!(table.contains("duplicate") && !table.contains("too_long"), "{table}");
    assert!(table.lines().last().is_some_and(|row| row.starts_with("all 2 files")), "{table}");
    Ok(())
}

#[test]
fn a_cell_of_many_shards_reads_like_one_of_one() -> Test {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", corpus());
    let tokenizer = Tokenizer::shipped()?;
    let with = |name: &str, tokens, documents| -> Result<Arc<Store>, DataError> {
        let limits = ShardLimits { tokens, documents };
        let build = Build::new(vec![source.clone()], &tokenizer, DocumentMarks::default());
        Ok(Arc::new(build.shards(limits).run(folder.path(name))?.store))
    };
    let one = with("one", 1 << 28, 1 << 20)?;
    assert!(one.cells().iter().all(|cell| cell.entry().shards.len() == 1));
    let lengths = RowLengths::constant(64);
    let rows_of = |store: &Arc<Store>| -> Result<RowSource, DataError> {
        let mixture = MixtureConfig::proportional(store, 64, 100);
        RowSource::new(store.clone(), &mixture, &lengths, 3)
    };
    let expected = rows_of(&one)?;
    for (name, tokens, documents) in
        [("small", 300, 1 << 20), ("each", 1, 9), ("three", 1 << 28, 3)]
    {
        let many = with(name, tokens, documents)?;
        for (cell, same) in many.cells().iter().zip(one.cells()) {
            let entry = cell.entry();
            assert!(entry.shards.len() > 2, "{name}: {}", entry.shards.len());
            assert!(entry.shards.iter().all(|shard| shard.num_documents <= documents));
            let fits = |shard: &fulmar_data::ShardEntry| shard.num_tokens <= tokens;
            assert!(entry.shards.iter().all(|shard| fits(shard) || shard.num_documents == 1));
            assert_eq!(cell.num_tokens(), same.num_tokens());
            for document in 0..cell.num_documents() {
                assert_eq!(cell.document_range(document), same.document_range(document));
                assert_eq!(cell.document_id(document), same.document_id(document));
                assert_eq!(cell.source_bytes(document), same.source_bytes(document));
                assert_eq!(cell.document_origin(document), same.document_origin(document));
            }
            for token in 0..cell.num_tokens() {
                assert_eq!(cell.document_at(token), same.document_at(token), "{name} {token}");
            }
            assert_eq!(cell.length_histogram(), same.length_histogram());
        }
        let rows = rows_of(&many)?;
        for row in 0..300 {
            assert_eq!(rows.row(row), expected.row(row), "{name}");
        }
    }
    Ok(())
}

#[test]
fn a_document_is_found_again_in_the_file_it_came_from() -> Test {
    let folder = Folder::new();
    let tokenizer = Tokenizer::shipped()?;
    let first = "\n".to_owned() + &line("a", "one", "d", 1) + &line("b", "two", "e", 1);
    let second =
        line("c", "three", "d", 1) + &line("d", "four", "e", 1) + &line("e", "five", "d", 1);
    let sources = [folder.source("x.jsonl", first), folder.source("y.jsonl", second)];
    let store = build_store(&sources, &tokenizer, DocumentMarks::default(), folder.path("store"))?;
    let cell = &store.cells()[0];
    let origins: Vec<(u32, u64)> = (0..3).map(|document| cell.document_origin(document)).collect();
    assert_eq!(origins, [(0, 2), (1, 1), (1, 3)]);
    let spans = &cell.entry().shards[0].spans;
    let said = spans.iter().map(|s| (s.source, s.first_record, s.last_record, s.documents));
    assert_eq!(said.collect::<Vec<_>>(), [(0, 2, 2, 1), (1, 1, 3, 2)]);
    Ok(())
}

#[test]
fn an_error_publishes_nothing_and_the_whole_parts_stay_for_the_next_try() -> Test {
    let folder = Folder::new();
    let tokenizer = Tokenizer::shipped()?;
    let bad = folder.source("bad.jsonl", corpus() + "{\"text\":");
    let settings = BuildSettings { part_bytes: 2_000, ..BuildSettings::default() };
    let run = |sources: Vec<Source>, fresh| {
        let build = Build::new(sources, &tokenizer, DocumentMarks::default());
        build.settings(settings).fresh(fresh).run(folder.path("store"))
    };
    for _ in 0..2 {
        let error = run(vec![bad.clone()], false).expect_err("the last line is bad");
        assert!(error.to_string().contains("bad.jsonl` line 61"), "{error}");
        assert!(!folder.path("store").exists());
        assert!(folder.path(".store.partial/parts/00000.json").exists());
    }
    // Parts of other sources are not taken for those of this build, nor thrown away unasked.
    let good = folder.source("good.jsonl", corpus());
    let error = run(vec![good.clone()], false).expect_err("parts of another build");
    assert!(error.to_string().contains(".store.partial` holds"), "{error}");
    let built = run(vec![good.clone()], true)?;
    assert_eq!((built.tokenised, built.taken_over), (60, 0));
    assert!(!folder.path(".store.partial").exists());
    // The same again finds the store, and clears away what one left who was killed when it was
    // published; something else in its place is left alone.
    fs::create_dir_all(folder.path(".store.partial/parts"))?;
    let again = run(vec![good], false)?;
    assert!(!folder.path(".store.partial").exists());
    assert!(again.opened && again.tokenised == 0);
    assert!(matches!(run(vec![bad], true), Err(DataError::StoreExists { .. })));
    Ok(())
}

#[test]
fn what_decides_the_contents_is_in_the_digest_and_what_does_not_is_not() -> Test {
    let folder = Folder::new();
    let (x, y) = (folder.source("x.jsonl", corpus()), folder.source("y.jsonl", corpus()));
    let tokenizer = Tokenizer::shipped()?;
    let of = |sources: &[&Source], marks| {
        Build::new(sources.iter().map(|&source| source.clone()).collect(), &tokenizer, marks)
    };
    let marks = DocumentMarks::default();
    let plain = of(&[&x], marks).digest()?;
    let settings = BuildSettings { part_bytes: 1, in_flight_bytes: 1 };
    assert_eq!(of(&[&x], marks).settings(settings).fresh(true).digest()?, plain);
    let mut others = vec![
        plain,
        of(&[&y], marks).digest()?,
        of(&[&x, &y], marks).digest()?,
        of(&[&y, &x], marks).digest()?,
        of(&[&x], DocumentMarks { bos: false, eos: true }).digest()?,
        of(&[&x], marks).judge(Box::new(Without("7"))).digest()?,
        of(&[&x], marks).assign(Box::new(Numbered)).digest()?,
        of(&[&x], marks).shards(ShardLimits { tokens: 9, documents: 9 }).digest()?,
    ];
    others.sort();
    others.dedup();
    assert_eq!(others.len(), 8);
    Ok(())
}

/// What may happen to a shard while a store is in use.
type Harm = (&'static str, fn(&std::path::Path) -> std::io::Result<()>);

#[test]
fn a_shard_removed_or_altered_in_mid_run_ends_the_loader_by_its_name() -> Test {
    let harms: [Harm; 4] = [
        ("cannot find, in the middle of reading,", |path| fs::remove_file(path)),
        ("was replaced by another file", |path| {
            let bytes = fs::read(path)?;
            fs::write(path.with_extension("new"), bytes)?;
            fs::rename(path.with_extension("new"), path)
        }),
        ("changed its size", |path| {
            std::io::Write::write_all(&mut fs::OpenOptions::new().append(true).open(path)?, b"!")
        }),
        ("was written to", |path| {
            let bytes = fs::read(path)?;
            std::thread::sleep(Duration::from_millis(20));
            std::io::Write::write_all(&mut fs::OpenOptions::new().write(true).open(path)?, &bytes)
        }),
    ];
    for (said, harm) in harms {
        let folder = Folder::new();
        let store = store_of(&folder, "store", &corpus());
        store.check_unchanged()?;
        let mixture = MixtureConfig::proportional(&store, 64, 100);
        let rows = RowSource::new(store.clone(), &mixture, &RowLengths::constant(64), 0)?;
        let mut loader = Loader::new(Arc::new(rows), 4, 0)?;
        assert!(loader.next().is_some_and(|batch| batch.is_ok()));
        harm(&folder.path("store/verse/q1/00000.tokens"))?;
        let message = chain(&store.check_unchanged().expect_err(said));
        assert!(message.contains(said) && message.contains("q1/00000.tokens"), "{message}");
        // Looked at once a second: the error comes within it, and ends the batches.
        let slow = loader.by_ref().inspect(|_| std::thread::sleep(Duration::from_millis(10)));
        let error = slow.take(500).find_map(Result::err).ok_or("no error in 5 seconds")?;
        assert!(chain(&error).contains("q1/00000.tokens"), "{}", chain(&error));
        assert!(loader.next().is_none());
    }
    Ok(())
}

#[test]
fn a_store_opened_without_verifying_finds_sizes_and_headers_at_once_and_the_rest_when_asked() -> Test
{
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let flip = |file: &str, at: usize| -> Test {
        let path = store.path().join(file);
        let mut bytes = fs::read(&path)?;
        bytes[at] ^= 4;
        fs::write(folder.path("altered"), bytes)?;
        Ok(fs::rename(folder.path("altered"), path)?)
    };
    flip("verse/q1/00000.tokens", 200)?;
    flip("tokenizer.json", 999)?;
    let opened = Store::open_unverified(store.path())?;
    let damage: Vec<String> = opened.damage().iter().map(ToString::to_string).collect();
    assert_eq!(damage.len(), 2, "{damage:?}");
    assert!(damage[0].contains("tokenizer.json") && damage[1].contains("q1/00000.tokens"));
    assert!(opened.verify().is_err() && Store::open(store.path()).is_err());
    assert!(opened.tokenizer().is_err());
    flip("verse/q1/00000.tokens", 20)?;
    let error = Store::open_unverified(store.path()).expect_err("the header is altered");
    assert!(error.to_string().contains("q1/00000.tokens`: its header was altered"), "{error}");
    Ok(())
}

#[test]
fn a_recipe_builds_what_its_paths_match_in_the_order_of_names() -> Test {
    let folder = Folder::new();
    fs::create_dir(folder.path("more"))?;
    folder.source("more/b.jsonl", line("b", "second", "d", 1));
    folder.source("more/a.jsonl", line("a", "first", "d", 1));
    folder.source("z.jsonl", line("z", "third", "d", 1));
    let recipe = "[marks]\nbos = false\n\
        [[sources]]\nname = \"more\"\npaths = [\"more/*.jsonl\"]\n\
        [[sources]]\nname = \"z\"\npaths = [\"z.jsonl\"]\n";
    fs::write(folder.path("recipe.toml"), recipe)?;
    let (recipe, base) = BuildRecipe::from_file(folder.path("recipe.toml"))?;
    let tokenizer = recipe.open_tokenizer(&base)?;
    let store = recipe.build(&base, &tokenizer)?.run(folder.path("store"))?.store;
    let cell = &store.cells()[0];
    let ids: Vec<_> = (0..3).map(|document| cell.document_id(document)).collect();
    assert_eq!(ids, ["a", "b", "z"]);
    assert!(!store.manifest().tokenizer.marks.bos);
    for (text, said) in [
        ("sources = []", "`sources` is empty"),
        ("[marks]\nbeginning = true", "beginning"),
        ("[[sources]]\nname = \"x\"\npaths = [\"absent/*.jsonl\"]", "absent/*.jsonl"),
        ("[[sources]]\nname = \"x\"\npaths = [\"a[\"]", "a["),
    ] {
        fs::write(folder.path("bad.toml"), text)?;
        let found = BuildRecipe::from_file(folder.path("bad.toml"))
            .and_then(|(recipe, base)| recipe.build(&base, &tokenizer).map(|_| ()));
        let message = chain(&found.expect_err(text));
        assert!(message.contains(said), "{message}");
    }
    Ok(())
}
