//! The rows of a Parquet file.

use std::{
    borrow::Cow,
    fs::File,
    io::{Read, Seek, SeekFrom},
    sync::Arc,
};

use parquet::{
    errors::ParquetError,
    file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader},
};

use super::{
    column::{Error, TableColumn, Tracked, caught},
    fault::Unit,
    field::Field,
    mapping::{Column, Mapping, TEXT},
    records::{Record, Records},
};
use crate::{
    DataError, Fault, Ledger, Result,
    source::{PARQUET_MAGIC, raw::open_file},
};

/// Bytes of a file behind the description of its columns: its length and the four last bytes.
const FOOTER_END_BYTES: u64 = 8;

/// What a file that has them at both ends is called in messages.
const ARCHIVE: &str = "Parquet";

/// Reads one row after the other; memory is that of the description of the file, of one page of each
/// column that is read, and of the longest row.
pub(crate) struct Table {
    file: Arc<str>,
    opened: File,
    len: u64,
    meta: ParquetMetaData,
    mapping: Arc<Mapping>,
    /// For each column of the mapping, that of the file.
    columns: Vec<Option<TableColumn>>,
    /// Row groups begun.
    groups: usize,
    /// Rows of the last of them that are to come.
    rows_left: u64,
    /// The value that is no text, in the row read last.
    bad_bytes: Vec<u8>,
}

impl Table {
    pub(crate) fn open(
        file: Arc<str>,
        path: &std::path::Path,
        mapping: Arc<Mapping>,
    ) -> Result<Self> {
        let opened = open_file(path)?;
        let (len, meta) = read_description(&file, &opened)?;
        let columns = (0..mapping.columns().len())
            .map(|index| find_column(&file, &meta, &mapping, index))
            .collect::<Result<_>>()?;
        let (groups, rows_left, bad_bytes) = (0, 0, Vec::new());
        Ok(Self { file, opened, len, meta, mapping, columns, groups, rows_left, bad_bytes })
    }

    /// Goes on to the next row group with rows. False at the end.
    fn next_group(&mut self, ledger: &Ledger) -> Result<bool> {
        while self.rows_left == 0 {
            let Some(group) = self.meta.row_groups().get(self.groups) else { return Ok(false) };
            self.groups += 1;
            self.rows_left = group.num_rows() as u64;
            for column in self.columns.iter_mut().flatten() {
                let started = column.start(&self.opened, self.len, group);
                started.map_err(|error| {
                    damaged(&self.file, column.position(), ledger.documents, &error)
                })?;
            }
        }
        Ok(true)
    }

    /// The values of the next row, or the first fault among them.
    fn read_row(&mut self, ledger: &Ledger) -> Result<(Vec<Field>, Option<Fault>)> {
        let (mut fields, mut fault) = (Vec::with_capacity(self.columns.len()), None);
        for (column, wanted) in self.columns.iter_mut().zip(self.mapping.columns()) {
            let Some(column) = column else {
                fields.push(Field::Null);
                continue;
            };
            fields.push(match column.next() {
                Ok(field) => field,
                Err(Error::NotUtf8 { byte, value }) => {
                    if fault.is_none() {
                        self.bad_bytes = value;
                        let of = format!("`{}`", wanted.path);
                        fault = Some(Fault::InvalidUtf8 { byte, of });
                    }
                    Field::Null
                }
                Err(Error::Page(error)) => {
                    let records = ledger.documents;
                    return Err(damaged(&self.file, column.position(), records, &error));
                }
            });
        }
        Ok((fields, fault))
    }
}

impl Records for Table {
    fn next(&mut self, ledger: &mut Ledger) -> Result<Option<Record>> {
        if !self.next_group(ledger)? {
            return Ok(None);
        }
        self.rows_left -= 1;
        self.bad_bytes.clear();
        let (fields, fault) = self.read_row(ledger)?;
        ledger.documents += 1;
        let (file, number) = (Arc::clone(&self.file), ledger.documents);
        let byte = self.columns[TEXT].as_ref().map_or(0, TableColumn::position);
        let problem = fault.map(Into::into);
        Ok(Some(Record { file, number, byte, id: None, fields, problem }))
    }

    /// The value that is not UTF-8, else what was read of the row, as JSON.
    fn raw<'a>(&'a self, record: &'a Record) -> (Cow<'a, [u8]>, u64) {
        if !self.bad_bytes.is_empty() {
            return (Cow::Borrowed(&self.bad_bytes), self.bad_bytes.len() as u64);
        }
        let fields = self.mapping.columns().iter().zip(&record.fields);
        let row: serde_json::Map<String, serde_json::Value> =
            fields.map(|(column, field)| (column.path.clone(), field.to_json())).collect();
        let json = serde_json::Value::Object(row).to_string().into_bytes();
        let bytes = json.len() as u64;
        (Cow::Owned(json), bytes)
    }

    fn unit(&self) -> Unit {
        Unit::Row
    }
}

