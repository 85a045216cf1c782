//! A value of a record, whatever format it comes from.

use serde_json::json;

use crate::{Fault, Scalar};

/// A value of a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Field {
    /// Absent or null.
    #[default]
    Null,
    Bool(bool),
    Integer(i128),
    Number(f64),
    Text(String),
    Numbers(Vec<f32>),
    /// Anything else, in words.
    Other(&'static str),
}

impl Field {
    /// A string, or a whole number as one; none if there is no value.
    pub(crate) fn name(&self, column: &str) -> Result<Option<String>, Fault> {
        match self {
            Self::Null => Ok(None),
            Self::Text(text) => Ok(Some(text.clone())),
            Self::Integer(value) => Ok(Some(value.to_string())),
            _ => Err(self.wrong(column, "a string or a whole number")),
        }
    }

    /// A whole number from 0 to 4,294,967,295; none if there is no value.
    pub(crate) fn level(&self, column: &str) -> Result<Option<u32>, Fault> {
        let level = match self {
            Self::Null => return Ok(None),
            Self::Integer(value) => u32::try_from(*value).ok(),
            // Whole numbers of a column with nulls are often written as fractional ones.
            Self::Number(value) if f64::from(*value as u32) == *value => Some(*value as u32),
            _ => None,
        };
        level.map(Some).ok_or_else(|| self.wrong(column, "a whole number from 0 (u32)"))
    }

    /// A finite number; none if there is no value.
    pub(crate) fn score(&self, column: &str) -> Result<Option<f64>, Fault> {
        match self {
            Self::Null => Ok(None),
            Self::Integer(value) => Ok(Some(*value as f64)),
            Self::Number(value) if value.is_finite() => Ok(Some(*value)),
            _ => Err(self.wrong(column, "a finite number")),
        }
    }

    /// A list of finite numbers; none if there is no value.
    pub(crate) fn embedding(&self, column: &str) -> Result<Option<Vec<f32>>, Fault> {
        match self {
            Self::Null => Ok(None),
            Self::Numbers(values) if values.iter().all(|value| value.is_finite()) => {
                Ok(Some(values.clone()))
            }
            _ => Err(self.wrong(column, "a list of finite numbers")),
        }
    }

    pub(crate) fn wrong(&self, column: &str, needed: &'static str) -> Fault {
        Fault::FieldType { column: column.to_owned(), found: self.in_words(), needed }
    }

    /// Whether it is the value that a rule asks for.
    pub(crate) fn equals(&self, wanted: &Scalar) -> bool {
        match (self, wanted) {
            (Self::Bool(found), Scalar::Bool(wanted)) => found == wanted,
            (Self::Text(found), Scalar::Text(wanted)) => found == wanted,
            (Self::Integer(found), Scalar::Integer(wanted)) => *found == i128::from(*wanted),
            (Self::Integer(found), Scalar::Number(wanted)) => *found as f64 == *wanted,
            (Self::Number(found), Scalar::Integer(wanted)) => *found == *wanted as f64,
            (Self::Number(found), Scalar::Number(wanted)) => found == wanted,
            _ => false,
        }
    }

    /// For messages: short whatever it is.
    pub(crate) fn in_words(&self) -> String {
        /// Characters of a string that a message shows.
        const SHOWN: usize = 60;
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::Text(text) if text.chars().nth(SHOWN).is_none() => format!("{text:?}"),
            Self::Text(text) => {
                let start: String = text.chars().take(SHOWN).collect();
                format!("a string that starts with {start:?}")
            }
            Self::Numbers(values) => format!("a list of {} numbers", values.len()),
            Self::Other(what) => (*what).to_owned(),
        }
    }

    /// For quarantine.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => json!(value),
            Self::Integer(value) => {
                i64::try_from(*value).map_or_else(|_| json!(*value as u64), serde_json::Value::from)
            }
            Self::Number(value) => json!(value),
            Self::Text(text) => json!(text),
            Self::Numbers(values) => json!(values),
            Self::Other(what) => json!(format!("({what})")),
        }
    }
}
