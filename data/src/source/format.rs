//! What a file holds, and how it is compressed: told by its first bytes, then by its name.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// How documents lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// A JSON object a line.
    #[serde(rename = "jsonl")]
    JsonLines,
    /// A row a document.
    #[serde(rename = "parquet")]
    Parquet,
    /// The file is the document.
    #[serde(rename = "text")]
    Text,
}

impl Format {
    /// The name, as in recipes and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
            Self::Text => "text",
        }
    }

    /// The format of a file that no recipe names one for: Parquet by its first bytes or its
    /// extension, text by the extension `txt` or `md` (before `gz` or `zst`), else JSON lines.
    pub(crate) fn detect(path: &Path, head: &[u8]) -> Self {
        let extension =
            |path: &Path| path.extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
        let mut ending = extension(path);
        if matches!(ending.as_deref(), Some("gz" | "zst" | "zstd")) {
            ending = path.file_stem().and_then(|stem| extension(Path::new(stem)));
        }
        match ending.as_deref() {
            _ if head.starts_with(PARQUET_MAGIC) => Self::Parquet,
            Some("parquet") => Self::Parquet,
            Some("txt" | "md") => Self::Text,
            _ => Self::JsonLines,
        }
    }
}

/// The first and the last four bytes of a Parquet file.
pub(crate) const PARQUET_MAGIC: &[u8] = b"PAR1";

/// Bytes that [`Format::detect`] and [`Compression::detect`] want to see.
pub(crate) const HEAD_BYTES: usize = 6;

/// How a file is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all, or within, as Parquet is.
    None,
    /// Gzip (RFC 1952), all members.
    Gzip,
    /// Zstandard (RFC 8878), all frames.
    Zstd,
}

/// The first four bytes of a zstd frame (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The same of a frame to be skipped; the low four bits of its first byte are free.
const ZSTD_SKIPPABLE: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];

/// First bytes of what is not read, so that nobody gets a million bad lines instead of one reason.
const UNREADABLE: [(&[u8], &str); 7] = [
    (b"\xfd7zXZ\0", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"PK\x03\x04", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x04\x22\x4d\x18", "compressed with lz4"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
];

impl Compression {
    /// The name, as in tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// By the first bytes, whatever the file is called. The error says what it is instead.
    pub(crate) fn detect(head: &[u8]) -> Result<Self, &'static str> {
        if let Some((_, what)) = UNREADABLE.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(what);
        }
        if head.starts_with(&[0x1f, 0x8b]) {
            return Ok(Self::Gzip);
        }
        let Some([first, rest @ ..]) = head.first_chunk::<4>() else { return Ok(Self::None) };
        let skippable = first & 0xf0 == ZSTD_SKIPPABLE[0] && *rest == ZSTD_SKIPPABLE[1..];
        Ok(if head.starts_with(&ZSTD_MAGIC) || skippable { Self::Zstd } else { Self::None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_go_before_the_name() {
        let format = |name: &str, head: &[u8]| Format::detect(Path::new(name), head);
        assert_eq!(format("a.jsonl", b"PAR1"), Format::Parquet);
        assert_eq!(format("a.parquet", b""), Format::Parquet);
        assert_eq!(format("a.TXT.gz", b"\x1f\x8b"), Format::Text);
        assert_eq!(format("notes.md", b"# "), Format::Text);
        assert_eq!(format("txt", b"{"), Format::JsonLines);
        assert_eq!(format("a.json.zst", b"{"), Format::JsonLines);
    }

    #[test]
    fn archives_that_are_not_read_are_known() {
        assert_eq!(Compression::detect(b"BZh9"), Err("compressed with bzip2"));
        assert_eq!(Compression::detect(b"\xff\xfeh\0"), Err("text in UTF-16"));
        assert_eq!(Compression::detect(b"\x5f\x2a\x4d\x18"), Ok(Compression::Zstd));
        assert_eq!(Compression::detect(b""), Ok(Compression::None));
    }
}