/// The length of a file and the description of its columns, checked against each other.
fn read_description(name: &Arc<str>, file: &File) -> Result<(u64, ParquetMetaData)> {
    let io = |error| DataError::io("read", &**name)(error);
    let len = file.metadata().map_err(io)?.len();
    let mut tail = Vec::new();
    let mut reader = file;
    let tail_start = len.saturating_sub(FOOTER_END_BYTES);
    reader.seek(SeekFrom::Start(tail_start)).map_err(io)?;
    reader.read_to_end(&mut tail).map_err(io)?;
    let truncated = || DataError::TruncatedArchive {
        file: name.to_string(),
        archive: ARCHIVE,
        at_byte: len,
        records: 0,
    };
    let Some((length, magic)) = tail.split_first_chunk::<4>() else { return Err(truncated()) };
    let footer_bytes = u64::from(u32::from_le_bytes(*length));
    let Some(footer_start) = tail_start.checked_sub(footer_bytes) else {
        return Err(truncated());
    };
    // `PARE` ends an encrypted file, of which the library says so.
    if magic != PARQUET_MAGIC && magic != b"PARE" {
        return Err(truncated());
    }
    let damaged = |reason: &ParquetError| damaged(name, footer_start, 0, reason);
    let tracked = Tracked::new(file, len).map_err(io)?;
    let meta = caught(|| ParquetMetaDataReader::new().parse_and_finish(&tracked));
    let meta = meta.map_err(|error| damaged(&error))?;
    match contradiction(&meta, footer_start) {
        Some(reason) => Err(damaged(&ParquetError::General(reason.to_owned()))),
        None => Ok((len, meta)),
    }
}

/// What the description of a file says against itself, which the library does not look at.
fn contradiction(meta: &ParquetMetaData, footer_start: u64) -> Option<&'static str> {
    let mut rows = 0i64;
    for group in meta.row_groups() {
        if group.num_rows() < 0 {
            return Some("a row group has fewer than no rows");
        }
        rows = rows.saturating_add(group.num_rows());
        for chunk in group.columns() {
            if !lies_before(chunk, footer_start) {
                return Some("a column lies outside of the file");
            }
            let flat = chunk.column_descr().max_rep_level() == 0;
            if flat && chunk.num_values() != group.num_rows() {
                return Some("a column has more or fewer values than its row group has rows");
            }
        }
    }
    (rows != meta.file_metadata().num_rows()).then_some("its row groups have other rows in sum")
}

/// Whether a column chunk's bytes lie before the footer.
fn lies_before(chunk: &ColumnChunkMetaData, footer_start: u64) -> bool {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let end = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    end.and_then(|(start, bytes)| start.checked_add(bytes)).is_some_and(|end| end <= footer_start)
}

/// The column of the file that a column of the mapping means.
fn find_column(
    file: &Arc<str>,
    meta: &ParquetMetaData,
    mapping: &Mapping,
    index: usize,
) -> Result<Option<TableColumn>> {
    let leaves = meta.file_metadata().schema_descr().columns();
    let Column { path, is_list, .. } = &mapping.columns()[index];
    let is_meant = |name: &str, repeats: i16| {
        let below = name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        if *is_list {
            repeats == 1 && (below || name == path)
        } else {
            repeats == 0 && name == path
        }
    };
    let meant: Vec<usize> = (0..leaves.len())
        .filter(|&leaf| is_meant(&leaves[leaf].path().string(), leaves[leaf].max_rep_level()))
        .collect();
    match meant[..] {
        [leaf] => Ok(Some(TableColumn::new(Arc::clone(&leaves[leaf]), leaf))),
        [] if !mapping.must_exist(index) => Ok(None),
        _ => {
            let there: Vec<String> =
                leaves.iter().map(|leaf| format!("`{}`", leaf.path().string())).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            Err(DataError::NoColumn { file: file.to_string(), column: path.clone(), there })
        }
    }
}

fn damaged(file: &str, at_byte: u64, records: u64, reason: &ParquetError) -> DataError {
    let (file, reason) = (file.to_owned(), reason.to_string());
    DataError::DamagedArchive { file, archive: ARCHIVE, at_byte, records, reason }
}
