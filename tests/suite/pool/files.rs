//! Records into files of every format that is read.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, StructArray, UInt32Array};
use arrow_schema::{DataType, Field};
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use serde_json::json;

use super::records::{Kind, Pool, Record, Text, Truth};

/// How the bytes of lines are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// Lines of JSON in two members or frames; plain ones with a byte order mark, `\r\n`, blank lines and
/// no end of the last line.
pub(super) fn lines(pool: &mut Pool, path: &Path, count: u64, packing: Packing) -> Truth {
    let mut truth = Truth::default();
    let mut file = BufWriter::new(create(path));
    for part in 0..2 {
        let mut text = Vec::new();
        if part == 0 && packing == Packing::Plain {
            text.extend("\u{feff}".bytes());
        }
        for number in 0..count / 2 {
            text.extend(line(&pool.record(Kind::Lines, &mut truth)));
            let last = part == 1 && number + 1 == count / 2;
            match packing {
                Packing::Plain if last => {}
                Packing::Plain if number % 10 == 0 => text.extend(b"\r\n \t\r\n"),
                Packing::Plain => text.extend(b"\r\n"),
                _ => text.push(b'\n'),
            }
        }
        pack(&mut file, &text, packing);
    }
    file.flush().expect("written");
    truth
}

fn pack(file: &mut impl Write, text: &[u8], packing: Packing) {
    match packing {
        Packing::Plain => file.write_all(text).expect("written"),
        Packing::Zstd => zstd::stream::copy_encode(text, file, 1).expect("written"),
        Packing::Gzip => {
            let mut member = GzEncoder::new(file, Compression::fast());
            member.write_all(text).expect("written");
            member.finish().expect("written");
        }
    }
}

/// One line without its end.
fn line(record: &Record) -> Vec<u8> {
    let Record { id, text, language, topic, level } = record;
    let about = json!({ "topic": topic, "language": language });
    let object = |text: serde_json::Value| {
        let object =
            json!({ "doc": id, "content": { "body": text }, "about": about, "level": level });
        object.to_string().into_bytes()
    };
    match text {
        Text::Good(text) => object(json!(text)),
        Text::Latin1(text) => {
            let mut line = object(json!(format!("{text} caf#")));
            let at = line.iter().rposition(|byte| *byte == b'#').expect("the mark");
            line[at] = 0xe9;
            line
        }
        Text::Torn(text) => {
            let mut line = object(json!(text));
            // Not within a character: that would be another fault.
            let middle = (line.len() / 2..).find(|at| line[*at].is_ascii());
            line.truncate(middle.expect("a brace at the end"));
            line
        }
        Text::Missing => {
            json!({ "doc": id, "content": {}, "about": about }).to_string().into_bytes()
        }
        Text::Null => object(json!(null)),
        Text::Number => object(json!(7)),
    }
}

/// A table with the text in a struct, in groups of a thousand rows, the first of them empty.
pub(super) fn table(pool: &mut Pool, path: &Path, count: u64) -> Truth {
    let mut truth = Truth::default();
    let none = batch(&[]);
    let mut writer = ArrowWriter::try_new(create(path), none.schema(), None).expect("a writer");
    writer.write(&none).expect("written");
    let mut left = count;
    while left > 0 {
        let now = left.min(1_000);
        let records: Vec<Record> = (0..now).map(|_| pool.record(Kind::Table, &mut truth)).collect();
        writer.write(&batch(&records)).expect("written");
        writer.flush().expect("written");
        left -= now;
    }
    writer.close().expect("written");
    truth
}

fn batch(records: &[Record]) -> RecordBatch {
    let text = |record: &Record| match &record.text {
        Text::Good(text) => Some(text.clone()),
        _ => None,
    };
    let strings = |of: &dyn Fn(&Record) -> Option<String>| -> ArrayRef {
        Arc::new(records.iter().map(of).collect::<StringArray>())
    };
    let group = |columns: Vec<(&str, ArrayRef)>| -> ArrayRef {
        let field = |name| Arc::new(Field::new(name, DataType::Utf8, true));
        let columns = columns.into_iter().map(|(name, column)| (field(name), column));
        Arc::new(StructArray::from(columns.collect::<Vec<_>>()))
    };
    let about = vec![
        ("topic", strings(&|record| Some(record.topic.to_owned()))),
        ("language", strings(&|record| Some(record.language.to_owned()))),
    ];
    let levels: UInt32Array = records.iter().map(|record| Some(record.level)).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("doc", strings(&|record| Some(record.id.clone())), true),
        ("content", group(vec![("body", strings(&text))]), true),
        ("about", group(about), true),
        ("level", Arc::new(levels) as ArrayRef, true),
    ])
    .expect("equal lengths")
}

/// A folder of texts, a file a document.
pub(super) fn texts(pool: &mut Pool, folder: &Path, count: u64) -> Truth {
    let mut truth = Truth::default();
    for number in 0..count {
        let record = pool.record(Kind::Texts, &mut truth);
        let Text::Good(text) = record.text else { panic!("no other fault in a text") };
        let path = folder.join(format!("{:03}/{number:06}.txt", number / 500));
        create(&path).write_all(text.as_bytes()).expect("written");
    }
    truth
}

fn create(path: &Path) -> File {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    File::create(path).expect("a file")
}
