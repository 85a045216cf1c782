//! Parquet: every way to hold a string, nested columns, nulls, long texts, damage.

use std::{fs::File, sync::Arc};

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Float32Array,
    Float64Array, Int64Array, LargeStringArray, ListArray, RecordBatch, StringArray,
    StringViewArray, StructArray, UInt64Array,
    types::{Float32Type, Int32Type},
};
use arrow_schema::{DataType, Field};
use fulmar_data::{
    DataError, Document, DocumentReader, Ledger, Limits, ReadOptions, Reason, Reject, Scalar,
    Source, SourceConfig, find_sources,
};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding, ZstdLevel},
    file::{metadata::ParquetMetaDataReader, properties::WriterProperties},
};

use crate::fixture::{Folder, Test, corpus, gzip, read_all, zstd};

type Columns<'a> = Vec<(&'a str, ArrayRef)>;

fn write(folder: &Folder, name: &str, columns: Columns<'_>, properties: WriterProperties) {
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let file = File::create(folder.path(name)).expect("the folder is writable");
    let mut writer =
        ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a schema");
    writer.write(&batch).expect("memory");
    writer.close().expect("memory");
}

fn source(folder: &Folder, name: &str, columns: Columns<'_>) -> Source {
    write(folder, name, columns, WriterProperties::default());
    Source::file(folder.path(name))
}

fn texts(texts: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

/// Reads to the end; a table has no lines.
fn read(source: &Source, options: ReadOptions) -> (Vec<Document>, Vec<Reject>, Ledger) {
    let read = read_all(source, options);
    assert_eq!(read.2.lines, 0);
    read
}

fn texts_of(documents: &[Document]) -> Vec<&str> {
    documents.iter().map(|document| document.text.as_str()).collect()
}

#[test]
fn strings_are_read_however_their_writer_held_them() {
    let folder = Folder::new();
    let words = ["first", "zweites wörtchen, länger als zwölf bytes", "first", "4"];
    let kinds: [(&str, ArrayRef); 5] = [
        ("utf8", Arc::new(StringArray::from(words.to_vec()))),
        ("large_utf8", Arc::new(LargeStringArray::from(words.to_vec()))),
        ("utf8_view", Arc::new(StringViewArray::from(words.to_vec()))),
        ("dictionary", Arc::new(words.into_iter().collect::<DictionaryArray<Int32Type>>())),
        ("binary", Arc::new(BinaryArray::from(words.map(str::as_bytes).to_vec()))),
    ];
    let properties = [
        WriterProperties::builder(),
        WriterProperties::builder().set_dictionary_enabled(false),
        WriterProperties::builder().set_compression(Compression::SNAPPY),
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())),
        WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BYTE_ARRAY)
            .set_compression(Compression::LZ4_RAW),
        WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_LENGTH_BYTE_ARRAY)
            .set_compression(Compression::BROTLI(Default::default())),
        WriterProperties::builder().set_max_row_group_row_count(Some(1)),
        WriterProperties::builder().set_data_page_row_count_limit(1).set_write_batch_size(1),
    ];
    for (kind, column) in kinds {
        for properties in &properties {
            let properties = properties.clone().build();
            write(&folder, kind, vec![("text", Arc::clone(&column))], properties);
            let source = Source::file(folder.path(kind));
            let (documents, _, ledger) = read(&source, ReadOptions::STRICT);
            assert_eq!(texts_of(&documents), words, "{kind}");
            assert_eq!(documents[3].id, format!("{}:4", source.name()));
            assert_eq!((documents[3].record, ledger.documents), (4, 4));
        }
    }
}

#[test]
fn documents_are_the_same_from_every_format() {
    let folder = Folder::new();
    let jsonl = corpus();
    let plain = read_strictly(&folder.source("x.jsonl", &jsonl));
    assert_eq!(plain.len(), 60);
    let strings = |field: fn(&Document) -> &String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(plain.iter().map(field)))
    };
    let levels = UInt64Array::from_iter_values(plain.iter().map(|d| d.quality.into()));
    let columns: Columns<'_> = vec![
        ("id", strings(|d| &d.id)),
        ("text", strings(|d| &d.text)),
        ("domain", strings(|d| &d.domain)),
        ("quality", Arc::new(levels)),
    ];
    let facts = |documents: &[Document]| -> Vec<_> {
        let facts = |d: &Document| (d.id.clone(), d.text.clone(), d.cell(), d.record);
        documents.iter().map(facts).collect()
    };
    for other in [
        folder.source("x.jsonl.gz", gzip(jsonl.as_bytes())),
        folder.source("x.jsonl.zst", zstd(jsonl.as_bytes())),
        source(&folder, "x.parquet", columns),
    ] {
        assert_eq!(facts(&read_strictly(&other)), facts(&plain), "{}", other.name());
    }
}

