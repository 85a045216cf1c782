//! A folder with a corpus a tag.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::SuiteError;

/// Endings of files with documents, before one of [`COMPRESSED`].
const DOCUMENTS: [&str; 4] = [".jsonl", ".json", ".ndjson", ".parquet"];
/// Endings of compressed files.
const COMPRESSED: [&str; 3] = [".gz", ".zst", ".zstd"];

/// The files or folders of each tag. A file's tag is its name without endings, a folder's its name; what
/// begins with `.` and files of other kinds, as a README, are passed over.
///
/// # Errors
/// [`SuiteError::Io`], [`SuiteError::NoTags`], [`SuiteError::TagTwice`].
pub(super) fn tags(
    suite: &str,
    folder: &Path,
) -> Result<BTreeMap<String, Vec<String>>, SuiteError> {
    let io = |source| SuiteError::Io { action: "read the folder", path: folder.to_owned(), source };
    let mut names = BTreeMap::<String, String>::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let tag = if entry.path().is_dir() { Some(name.as_str()) } else { tag_of_file(&name) };
        let Some(tag) = tag.map(str::to_owned) else { continue };
        if let Some(other) = names.insert(tag.clone(), name.clone()) {
            let [first, second] = if other < name { [other, name] } else { [name, other] };
            return Err(SuiteError::TagTwice { suite: suite.to_owned(), tag, first, second });
        }
    }
    if names.is_empty() {
        let (suite, folder) = (suite.to_owned(), folder.to_owned());
        return Err(SuiteError::NoTags { suite, folder });
    }
    let path = |name: String| vec![folder.join(name).display().to_string()];
    Ok(names.into_iter().map(|(tag, name)| (tag, path(name))).collect())
}

/// The name of a file of documents without its endings; none of any other file.
fn tag_of_file(name: &str) -> Option<&str> {
    let without =
        |name, endings: &[&str]| endings.iter().find_map(|ending| str::strip_suffix(name, ending));
    without(without(name, &COMPRESSED).unwrap_or(name), &DOCUMENTS).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_file_is_its_name_without_endings() {
        let of = [
            ("c4_en.jsonl", Some("c4_en")),
            ("dolma-v1_5.jsonl.gz", Some("dolma-v1_5")),
            ("a.b.json.zst", Some("a.b")),
            ("ptb.parquet", Some("ptb")),
            ("README.md", None),
            ("archive.zst", None),
            (".jsonl", None),
        ];
        for (name, tag) in of {
            assert_eq!(tag_of_file(name), tag, "{name}");
        }
    }
}
