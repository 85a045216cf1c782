//! A record's fields → a document, or the reason why not.

use std::sync::Arc;

use super::{ReadOptions, field::Field, records::Record};
use crate::{DEFAULT_DOMAIN, Document, Fault, Reason, SourceConfig};

/// A field to be read.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its name, or dotted path.
    pub(crate) path: String,
    /// Whether every record needs a value for it.
    pub(crate) required: bool,
    /// Whether it is a list of numbers.
    pub(crate) is_list: bool,
}

/// Why a record is no document of the pool.
#[derive(Debug)]
pub(crate) enum LeftOut {
    /// It cannot be read as one.
    Fault(Fault),
    /// It is not wanted; with the evidence.
    Unwanted(Reason, String),
}

impl From<Fault> for LeftOut {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Which field is what: places in [`Mapping::columns`].
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    config: Arc<SourceConfig>,
    columns: Vec<Column>,
    id: usize,
    domain: Option<usize>,
    quality: Option<usize>,
    source: usize,
    score: Option<usize>,
    embedding: Option<usize>,
    require: Vec<usize>,
}

/// Place of the text among the columns.
pub(crate) const TEXT: usize = 0;

impl Mapping {
    pub(crate) fn new(config: &Arc<SourceConfig>) -> Self {
        let named = &config.columns;
        let mut columns = Vec::new();
        let text = Column {
            path: named.text.clone().unwrap_or_else(|| "text".to_owned()),
            required: true,
            is_list: false,
        };
        columns.push(text);
        let mut place = |name: &Option<String>, default: &str| {
            let path = name.as_deref().unwrap_or(default);
            place_of(&mut columns, path, name.is_some(), false)
        };
        let id = place(&named.id, "id");
        let source = place(&named.source, "source");
        // A constant makes the column beside it not wanted.
        let domain = config.domain.is_none().then(|| place(&named.domain, "domain"));
        let quality = config.quality.is_none().then(|| place(&named.quality, "quality"));
        let score = named.score.as_ref().map(|path| place_of(&mut columns, path, true, false));
        let embedding =
            named.embedding.as_ref().map(|path| place_of(&mut columns, path, true, true));
        let rules = config.require.keys();
        let require = rules.map(|path| place_of(&mut columns, path, false, false)).collect();
        let config = Arc::clone(config);
        Self { config, columns, id, domain, quality, source, score, embedding, require }
    }

    /// The fields to read, the text first.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Columns that a table must have: those that are named, and those that rules look at.
    pub(crate) fn must_exist(&self, index: usize) -> bool {
        self.columns[index].required || self.require.contains(&index)
    }

    /// Makes the document; the record keeps its fields if it is none.
    pub(crate) fn document(
        &self,
        record: &mut Record,
        options: &ReadOptions,
    ) -> Result<Document, LeftOut> {
        if let Some(problem) = record.problem.take() {
            return Err(problem);
        }
        // First: they say which records are meant at all.
        self.check_rules(&record.fields)?;
        let of = |index: usize| (&record.fields[index], self.columns[index].path.as_str());
        for (field, column) in record.fields.iter().zip(&self.columns) {
            if column.required && *field == Field::Null {
                return Err(Fault::Missing { column: column.path.clone() }.into());
            }
        }
        let (Field::Text(text), _) = of(TEXT) else {
            let (field, column) = of(TEXT);
            return Err(field.wrong(column, "a string").into());
        };
        let name = |index| {
            let (field, column) = of(index);
            field.name(column)
        };
        let id = match (name(self.id)?, &record.id) {
            (Some(id), _) => id,
            (None, Some(id)) => id.clone(),
            (None, None) => format!("{}:{}", record.file, record.number),
        };
        let domain = match self.domain {
            Some(index) => name(index)?.unwrap_or_else(|| DEFAULT_DOMAIN.to_owned()),
            None => self.config.domain.clone().unwrap_or_default(),
        };
        let quality = match self.quality.map(of) {
            Some((field, column)) => field.level(column)?.unwrap_or(0),
            None => self.config.quality.unwrap_or_default(),
        };
        let origin = name(self.source)?.unwrap_or_else(|| record.file.to_string());
        let score = self.score.map(of).map(|(field, column)| field.score(column));
        let embedding = self.embedding.map(of).map(|(field, column)| field.embedding(column));
        let (score, embedding) = (score.transpose()?.flatten(), embedding.transpose()?.flatten());
        check_length(text, options)?;
        let mut document = Document {
            id,
            text: String::new(),
            domain,
            quality,
            origin,
            file: Arc::clone(&record.file),
            record: record.number,
            score,
            embedding,
        };
        if options.checks_domain && !document.cell().has_valid_domain() {
            let Document { id: document, domain, .. } = document;
            return Err(Fault::Domain { document, domain }.into());
        }
        // Last, so that all that is left out still has its text.
        if let Field::Text(text) = std::mem::take(&mut record.fields[TEXT]) {
            document.text = text;
        }
        Ok(document)
    }

    fn check_rules(&self, fields: &[Field]) -> Result<(), LeftOut> {
        for (&index, (column, values)) in self.require.iter().zip(&self.config.require) {
            let field = &fields[index];
            if !values.iter().any(|value| field.equals(value)) {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                let (found, values) = (field.in_words(), values.join(" or "));
                let evidence = format!("`{column}` is {found}; need {values}");
                return Err(LeftOut::Unwanted(Reason::Rule, evidence));
            }
        }
        Ok(())
    }
}

/// The index of a column, which is added if it is new.
fn place_of(columns: &mut Vec<Column>, path: &str, required: bool, is_list: bool) -> usize {
    if let Some(index) = columns.iter().position(|column| column.path == path) {
        columns[index].required |= required;
        return index;
    }
    columns.push(Column { path: path.to_owned(), required, is_list });
    columns.len() - 1
}

fn check_length(text: &str, options: &ReadOptions) -> Result<(), LeftOut> {
    let (max, min) = (options.limits.max_bytes, options.limits.min_characters);
    if text.is_empty() {
        return Err(LeftOut::Unwanted(Reason::Empty, "the text is empty".to_owned()));
    }
    let bytes = text.len() as u64;
    if bytes > max {
        let evidence = format!("{bytes} bytes; `limits.max_bytes` is {max}");
        return Err(LeftOut::Unwanted(Reason::TooLong, evidence));
    }
    // No need to count the characters of a long text.
    let enough = bytes / 4 >= min || text.chars().count() as u64 >= min;
    if !enough {
        let found = text.chars().count();
        let evidence = format!("{found} characters; `limits.min_characters` is {min}");
        return Err(LeftOut::Unwanted(Reason::Rule, evidence));
    }
    Ok(())
}
