use std::fs;

use fulmar_data::{
    DocumentMarks, NewDocument, Origin, Source, StoreOrigin, Tokenizer, build_or_open, build_store,
};

use crate::fixture::{Folder, Test, corpus, line, store_of};

#[test]
fn every_document_is_found_again_with_its_bytes_and_id() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let tokenizer = Tokenizer::shipped()?;
    store.require_tokenizer(tokenizer.digest())?;
    assert_eq!(store.cell_names(), ["prose/q4", "verse/q1", "verse/q3"]);
    assert_eq!(store.manifest().num_documents(), 60);
    let ledger = store.manifest().sources[0].ledger;
    assert!(ledger.closes());
    assert_eq!(ledger.text_bytes, store.manifest().source_bytes());
    assert_eq!(store.manifest().sources[0].num_tokens, store.manifest().num_tokens());
    let mut decoded = 0;
    for value in corpus().lines().map(serde_json::from_str::<serde_json::Value>) {
        let value = value?;
        let name = format!("{}/q{}", value["domain"].as_str().unwrap_or(""), value["quality"]);
        let cell = store.cells().iter().find(|cell| cell.name() == name).ok_or("no such cell")?;
        let document = (0..cell.num_documents())
            .find(|d| cell.document_id(*d) == value["id"].as_str().unwrap_or(""))
            .ok_or("no such document")?;
        let text = value["text"].as_str().unwrap_or("");
        let range = cell.document_range(document);
        let mut tokens = Vec::new();
        cell.read_tokens(range.clone(), &mut tokens);
        assert_eq!(tokens[0], tokenizer.bos_id());
        assert_eq!(tokens.last(), Some(&tokenizer.eos_id()));
        assert_eq!(tokenizer.decode(&tokens)?, text);
        assert_eq!(cell.source_bytes(document), text.len() as u64);
        assert_eq!(cell.document_at(range.start), document);
        assert_eq!(cell.document_at(range.end - 1), document);
        decoded += 1;
    }
    assert_eq!(decoded, 60);
    Ok(())
}

/// All files of a store, as one digest.
fn bytes_of(folder: &Folder, name: &str) -> Vec<Vec<u8>> {
    let cells = ["prose/q4", "verse/q1", "verse/q3"].map(|cell| format!("{cell}/00000.tokens"));
    let files = cells.into_iter().chain(["store.json".to_owned(), "tokenizer.json".to_owned()]);
    files.map(|file| fs::read(folder.path(name).join(file)).expect("the file is there")).collect()
}

#[test]
fn a_store_has_the_same_bytes_with_1_and_4_threads() -> Test {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", corpus());
    for threads in [1, 4] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let tokenizer = Tokenizer::shipped()?;
        let out = folder.path(&format!("store{threads}"));
        let marks = DocumentMarks::default();
        pool.install(|| build_store(std::slice::from_ref(&source), &tokenizer, marks, out))?;
    }
    assert_eq!(bytes_of(&folder, "store1"), bytes_of(&folder, "store4"));
    Ok(())
}

#[test]
fn marks_are_as_asked() -> Test {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", line("a", "some text", "d", 1));
    let tokenizer = Tokenizer::shipped()?;
    let text = tokenizer.encode("some text")?;
    let (bos_id, eos_id) = (tokenizer.bos_id(), tokenizer.eos_id());
    for (bos, eos) in [(true, true), (true, false), (false, true), (false, false)] {
        let out = folder.path(&format!("store-{bos}-{eos}"));
        let marks = DocumentMarks { bos, eos };
        let store = build_store(std::slice::from_ref(&source), &tokenizer, marks, out)?;
        let mut tokens = Vec::new();
        store.cells()[0].read_tokens(0..store.cells()[0].num_tokens(), &mut tokens);
        let mut expected = text.clone();
        expected.splice(0..0, bos.then_some(bos_id));
        expected.extend(eos.then_some(eos_id));
        assert_eq!(tokens, expected);
    }
    Ok(())
}

#[test]
fn a_large_vocabulary_is_stored_in_four_bytes() -> Test {
    let folder = Folder::new();
    let tokenizer = Tokenizer::shipped()?;
    let mut entry = fulmar_data::TokenizerEntry::new(&tokenizer, DocumentMarks::default());
    entry.vocab_size = 128_256;
    let mut writer = fulmar_data::StoreWriter::create(folder.path("store"), entry)?;
    let document = |id, tokens| NewDocument { id, source: 0, record: 1, source_bytes: 9, tokens };
    let tokens = [0, 65_535, 65_536, 128_255, 1];
    let cell = "d/q1".parse()?;
    writer.append(&cell, &document("a", &tokens))?;
    let error = writer.append(&cell, &document("b", &[128_256])).expect_err("the id is too large");
    assert!(error.to_string().contains("document `b`: token id 128256"), "{error}");
    let store = writer.finish(Origin::default())?;
    let mut found = Vec::new();
    store.cells()[0].read_tokens(0..5, &mut found);
    assert_eq!(found, tokens);
    Ok(())
}

#[test]
fn the_cache_opens_what_it_built_and_keeps_other_sources_apart() -> Test {
    let folder = Folder::new();
    let tokenizer = Tokenizer::shipped()?;
    let cache = folder.path("cache");
    let source = folder.source("x.jsonl", corpus());
    let build = |source: &Source, marks| {
        build_or_open(std::slice::from_ref(source), &tokenizer, marks, &cache)
    };
    let (first, origin) = build(&source, DocumentMarks::default())?;
    assert_eq!(origin, StoreOrigin::Built);
    let (second, origin) = build(&source, DocumentMarks::default())?;
    assert_eq!(origin, StoreOrigin::Opened);
    assert_eq!(first.manifest(), second.manifest());
    let (_, origin) = build(&source, DocumentMarks { bos: false, eos: true })?;
    assert_eq!(origin, StoreOrigin::Built);
    let source = folder.source("x.jsonl", corpus() + &line("new", "more", "verse", 1));
    let (third, origin) = build(&source, DocumentMarks::default())?;
    assert_eq!(origin, StoreOrigin::Built);
    assert_eq!(third.manifest().num_documents(), 61);
    assert_eq!(fs::read_dir(&cache)?.count(), 3);
    Ok(())
}

#[test]
fn two_builders_of_one_cache_both_get_the_store() -> Test {
    let folder = Folder::new();
    let tokenizer = Tokenizer::shipped()?;
    let source = folder.source("x.jsonl", corpus());
    let build = || {
        let marks = DocumentMarks::default();
        build_or_open(std::slice::from_ref(&source), &tokenizer, marks, folder.path("cache"))
    };
    let stores = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(build)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<_>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?;
    assert!(stores.iter().all(|(store, _)| store.manifest() == stores[0].0.manifest()));
    assert_eq!(fs::read_dir(folder.path("cache"))?.count(), 1);
    Ok(())
}
