//! One column of a Parquet file, value by value.
//!
//! Values are taken one row at a time from the pages of the file's own layout. No batch of rows is
//! ever put together, so that there is none whose 32-bit offsets long texts could overflow, and string
//! columns are the same however their writer held them: with offsets of 32 or 64 bits, as views, by
//! dictionary.

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parquet::{
    basic::{ConvertedType, LogicalType},
    column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    data_type::DataType,
    errors::{ParquetError, Result},
    file::{
        metadata::RowGroupMetaData,
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
    schema::types::ColumnDescPtr,
};

use super::field::Field;

/// What `read` gives. The library panics on some damaged files, which no other check of ours or its own
/// finds; here that is an error as any other, after which nothing more is read.
pub(crate) fn caught<T, E: From<ParquetError>>(
    read: impl FnOnce() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(ToString::to_string);
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(ParquetError::General(said.unwrap_or_else(|| "panic".to_owned())).into())
    })
}

/// A file that remembers where it was read last.
pub(crate) struct Tracked {
    file: File,
    len: u64,
    /// Where the page begins that was read last.
    position: Arc<AtomicU64>,
}

impl Tracked {
    pub(crate) fn new(file: &File, len: u64) -> std::io::Result<Self> {
        Ok(Self { file: file.try_clone()?, len, position: Arc::default() })
    }

    fn seek(&self, start: u64) -> Result<&File> {
        self.position.store(start, Ordering::Relaxed);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(start))?;
        Ok(file)
    }
}

impl Length for Tracked {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Tracked {
    type T = BufReader<File>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        // Reads of one reader follow each other, each with a seek of its own.
        Ok(BufReader::new(self.seek(start)?.try_clone()?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut bytes = Vec::new();
        let read = self.seek(start)?.take(length as u64).read_to_end(&mut bytes)?;
        if read < length {
            return Err(ParquetError::EOF(format!("{read} bytes, need {length}")));
        }
        Ok(bytes.into())
    }
}

/// A column of one value a row, or of one list of numbers a row.
pub(crate) struct TableColumn {
    descr: ColumnDescPtr,
    /// Its place among the leaves of the schema.
    leaf: usize,
    position: Arc<AtomicU64>,
    reader: Option<ColumnReader>,
    def_levels: Vec<i16>,
    rep_levels: Vec<i16>,
}

impl TableColumn {
    pub(crate) fn new(descr: ColumnDescPtr, leaf: usize) -> Self {
        let (def_levels, rep_levels) = (Vec::new(), Vec::new());
        Self { descr, leaf, position: Arc::default(), reader: None, def_levels, rep_levels }
    }

    /// Where the page begins that was read last.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Goes to the start of a row group.
    pub(crate) fn start(&mut self, file: &File, len: u64, group: &RowGroupMetaData) -> Result<()> {
        let mut tracked = Tracked::new(file, len)?;
        tracked.position = Arc::clone(&self.position);
        let (chunk, rows) = (group.column(self.leaf), group.num_rows() as usize);
        self.position.store(chunk.byte_range().0, Ordering::Relaxed);
        self.reader = Some(caught(|| {
            let pages = SerializedPageReader::new(Arc::new(tracked), chunk, rows, None)?;
            Ok::<_, ParquetError>(get_column_reader(self.descr.clone(), Box::new(pages)))
        })?);
        Ok(())
    }

    /// The value in the next row of the group.
    pub(crate) fn next(&mut self) -> Result<Field, Error> {
        caught(|| self.read())
    }

