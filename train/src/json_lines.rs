//! Files of JSON lines: appended to, never rewritten, and read line by line however long they grow.
//!
//! A kill or a full disk can cut the last line short. Whoever appends next ends it first, so that one
//! line is lost and never two.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::TrainError;

/// Opens a file to append lines to, made if it is not there; a last line that was cut short is ended.
///
/// # Errors
/// If it cannot be opened or, where a line was cut short, written.
pub(crate) fn append_to(path: &Path) -> Result<File, TrainError> {
    let file = OpenOptions::new().create(true).read(true).append(true).open(path);
    let mut file = file.map_err(TrainError::io("open", path))?;
    end_last_line(&mut file).map_err(TrainError::io("repair", path))?;
    Ok(file)
}

fn end_last_line(file: &mut File) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

/// Hands each line that is not empty to `each`, with its number from 1; none where there is no file.
/// One line is held at a time. Lines are bytes: one that was cut short may end within a character.
///
/// # Errors
/// If the file cannot be read, or the first one of `each`.
pub(crate) fn each_line(
    path: &Path,
    mut each: impl FnMut(usize, &[u8]) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let mut lines = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => BufReader::new(file.map_err(TrainError::io("read", path))?),
    };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(TrainError::io("read", path))? == 0 {
            break;
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            each(number, text)?;
        }
    }
    Ok(())
}

/// What every line of a file says, in their order; none where there is no file. A line that was cut short
/// is passed over.
///
/// # Errors
/// If the file cannot be read, or a line that was written whole is no `what`; its number is named.
pub(crate) fn read_all<T: DeserializeOwned>(path: &Path, what: &str) -> Result<Vec<T>, TrainError> {
    let mut all = Vec::new();
    each_line(path, |number, line| match serde_json::from_slice(line) {
        Ok(one) => {
            all.push(one);
            Ok(())
        }
        // What a kill left of a line.
        Err(error) if error.is_eof() => Ok(()),
        Err(error) => {
            let origin = format!("{}, line {number}", path.display());
            let (field, problem) = (what.to_owned(), error.to_string());
            Err(TrainError::Recipe { origin, field, problem })
        }
    })?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<(usize, Vec<u8>)> {
        let mut lines = Vec::new();
        let each = |number, line: &[u8]| {
            lines.push((number, line.to_vec()));
            Ok(())
        };
        each_line(path, each).expect("read");
        lines
    }

    #[test]
    fn a_line_cut_short_within_a_character_costs_no_other() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lines");
        assert_eq!(lines(&path), []);
        std::fs::write(&path, [&b"one\n\n"[..], &"\u{e9}".as_bytes()[..1]].concat())
            .expect("written");
        append_to(&path).expect("opened").write_all(b"two\n").expect("written");
        append_to(&path).expect("opened").write_all(b"three\n").expect("written");
        let expected: [(usize, &[u8]); 4] = [(1, b"one"), (3, b"\xc3"), (4, b"two"), (5, b"three")];
        assert_eq!(lines(&path), expected.map(|(number, line)| (number, line.to_vec())));
    }
}
