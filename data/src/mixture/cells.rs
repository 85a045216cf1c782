//! Cells by name and size, with or without their data.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::{CellKey, DataError, Result, Store};

/// A cell as a plan sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellSize {
    /// Its name, as in [`CellKey`].
    pub name: String,
    /// Its tokens, document marks included.
    pub tokens: u64,
}

impl CellSize {
    /// The cells of a store, in its order.
    pub fn of_store(store: &Store) -> Vec<Self> {
        let size =
            |cell: &crate::Cell| Self { name: cell.name().to_owned(), tokens: cell.num_tokens() };
        store.cells().iter().map(size).collect()
    }
}

/// A table of cells that may not exist yet, with columns of weights.
///
/// Text of lines whose fields are separated by tabs: a head `cell`, `tokens` and any columns more,
/// then a line a cell. Empty lines and those that begin with `#` are passed over.
///
/// ```
/// use fulmar_data::mixture::CellTable;
///
/// let table = CellTable::parse("cell\ttokens\tfirst\nc00q0\t900\t0.25\nc00q1\t500\t0.75\n", "t")?;
/// assert_eq!(table.cells()[1].tokens, 500);
/// assert_eq!(table.weights("first")?["c00q0"], 0.25);
/// # Ok::<(), fulmar_data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CellTable {
    origin: String,
    cells: Vec<CellSize>,
    columns: Vec<(String, Vec<f64>)>,
}

impl CellTable {
    /// Reads a table from a file.
    ///
    /// # Errors
    /// [`DataError::Io`], and those of [`CellTable::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(DataError::io("read cells of", path))?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads a table from text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`DataError::CellTable`] naming line and problem; [`DataError::CellCase`] for two names that
    /// differ only in case.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let lines = text.lines().zip(1..).map(|(line, number)| (line.trim_end(), number));
        let mut lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let problem = |line: u64, problem: String| DataError::CellTable {
            origin: origin.to_owned(),
            line,
            problem,
        };
        let (head, line) = lines.next().unwrap_or(("", 1));
        let names: Vec<&str> = head.split('\t').collect();
        if names.len() < 2 || names[..2] != ["cell", "tokens"] {
            let found =
                format!("the head is {head:?}, need `cell`, `tokens` and columns of weights");
            return Err(problem(line, found));
        }
        let mut columns: Vec<_> = names[2..].iter().map(|n| ((*n).to_owned(), vec![])).collect();
        let mut cells: Vec<CellSize> = Vec::new();
        let mut folded: BTreeMap<String, String> = BTreeMap::new();
        for (text, line) in lines {
            let fields: Vec<&str> = text.split('\t').collect();
            if fields.len() != names.len() {
                let (found, needed) = (fields.len(), names.len());
                return Err(problem(line, format!("found {found} fields, need {needed}")));
            }
            let name = fields[0].parse::<CellKey>()?.to_string();
            match folded.insert(name.to_ascii_lowercase(), name.clone()) {
                Some(first) if first == name => {
                    return Err(problem(line, format!("cell `{name}` is there twice")));
                }
                Some(first) => return Err(DataError::CellCase { first, second: name }),
                None => {}
            }
            let Ok(tokens) = fields[1].parse() else {
                return Err(problem(line, format!("`tokens` is {:?}, need a number", fields[1])));
            };
            for ((column, values), field) in columns.iter_mut().zip(&fields[2..]) {
                match field.parse::<f64>() {
                    Ok(weight) if weight.is_finite() && weight >= 0.0 => values.push(weight),
                    _ => {
                        let needed = "a finite number, 0 or more";
                        return Err(problem(
                            line,
                            format!("`{column}` is {field:?}, need {needed}"),
                        ));
                    }
                }
            }
            cells.push(CellSize { name, tokens });
        }
        if cells.is_empty() {
            return Err(problem(line, "no line behind the head, need one a cell".to_owned()));
        }
        Ok(Self { origin: origin.to_owned(), cells, columns })
    }

    /// The cells, in the order of the table.
    pub fn cells(&self) -> &[CellSize] {
        &self.cells
    }

    /// The weights of one column, by cell.
    ///
    /// # Errors
    /// [`DataError::CellTable`] for a column that is not there.
    pub fn weights(&self, column: &str) -> Result<BTreeMap<String, f64>> {
        let Some((_, weights)) = self.columns.iter().find(|(name, _)| name == column) else {
            let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let problem = format!("no column `{column}`; columns of weights are {there}");
            return Err(DataError::CellTable { origin: self.origin.clone(), line: 1, problem });
        };
        let names = self.cells.iter().map(|cell| cell.name.clone());
        Ok(names.zip(weights.iter().copied()).collect())
    }
}