    fn read(&mut self) -> Result<Field, Error> {
        let Self { descr, reader, def_levels, rep_levels, .. } = self;
        let Some(reader) = reader else { return Err(no_row().into()) };
        let mut next = Next { descr, def_levels, rep_levels };
        match reader {
            ColumnReader::BoolColumnReader(reader) => next.scalar(reader, Field::Bool),
            ColumnReader::Int32ColumnReader(reader) => {
                let unsigned = is_unsigned(next.descr);
                let widen = |v: i32| if unsigned { i128::from(v as u32) } else { i128::from(v) };
                next.numbers(reader, |v| Field::Integer(widen(v)), |v| widen(v) as f32)
            }
            ColumnReader::Int64ColumnReader(reader) => {
                let unsigned = is_unsigned(next.descr);
                let widen = |v: i64| if unsigned { i128::from(v as u64) } else { i128::from(v) };
                next.numbers(reader, |v| Field::Integer(widen(v)), |v| widen(v) as f32)
            }
            ColumnReader::FloatColumnReader(reader) => {
                next.numbers(reader, |v| Field::Number(f64::from(v)), |v| v)
            }
            ColumnReader::DoubleColumnReader(reader) => {
                next.numbers(reader, Field::Number, |v| v as f32)
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                let Some(value) = next.value(reader)? else { return Ok(Field::Null) };
                String::from_utf8(value.data().to_vec()).map(Field::Text).map_err(|error| {
                    let byte = error.utf8_error().valid_up_to() as u64;
                    Error::NotUtf8 { byte, value: error.into_bytes() }
                })
            }
            ColumnReader::Int96ColumnReader(reader) => {
                next.scalar(reader, |_| Field::Other("a time of 96 bits"))
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                next.scalar(reader, |_| Field::Other("bytes of a fixed length"))
            }
        }
    }
}

/// Why there is no value.
#[derive(Debug)]
pub(crate) enum Error {
    /// A string is not UTF-8: the offset in it, and its bytes.
    NotUtf8 { byte: u64, value: Vec<u8> },
    /// The page cannot be read.
    Page(ParquetError),
}

impl From<ParquetError> for Error {
    fn from(error: ParquetError) -> Self {
        Self::Page(error)
    }
}

/// What the values of one row are read into.
struct Next<'a> {
    descr: &'a ColumnDescPtr,
    def_levels: &'a mut Vec<i16>,
    rep_levels: &'a mut Vec<i16>,
}

impl Next<'_> {
    /// The values of the next row; nulls have levels, yet no value.
    fn values<T: DataType>(&mut self, reader: &mut ColumnReaderImpl<T>) -> Result<Vec<T::T>> {
        self.def_levels.clear();
        self.rep_levels.clear();
        let mut values = Vec::new();
        let (rows, _, levels) =
            reader.read_records(1, Some(self.def_levels), Some(self.rep_levels), &mut values)?;
        if rows != 1 || levels < values.len() {
            return Err(no_row());
        }
        Ok(values)
    }

    fn value<T: DataType>(&mut self, reader: &mut ColumnReaderImpl<T>) -> Result<Option<T::T>> {
        Ok(self.values(reader)?.pop())
    }

    fn scalar<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        field: impl FnOnce(T::T) -> Field,
    ) -> Result<Field, Error> {
        Ok(self.value(reader)?.map_or(Field::Null, field))
    }

    /// A number, or the list of them where the column repeats.
    fn numbers<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        field: impl FnOnce(T::T) -> Field,
        number: impl Fn(T::T) -> f32,
    ) -> Result<Field, Error> {
        if is_decimal(self.descr) {
            return self.scalar(reader, |_| Field::Other("a decimal"));
        }
        if self.descr.max_rep_level() == 0 {
            return self.scalar(reader, field);
        }
        let values = self.values(reader)?;
        Ok(match (values.len(), self.def_levels.len()) {
            // One level and no value: the list is null, or has no or one null element.
            (0, 1) => Field::Null,
            (values, levels) if values < levels => Field::Other("a list with nulls"),
            _ => Field::Numbers(values.into_iter().map(number).collect()),
        })
    }
}

fn is_unsigned(descr: &ColumnDescPtr) -> bool {
    let unsigned = [
        ConvertedType::UINT_8,
        ConvertedType::UINT_16,
        ConvertedType::UINT_32,
        ConvertedType::UINT_64,
    ];
    match descr.logical_type_ref() {
        Some(LogicalType::Integer(integer)) => !integer.is_signed,
        _ => unsigned.contains(&descr.converted_type()),
    }
}

fn is_decimal(descr: &ColumnDescPtr) -> bool {
    descr.converted_type() == ConvertedType::DECIMAL
}

fn no_row() -> ParquetError {
    ParquetError::EOF("the column has fewer rows than its row group".to_owned())
}
