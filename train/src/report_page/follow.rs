//! The page of runs that go on: written again at each evaluation.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use super::{ReportOptions, State, write_and_tell};
use crate::error::TrainError;
use crate::evaluate;
use crate::history::HISTORY_FILE;
use crate::telemetry::jsonl::LOG_FILE;

/// How often the logs are looked at; a look costs the reading of what was added to them.
const LOOK: Duration = Duration::from_secs(2);

/// Writes the page now and after each evaluation, until every run has come to an end; `told` hears of
/// each page. A run that was killed has no end: whoever follows it ends that.
///
/// # Errors
/// As [`write`](super::write).
pub fn follow(options: &ReportOptions, told: &mut dyn FnMut()) -> Result<(), TrainError> {
    let mut logs: Vec<Growing> = Vec::new();
    for folder in &options.runs {
        logs.push(Growing::new(folder.join(LOG_FILE)));
        logs.push(Growing::new(folder.join(HISTORY_FILE)));
    }
    for log in &mut logs {
        log.news()?;
    }
    loop {
        let states = write_and_tell(options)?;
        told();
        if !states.iter().any(|state| matches!(state, State::Open | State::NotBegun)) {
            return Ok(());
        }
        // What came while the page was made counts too.
        while !any_news(&mut logs)? {
            std::thread::sleep(LOOK);
        }
    }
}

fn any_news(logs: &mut [Growing]) -> Result<bool, TrainError> {
    let mut any = false;
    for log in logs {
        any |= log.news()?;
    }
    Ok(any)
}

/// A file of lines that another process appends to.
struct Growing {
    path: PathBuf,
    /// Bytes of the lines that were seen.
    seen: u64,
}

impl Growing {
    fn new(path: PathBuf) -> Self {
        Self { path, seen: 0 }
    }

    /// Whether a line that the page waits for was added since the last call: an evaluation or an event.
    fn news(&mut self) -> Result<bool, TrainError> {
        let Ok(mut file) = File::open(&self.path) else { return Ok(false) };
        let mut text = Vec::new();
        let read = file.seek(SeekFrom::Start(self.seen)).and_then(|_| file.read_to_end(&mut text));
        read.map_err(TrainError::io("read", &self.path))?;
        // A line without an end is still being written.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.seen += whole as u64;
        let added = String::from_utf8_lossy(&text[..whole]);
        let awaited = [format!("\"{}/", evaluate::DROPLESS), "\"what\":".to_owned()];
        Ok(awaited.iter().any(|awaited| added.contains(awaited)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn an_evaluation_is_news_once_and_only_when_its_line_is_whole() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(LOG_FILE);
        let mut log = Growing::new(path.clone());
        assert!(!log.news().expect("no file"));
        let mut file = File::create(&path).expect("made");
        let mut add = |text: &str, expected: bool| {
            file.write_all(text.as_bytes()).expect("written");
            assert_eq!(log.news().expect("read"), expected, "{text}");
        };
        add("{\"step\":1,\"train/loss\":3.0}\n", false);
        add("{\"step\":1,\"eval/heldout/macro_loss\":3.0", false);
        add("}\n", true);
        add("{\"step\":2,\"train/loss\":3.0}\n", false);
        add("{\"what\":\"ended\"}\n", true);
    }
}