fn read_strictly(source: &Source) -> Vec<Document> {
    let reader = DocumentReader::open(source).expect("opens");
    reader.collect::<Result<_, _>>().expect("good documents")
}

#[test]
fn nested_columns_are_reached_by_dotted_paths() -> Test {
    let folder = Folder::new();
    let body: ArrayRef = Arc::new(StringArray::from(vec![Some("1"), None, Some("3"), Some("4")]));
    let language = texts(&["en", "en", "de", "en"]);
    let inner = StructArray::from(vec![
        (Arc::new(Field::new("body", DataType::Utf8, true)), body),
        (Arc::new(Field::new("language", DataType::Utf8, false)), language),
    ]);
    let vectors: Vec<Option<Vec<Option<f32>>>> =
        [1.0, 2.0, 3.0, 4.0].map(|x| Some(vec![Some(x), Some(-x)])).to_vec();
    let fixed = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors.clone(), 2);
    let list = ListArray::from_iter_primitive::<Float32Type, _, _>(vectors);
    let embeddings: [ArrayRef; 2] = [Arc::new(fixed), Arc::new(list)];
    for (index, embedding) in embeddings.into_iter().enumerate() {
        let name = format!("{index}.parquet");
        let columns: Columns<'_> = vec![
            ("content", Arc::new(inner.clone())),
            ("n", Arc::new(Int64Array::from(vec![10, 11, 12, 13]))),
            ("level", Arc::new(UInt64Array::from(vec![0, 1, 2, 3]))),
            ("edu", Arc::new(Float64Array::from(vec![0.5, 1.5, 2.5, 3.5]))),
            ("vector", embedding),
            ("topic", texts(&["a", "b", "c", "d"])),
        ];
        source(&folder, &name, columns);
        let mut config =
            SourceConfig { name: "web".to_owned(), paths: vec![name], ..SourceConfig::default() };
        let columns = &mut config.columns;
        for (column, name) in [
            (&mut columns.text, "content.body"),
            (&mut columns.id, "n"),
            (&mut columns.domain, "topic"),
            (&mut columns.quality, "level"),
            (&mut columns.score, "edu"),
            (&mut columns.embedding, "vector"),
        ] {
            *column = Some(name.to_owned());
        }
        let english = vec![Scalar::Text("en".to_owned())];
        config.require.insert("content.language".to_owned(), english);
        let source = &find_sources(&[config], folder.path(""))?[0];
        let (documents, rejects, ledger) = read(source, ReadOptions::default());
        let last = &documents[1];
        assert_eq!(texts_of(&documents), ["1", "4"]);
        assert_eq!((last.id.as_str(), last.record, last.score), ("13", 4, Some(3.5)));
        assert_eq!(last.cell().to_string(), "d/q3");
        assert_eq!(last.embedding, Some(vec![4.0, -4.0]));
        assert_eq!((ledger.malformed, ledger.rule), (1, 1));
        assert_eq!(rejects[0].evidence, "the record has no `content.body`; every record needs one");
        let raw: serde_json::Value = serde_json::from_slice(&rejects[0].raw)?;
        assert_eq!((&raw["n"], &raw["content.body"]), (&11.into(), &serde_json::Value::Null));
        assert_eq!(rejects[1].evidence, "`content.language` is \"de\"; need \"en\"");
    }
    Ok(())
}

#[test]
fn nulls_and_values_of_other_types_are_faults_of_their_rows() {
    let folder = Folder::new();
    let quality = Int64Array::from(vec![Some(1), None, Some(-1), Some(1 << 40)]);
    let columns: Columns<'_> = vec![
        ("text", texts(&["a", "b", "c", "d"])),
        ("id", Arc::new(StringArray::from(vec![Some("x"), None, None, None]))),
        ("quality", Arc::new(quality)),
    ];
    let source = source(&folder, "x.parquet", columns);
    let (documents, rejects, _) = read(&source, ReadOptions::default());
    assert_eq!(texts_of(&documents), ["a", "b"]);
    assert_eq!((documents[0].id.as_str(), documents[1].quality), ("x", 0));
    assert_eq!((rejects[0].record, rejects[1].record), (3, 4));
    assert!(rejects[1].evidence.contains("found 1099511627776, need a whole number"));
    let strict = DocumentReader::open(&source).expect("opens").nth(2).expect("an error");
    let message = strict.expect_err("a bad level").to_string();
    assert!(message.contains("x.parquet` row 3: `quality` has the wrong type"), "{message}");

    let columns: Columns<'_> = vec![("text", Arc::new(BooleanArray::from(vec![true])))];
    let source = self::source(&folder, "y.parquet", columns);
    let (_, rejects, _) = read(&source, ReadOptions::default());
    assert!(rejects[0].evidence.contains("`text` has the wrong type or range: found true"));
}

