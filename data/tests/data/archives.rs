//! Archives that are whole, of several parts, truncated and damaged.

use std::io::Write as _;

use fulmar_data::{DataError, Document, DocumentReader, Limits, ReadOptions, Source};

use crate::fixture::{Folder, chain, corpus, gzip, line, zstd};

fn read(source: &Source) -> Result<Vec<Document>, DataError> {
    DocumentReader::open_with(source, ReadOptions::default())?.collect()
}

#[test]
fn every_member_of_a_gzip_file_is_read() {
    let folder = Folder::new();
    let mut bytes = gzip(line("a", "first", "d", 0).as_bytes());
    bytes.extend(gzip(b""));
    // A line may go on in the next member.
    let (start, end) = ("{\"text\":\"sec", "ond\"}\n");
    bytes.extend([gzip(start.as_bytes()), gzip(end.as_bytes())].concat());
    let documents = read(&folder.source("x.jsonl", bytes)).expect("whole members");
    let texts: Vec<&str> = documents.iter().map(|d| d.text.as_str()).collect();
    assert_eq!(texts, ["first", "second"]);
}

#[test]
fn an_archive_cut_at_any_byte_is_an_error_with_that_byte_in_either_mode() {
    let folder = Folder::new();
    let (first, second) = (line("a", "first", "d", 0), line("b", "second", "d", 0));
    for (archive, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        let member = pack(first.as_bytes());
        let whole = [member.clone(), pack(second.as_bytes())].concat();
        assert_eq!(read(&folder.source("whole", &whole)).expect("whole").len(), 2);
        // Less than the four first bytes do not say that it is an archive; what ends between two
        // members is whole.
        for cut in (4..whole.len()).filter(|&cut| cut != member.len()) {
            let source = folder.source("x.jsonl", &whole[..cut]);
            let lenient = read(&source).expect_err("cut");
            let strict = DocumentReader::open(&source).expect("opens");
            let strict = strict.collect::<Result<Vec<_>, _>>().expect_err("cut");
            for error in [lenient, strict] {
                let DataError::TruncatedArchive { archive: found, at_byte, .. } = error else {
                    panic!("{archive} cut at {cut}: {error}");
                };
                assert_eq!((found, at_byte), (archive, cut as u64));
            }
        }
    }
}

#[test]
fn a_damaged_archive_is_an_error_in_either_mode() {
    let folder = Folder::new();
    for (archive, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        let whole = pack(corpus().as_bytes());
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 0x10;
        let trailing = [whole.clone(), b"trailing rubbish".to_vec()].concat();
        for (bytes, at_most) in [(flipped, whole.len()), (trailing, whole.len() + 16)] {
            let source = folder.source("x", bytes);
            let message = chain(&read(&source).expect_err("damaged"));
            let said = format!("x` is damaged: no valid {archive} data before byte ");
            let rest = message.split(&said).nth(1).unwrap_or_else(|| panic!("{message}"));
            let byte: usize = rest.split(' ').next().and_then(|n| n.parse().ok()).expect("a byte");
            assert!((1..=at_most).contains(&byte), "{message}");
        }
    }
}

#[test]
fn an_archive_without_lines_is_a_file_without_documents_unless_reading_is_strict() {
    let folder = Folder::new();
    for bytes in [gzip(b""), zstd(b"")] {
        let source = folder.source("x.jsonl", bytes);
        assert_eq!(read(&source).expect("no documents").len(), 0);
        let strict = DocumentReader::open(&source).expect("opens").next().expect("an error");
        assert!(matches!(strict, Err(DataError::EmptyFile { .. })));
    }
    // No byte at all is what a failed copy leaves behind.
    let error = read(&folder.source("x.jsonl.gz", "")).expect_err("no bytes");
    assert!(matches!(error, DataError::EmptyFile { .. }));
}

#[test]
fn a_zstd_frame_of_a_long_window_is_read() {
    let folder = Folder::new();
    // One more than the decoder takes unasked; written by `zstd --long=28`.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(28).expect("a setting");
    encoder.write_all(line("a", "far back", "d", 0).as_bytes()).expect("memory");
    let source = folder.source("x.jsonl.zst", encoder.finish().expect("memory"));
    assert_eq!(read(&source).expect("whole")[0].text, "far back");
}

#[test]
fn a_text_file_in_a_truncated_archive_is_an_error_even_where_its_text_is_too_long() {
    let folder = Folder::new();
    let whole = gzip(corpus().as_bytes());
    let cut = whole.len() - 1;
    let source = folder.source("x.txt.gz", &whole[..cut]);
    for max_bytes in [10, u64::MAX] {
        let limits = Limits { max_bytes, min_characters: 1 };
        let options = ReadOptions { limits, ..ReadOptions::default() };
        let mut reader = DocumentReader::open_with(&source, options).expect("opens");
        let error = reader.next().expect("an error").expect_err("cut").to_string();
        assert!(error.contains("x.txt.gz` is truncated: its gzip data end at byte"), "{error}");
        assert!(error.contains(&format!("byte {cut} of the file")), "{error}");
    }
}
