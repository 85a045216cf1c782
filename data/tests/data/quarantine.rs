//! Lenient reading: what is left out, why, and where it lies.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use fulmar_data::{
    DocumentReader, Ledger, Limits, Quarantine, ReadOptions, Reason, Reject, Scalar, SourceConfig,
    find_sources,
};

use crate::fixture::{Folder, Test, gzip, line, read_all as read, zstd};

fn lenient(limits: Limits) -> ReadOptions {
    ReadOptions { limits, ..ReadOptions::default() }
}

#[test]
fn every_bad_line_is_left_out_with_reason_byte_and_raw_record() {
    let folder = Folder::new();
    // Line, offset of the fault within it, reason, evidence.
    let bad: [(&[u8], u64, Reason, &str); 10] = [
        (b"{\"text\": \"unclosed", 17, Reason::Malformed, "EOF while parsing a string"),
        (b"text", 1, Reason::Malformed, "expected ident"),
        (b"  [1, 2]", 0, Reason::Malformed, "starts with `[`, need an object"),
        (b"{\"text\":\"a\xffb\"}", 10, Reason::InvalidUtf8, "byte 10 of the line"),
        (br#"{"text":"a\ud800b"}"#, 16, Reason::Malformed, "unexpected end of hex escape"),
        (br#"{"text":"\udc00"}"#, 14, Reason::Malformed, "lone leading surrogate"),
        (b"{\"text\":null}", 0, Reason::Malformed, "no `text`"),
        (b"{\"text\":[\"a\"]}", 0, Reason::Malformed, "need a string"),
        (b"{\"text\":\"a\",\"text\":\"b\"}", 22, Reason::Malformed, "`text` is there twice"),
        (b"{\"text\":\"\"}", 0, Reason::Empty, "the text is empty"),
    ];
    let mut jsonl = "\u{feff}".to_owned().into_bytes();
    let mut starts = Vec::new();
    for (index, (line, ..)) in bad.iter().enumerate() {
        jsonl.extend(format!("{{\"text\":\"good {index}\"}}\r\n\n").bytes());
        starts.push(jsonl.len() as u64);
        jsonl.extend(*line);
        jsonl.push(b'\n');
    }
    for (name, bytes) in
        [("x.jsonl", jsonl.clone()), ("x.jsonl.gz", gzip(&jsonl)), ("x.jsonl.zst", zstd(&jsonl))]
    {
        let source = folder.source(name, bytes);
        let (documents, rejects, ledger) = read(&source, ReadOptions::default());
        assert_eq!(documents.len(), 10);
        assert_eq!(documents[9].text, "good 9");
        assert_eq!((ledger.lines, ledger.blank_lines, ledger.malformed), (30, 10, 8));
        assert_eq!((ledger.invalid_utf8, ledger.empty), (1, 1));
        for (index, (line, offset, reason, said)) in bad.iter().enumerate() {
            let Reject { file, record, byte, reason: found, evidence, raw, raw_bytes } =
                &rejects[index];
            assert_eq!((file.as_str(), *record), (source.name(), 3 * index as u64 + 3));
            assert_eq!((found, *byte), (reason, starts[index] + offset), "{evidence}");
            assert!(evidence.contains(said), "{evidence:?} lacks {said:?}");
            assert_eq!((raw.strip_suffix(b"\n"), *raw_bytes), (Some(*line), raw.len() as u64));
        }
    }
}

#[test]
fn half_a_surrogate_pair_in_a_field_that_nobody_reads_does_no_harm() {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", br#"{"title":"\ud800","text":"\ud83d\ude00"}"#);
    let (documents, _, _) = read(&source, ReadOptions::default());
    assert_eq!(documents[0].text, "😀");
}

#[test]
fn strict_reading_stops_where_lenient_reading_leaves_out() {
    let folder = Folder::new();
    let jsonl = line("a", "b", "d", 0) + "{\"text\":\"\"}\n{\"text\":\"\\ud800\"}\n" + "never read";
    let mut reader =
        DocumentReader::open(&folder.source("x.jsonl", jsonl)).expect("the file is there");
    assert_eq!(reader.next().expect("a document").expect("a good one").text, "b");
    let message = reader.next().expect("an error").expect_err("a bad line").to_string();
    assert!(message.contains("x.jsonl` line 3: not a JSON object"), "{message}");
    assert!(reader.next().is_none());
}

#[test]
fn texts_beyond_the_limits_are_left_out_in_strict_mode_too() {
    let folder = Folder::new();
    let texts = ["é", "éé", "ééé", "éééé"];
    let jsonl: String = texts.iter().map(|text| line("a", text, "d", 0)).collect();
    let source = folder.source("x.jsonl", jsonl);
    let limits = Limits { max_bytes: 6, min_characters: 2 };
    let (documents, rejects, ledger) =
        read(&source, ReadOptions { strict: true, ..lenient(limits) });
    let kept: Vec<&str> = documents.iter().map(|d| d.text.as_str()).collect();
    assert_eq!(kept, ["éé", "ééé"]);
    assert_eq!((ledger.too_long, ledger.rule), (1, 1));
    assert_eq!(rejects[0].evidence, "1 characters; `limits.min_characters` is 2");
    assert_eq!(rejects[1].evidence, "8 bytes; `limits.max_bytes` is 6");
}

#[test]
fn a_line_that_no_text_within_the_limit_needs_is_passed_over_without_being_held() {
    let folder = Folder::new();
    // The limit of a line is 64 MiB and 6 bytes: one line of a megabyte more than that.
    let bytes = (65 << 20) as u64;
    let mut jsonl = vec![b'x'; bytes as usize];
    jsonl.extend(b"\n{\"text\":\"a\"}\n");
    let source = folder.source("x.jsonl", jsonl);
    let limits = Limits { max_bytes: 1, min_characters: 1 };
    let (documents, rejects, _) = read(&source, lenient(limits));
    assert_eq!((documents[0].record, documents[0].text.as_str()), (2, "a"));
    let Reject { reason, raw, raw_bytes, evidence, .. } = &rejects[0];
    assert_eq!((*reason, raw.len(), *raw_bytes), (Reason::TooLong, 1 << 10, bytes + 1));
    assert!(evidence.contains(&format!("a line of {} bytes", bytes + 1)), "{evidence}");
}

#[test]
fn documents_of_0_1_and_50_million_characters() {
    let folder = Folder::new();
    let long = "é".repeat(50_000_000);
    let jsonl = [line("0", "", "d", 0), line("1", "a", "d", 0), line("50", &long, "d", 0)].concat();
    let source = folder.source("x.jsonl", jsonl);
    // Just the default limit of bytes.
    let (documents, rejects, ledger) = read(&source, ReadOptions::default());
    let lengths: Vec<usize> = documents.iter().map(|d| d.text.chars().count()).collect();
    assert_eq!((lengths, rejects.len()), (vec![1, 50_000_000], 1));
    assert_eq!((ledger.empty, ledger.kept, ledger.text_bytes), (1, 2, 100_000_001));
    assert!(documents[1].text == long);
    let (documents, rejects, _) =
        read(&source, lenient(Limits { max_bytes: 99_999_999, min_characters: 1 }));
    assert_eq!((documents.len(), rejects[1].reason), (1, Reason::TooLong));
}

#[test]
fn a_rule_leaves_out_records_of_other_values() -> Test {
    let folder = Folder::new();
    let jsonl = [
        r#"{"text":"1","meta":{"language":"en","year":1999,"ok":true}}"#,
        r#"{"text":"2","meta":{"language":"de","year":1999,"ok":true}}"#,
        r#"{"text":"3","meta":{"language":"en","year":1999.0,"ok":true}}"#,
        r#"{"text":"4","meta":{"language":"en","year":2000,"ok":true}}"#,
        r#"{"text":"5","meta":"none"}"#,
        r#"{"text":"6","meta":{"language":"fr","year":1998,"ok":true}}"#,
        r#"{"text":"7","meta":{"language":"fr","year":1998,"ok":"true"}}"#,
    ];
    folder.source("x.jsonl", jsonl.join("\n"));
    let rules = [
        ("meta.language", vec![Scalar::Text("en".to_owned()), Scalar::Text("fr".to_owned())]),
        ("meta.year", vec![Scalar::Integer(1999), Scalar::Number(1998.0)]),
        ("meta.ok", vec![Scalar::Bool(true)]),
    ];
    let config = SourceConfig {
        name: "books".to_owned(),
        paths: vec!["x.jsonl".to_owned()],
        require: rules.into_iter().map(|(name, values)| (name.to_owned(), values)).collect(),
        ..SourceConfig::default()
    };
    let source = &find_sources(&[config], folder.path(""))?[0];
    let (documents, rejects, ledger) = read(source, ReadOptions::default());
    let texts: Vec<&str> = documents.iter().map(|d| d.text.as_str()).collect();
    assert_eq!((texts, ledger.rule), (vec!["1", "3", "6"], 4));
    let evidence: Vec<&str> = rejects.iter().map(|reject| reject.evidence.as_str()).collect();
    let expected = [
        "`meta.language` is \"de\"; need \"en\" or \"fr\"",
        "`meta.year` is 2000; need 1999 or 1998",
        "`meta.language` is nothing; need \"en\" or \"fr\"",
        "`meta.ok` is \"true\"; need true",
    ];
    assert_eq!(evidence, expected);
    Ok(())
}

#[test]
fn columns_are_found_by_dotted_paths_and_named_ones_are_needed() -> Test {
    let folder = Folder::new();
    let jsonl = [
        r#"{"content":{"body":"1","x":[{}]},"doc_id":7,"topic":"a","level":2.0,"s":1,"v":[1,2.5]}"#,
        r#"{"content.body":"2","doc_id":"b","topic":"a","level":0,"s":0.5,"v":[],"text":"no"}"#,
        r#"{"content":null,"doc_id":"c","topic":"a","level":0,"s":0.5,"v":[1]}"#,
        r#"{"content":{"body":"4"},"doc_id":null,"topic":"a","level":0,"s":0.5,"v":[1]}"#,
        r#"{"content":{"body":"5"},"doc_id":"e","topic":"a","level":-1,"s":0.5,"v":[1]}"#,
        r#"{"content":{"body":"6"},"doc_id":"f","topic":"a","level":0,"s":"x","v":[1]}"#,
        r#"{"content":{"body":"7"},"doc_id":"g","topic":"a","level":0,"s":0.5,"v":[1,"x"]}"#,
        r#"{"content":{"body":"8"},"doc_id":"h","topic":"a/b","level":0,"s":0.5,"v":[1]}"#,
        r#"{"content":{"body":"9"},"doc_id":"i","topic":"a","level":0,"s":0.5}"#,
    ];
    folder.source("x.jsonl", jsonl.join("\n"));
    let mut config = SourceConfig {
        name: "books".to_owned(),
        paths: vec!["x.jsonl".to_owned()],
        ..SourceConfig::default()
    };
    let columns = &mut config.columns;
    for (column, name) in [
        (&mut columns.text, "content.body"),
        (&mut columns.id, "doc_id"),
        (&mut columns.domain, "topic"),
        (&mut columns.quality, "level"),
        (&mut columns.source, "doc_id"),
        (&mut columns.score, "s"),
        (&mut columns.embedding, "v"),
    ] {
        *column = Some(name.to_owned());
    }
    let source = &find_sources(&[config], folder.path(""))?[0];
    let (documents, rejects, _) = read(source, ReadOptions::default());
    let found: Vec<_> = documents
        .iter()
        .map(|d| (d.text.as_str(), d.id.as_str(), d.origin.as_str(), d.cell().to_string(), d.score))
        .collect();
    let expected = [
        ("1", "7", "7", "a/q2".to_owned(), Some(1.0)),
        ("2", "b", "b", "a/q0".to_owned(), Some(0.5)),
    ];
    assert_eq!(found, expected);
    assert_eq!(documents[0].embedding, Some(vec![1.0, 2.5]));
    let said = [
        "no `content.body`",
        "no `doc_id`",
        "`level` has the wrong type or range: found -1",
        "`s` has the wrong type or range: found \"x\", need a finite number",
        "`v` has the wrong type or range: found a list of other things",
        "document `h`: `domain` is \"a/b\"",
        "no `v`",
    ];
    for (reject, said) in rejects.iter().zip(said) {
        assert_eq!(reject.reason, Reason::Malformed);
        assert!(reject.evidence.contains(said), "{} lacks {said}", reject.evidence);
    }
    assert_eq!(rejects.len(), said.len());
    // Where something else chooses the cell, the domain decides nothing.
    let unchecked = ReadOptions { checks_domain: false, ..ReadOptions::default() };
    assert_eq!(read(source, unchecked).0.len(), 3);
    Ok(())
}

#[test]
fn the_quarantine_file_has_a_line_for_each_reject_and_reads_back() -> Test {
    let folder = Folder::new();
    let bad_text = "x".repeat(5_000);
    let mut jsonl = line("long", &bad_text, "d", 0).into_bytes();
    jsonl.extend(b"{\"text\":\"\xff\"}\n{\"text\":\"good\"}\nno json \xc3\xa9\n");
    let source = folder.source("x.jsonl", jsonl);
    let path = folder.path("quarantine.jsonl");
    let quarantine = Arc::new(Mutex::new(Quarantine::create(&path)?));
    let options = lenient(Limits { max_bytes: 4_999, min_characters: 1 });
    let reader = DocumentReader::open_with(&source, options)?;
    let mut reader = reader.rejects_to(Box::new(Arc::clone(&quarantine)));
    assert_eq!(reader.by_ref().count(), 1);
    let counts = quarantine.lock().expect("not poisoned").finish()?;
    let expected = Ledger { documents: 3, too_long: 1, invalid_utf8: 1, malformed: 1, ..counts };
    assert_eq!(counts, expected);
    let ledger = reader.ledger();
    assert_eq!(ledger.documents, counts.documents + ledger.kept);
    let text = fs::read_to_string(&path)?;
    let read_back: Vec<Reject> =
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(read_back, read(&source, options).1);
    assert_eq!((read_back[0].raw.len(), read_back[0].raw_bytes > 5_000), (1_024, true));
    assert_eq!(read_back[1].raw, b"{\"text\":\"\xff\"}\n");
    let second: serde_json::Value = serde_json::from_str(text.lines().nth(1).expect("a line"))?;
    assert_eq!(second["raw_base64"], "eyJ0ZXh0Ijoi/yJ9Cg==");
    assert_eq!(second["raw"], serde_json::Value::Null);
    let third: serde_json::Value = serde_json::from_str(text.lines().nth(2).expect("a line"))?;
    assert_eq!(third["raw"], "no json é\n");
    assert!(Quarantine::create(&path).is_err(), "an old file is never overwritten");
    Ok(())
}

#[test]
fn a_text_file_that_is_not_utf8_is_left_out_with_its_byte() -> Test {
    let folder = Folder::new();
    folder.source("a.txt", b"abc\xe9def");
    folder.source("b.txt", "longer than others");
    folder.source("c.txt", "good");
    let sources = find_sources(
        &[SourceConfig {
            name: "texts".to_owned(),
            paths: vec!["*.txt".to_owned()],
            ..SourceConfig::default()
        }],
        folder.path(""),
    )?;
    let (documents, rejects, ledger) =
        read(&sources[0], lenient(Limits { max_bytes: 10, min_characters: 1 }));
    assert_eq!((sources[0].name(), documents[0].id.as_str()), (".", "c.txt"));
    assert_eq!((ledger.invalid_utf8, ledger.too_long), (1, 1));
    assert_eq!((rejects[0].file.as_str(), rejects[0].byte), ("a.txt", 3));
    assert_eq!(rejects[0].raw, b"abc\xe9def");
    assert_eq!(rejects[1].evidence, "18 bytes; `limits.max_bytes` is 10");
    let strict = DocumentReader::open(&sources[0])?.next().expect("an error");
    let message = strict.expect_err("not UTF-8").to_string();
    assert!(message.contains("`a.txt`: invalid UTF-8 at byte 3 of the file"), "{message}");
    Ok(())
}

#[test]
fn a_reader_can_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<DocumentReader>();
}