#[test]
fn embeddings_that_are_null_or_hold_nulls_are_faults() -> Test {
    let folder = Folder::new();
    let rows = vec![
        Some(vec![Some(1.0)]),
        None,
        Some(vec![]),
        Some(vec![None]),
        Some(vec![Some(1.0), None]),
        Some(vec![Some(f32::NAN)]),
        Some(vec![Some(2.0), Some(3.0)]),
    ];
    let list = ListArray::from_iter_primitive::<Float32Type, _, _>(rows);
    let columns: Columns<'_> = vec![("text", texts(&["t"; 7])), ("v", Arc::new(list))];
    source(&folder, "x.parquet", columns);
    let mut config = SourceConfig {
        name: "web".to_owned(),
        paths: vec!["x.parquet".to_owned()],
        ..SourceConfig::default()
    };
    config.columns.embedding = Some("v".to_owned());
    let source = &find_sources(&[config], folder.path(""))?[0];
    let (documents, rejects, _) = read(source, ReadOptions::default());
    let records: Vec<u64> = documents.iter().map(|document| document.record).collect();
    assert_eq!((records, rejects.len()), (vec![1, 7], 5));
    assert_eq!(documents[1].embedding, Some(vec![2.0, 3.0]));
    Ok(())
}

#[test]
fn a_string_that_is_not_utf8_is_left_out_alone() {
    let folder = Folder::new();
    let values: Vec<&[u8]> = vec![b"good", b"bad \xff", b"also good"];
    let columns: Columns<'_> = vec![("text", Arc::new(BinaryArray::from(values)))];
    let source = source(&folder, "x.parquet", columns);
    let (documents, rejects, _) = read(&source, ReadOptions::default());
    assert_eq!(texts_of(&documents), ["good", "also good"]);
    let Reject { record, reason, evidence, raw, byte, .. } = &rejects[0];
    assert_eq!((*record, *reason, raw.as_slice()), (2, Reason::InvalidUtf8, &b"bad \xff"[..]));
    assert_eq!(evidence, "invalid UTF-8 at byte 4 of `text`; convert the file");
    // The page begins in the file, behind its first four bytes.
    assert!((4..100).contains(byte), "{byte}");
}

#[test]
fn a_file_of_no_rows_has_no_documents() {
    let folder = Folder::new();
    let source = source(&folder, "x.parquet", vec![("text", texts(&[]))]);
    for options in [ReadOptions::STRICT, ReadOptions::default()] {
        let (documents, _, ledger) = read(&source, options);
        assert_eq!((documents.len(), ledger), (0, Ledger::default()));
    }
}

#[test]
fn a_column_that_is_not_there_is_named_with_those_that_are() -> Test {
    let folder = Folder::new();
    let columns: Columns<'_> = vec![("body", texts(&["a"])), ("id", texts(&["b"]))];
    let source = source(&folder, "x.parquet", columns);
    let message = DocumentReader::open(&source).err().expect("no text").to_string();
    assert!(message.contains("x.parquet` has no column `text`"), "{message}");
    assert!(message.ends_with("its columns are `body`, `id`"), "{message}");
    let mut config = SourceConfig {
        name: "web".to_owned(),
        paths: vec!["x.parquet".to_owned()],
        ..SourceConfig::default()
    };
    config.columns.text = Some("body".to_owned());
    config.require.insert("language".to_owned(), vec![Scalar::Bool(true)]);
    let source = &find_sources(&[config], folder.path(""))?[0];
    let message = DocumentReader::open(source).err().expect("no column").to_string();
    assert!(message.contains("has no column `language`"), "{message}");
    Ok(())
}

/// The texts of one row group add up to more than 2^31 bytes, beyond any 32-bit offset: 24 texts of
/// 100 million bytes, which are one in the file thanks to its dictionary.
#[test]
fn long_texts_never_overflow_32_bit_offsets() -> Test {
    let folder = Folder::new();
    let text = "ab".repeat(50_000_000);
    let keys = arrow_array::Int32Array::from(vec![0; 24]);
    let values: ArrayRef = Arc::new(StringArray::from(vec![text.as_str()]));
    let column = DictionaryArray::<Int32Type>::try_new(keys, values)?;
    let properties = WriterProperties::builder()
        .set_dictionary_page_size_limit(1 << 30)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    write(&folder, "x.parquet", vec![("text", Arc::new(column))], properties);
    let source = Source::file(folder.path("x.parquet"));
    let mut reader = DocumentReader::open_with(&source, ReadOptions::default())?;
    for document in reader.by_ref() {
        assert!(document?.text == text);
    }
    let ledger = reader.ledger();
    assert_eq!((ledger.kept, ledger.text_bytes), (24, 2_400_000_000));
    Ok(())
}

#[test]
fn texts_beyond_the_limit_are_left_out() {
    let folder = Folder::new();
    let source = source(&folder, "x.parquet", vec![("text", texts(&["abc", "abcd", ""]))]);
    let limits = Limits { max_bytes: 3, min_characters: 1 };
    let (documents, rejects, ledger) =
        read(&source, ReadOptions { limits, ..ReadOptions::default() });
    assert_eq!(texts_of(&documents), ["abc"]);
    assert_eq!((ledger.too_long, ledger.empty), (1, 1));
    assert_eq!(
        rejects[0].raw,
        br#"{"domain":null,"id":null,"quality":null,"source":null,"text":"abcd"}"#
    );
}

/// A small file of two row groups with compressed pages.
fn small(folder: &Folder) -> Vec<u8> {
    let words: Vec<String> = (0..40).map(|i| format!("text number {i}")).collect();
    let scores = Float32Array::from_iter_values((0..40).map(|i| i as f32));
    let columns: Columns<'_> = vec![
        ("text", Arc::new(StringArray::from_iter_values(&words))),
        ("score", Arc::new(scores)),
    ];
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(20))
        .build();
    write(folder, "whole.parquet", columns, properties);
    std::fs::read(folder.path("whole.parquet")).expect("just written")
}

#[test]
fn a_file_cut_at_any_byte_is_an_error_with_that_byte() {
    let folder = Folder::new();
    let whole = small(&folder);
    for cut in 0..whole.len() {
        let source = folder.source("x.parquet", &whole[..cut]);
        let error = DocumentReader::open(&source).err().expect("cut");
        let DataError::TruncatedArchive { archive, at_byte, .. } = error else {
            panic!("cut at {cut}: {error}");
        };
        assert_eq!((archive, at_byte), ("Parquet", cut as u64));
    }
}

#[test]
fn damaged_pages_are_errors_that_say_where() {
    let folder = Folder::new();
    let whole = small(&folder);
    let meta = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(whole.clone()));
    let meta = meta.expect("whole");
    for (group, records) in [(0, 0), (1, 20)] {
        let (page, _) = meta.row_group(group).column(0).byte_range();
        let mut bytes = whole.clone();
        bytes[page as usize..page as usize + 8].fill(0xff);
        let source = folder.source("x.parquet", bytes);
        let read: Result<Vec<_>, _> = DocumentReader::open(&source).expect("opens").collect();
        let message = read.expect_err("damaged").to_string();
        let said = format!("before byte {page} of the file, after {records} whole records");
        assert!(message.contains("x.parquet` is damaged: no valid Parquet data"), "{message}");
        assert!(message.contains(&said), "{message} lacks {said}");
    }
    let footer_bytes = whole[whole.len() - 8..].first_chunk().expect("four bytes");
    let footer = whole.len() - 8 - u32::from_le_bytes(*footer_bytes) as usize;
    let mut bytes = whole.clone();
    bytes[footer..footer + 8].fill(0xff);
    let error = DocumentReader::open(&folder.source("x.parquet", bytes)).err().expect("damaged");
    assert!(error.to_string().contains(&format!("before byte {footer} of the file")), "{error}");
}

#[test]
fn a_flipped_byte_anywhere_is_an_error_or_a_read_of_every_row() {
    let folder = Folder::new();
    let whole = small(&folder);
    let mut with_score = SourceConfig {
        name: "small".to_owned(),
        paths: vec!["x.parquet".to_owned()],
        format: Some(fulmar_data::Format::Parquet),
        ..SourceConfig::default()
    };
    with_score.columns.score = Some("score".to_owned());
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            folder.source("x.parquet", bytes);
            let config = [with_score.clone()];
            let source = &find_sources(&config, folder.path("")).expect("one file")[0];
            let Ok(mut reader) = DocumentReader::open_with(source, ReadOptions::default()) else {
                continue;
            };
            if reader.by_ref().all(|document| document.is_ok()) {
                let ledger = reader.ledger();
                assert!(ledger.closes() && ledger.documents == 40, "byte {at}: {ledger:?}");
            }
        }
    }
}
