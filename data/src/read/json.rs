//! The wanted fields of a JSON object.

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{field::Field, mapping::Column};
use crate::Fault;

/// Reads the fields of one line, null where there is none; others are passed over.
pub(crate) fn parse(line: &[u8], columns: &[Column]) -> Result<Vec<Field>, Fault> {
    let text = std::str::from_utf8(line).map_err(|error| Fault::InvalidUtf8 {
        byte: error.valid_up_to() as u64,
        of: "the line".to_owned(),
    })?;
    let start = text.len() - text.trim_ascii_start().len();
    let json = text.trim_ascii();
    let not_json = |error: serde_json::Error| {
        let reason = error.to_string();
        // Its position is one within this line; the line's own is said beside.
        let reason = reason.split(" at line 1 ").next().unwrap_or(&reason).to_owned();
        Fault::NotJson { byte: (start + error.column().saturating_sub(1)) as u64, reason }
    };
    if !json.starts_with('{') {
        // Valid JSON all the same, such as the array of a file that is no JSON lines?
        let _: IgnoredAny = serde_json::from_str(json).map_err(not_json)?;
        return Err(Fault::NotAnObject { found: json.chars().next().unwrap_or(' ') });
    }
    let mut fields = vec![None; columns.len()];
    let mut parser = serde_json::Deserializer::from_str(json);
    let object = Object { columns, prefix: "", fields: &mut fields };
    object.deserialize(&mut parser).and_then(|()| parser.end()).map_err(not_json)?;
    Ok(fields.into_iter().map(Option::unwrap_or_default).collect())
}

/// An object some of whose fields are wanted: those whose path begins with `prefix`.
struct Object<'a> {
    columns: &'a [Column],
    /// Empty, or the path of this object with a dot behind it.
    prefix: &'a str,
    fields: &'a mut [Option<Field>],
}

/// What a key of an object leads to.
enum Key {
    /// The column of that index.
    Column(usize),
    /// An object that holds columns; with the prefix of their paths.
    Within(String),
    Nothing,
}

/// Looks a key up.
struct KeyOf<'a> {
    columns: &'a [Column],
    prefix: &'a str,
}

impl Visitor<'_> for KeyOf<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Key, E> {
        let mut found = Key::Nothing;
        for (index, column) in self.columns.iter().enumerate() {
            let rest =
                column.path.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix(key));
            match rest {
                Some("") => return Ok(Key::Column(index)),
                Some(rest) if rest.starts_with('.') => {
                    found = Key::Within(format!("{}{key}.", self.prefix));
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

impl<'de> DeserializeSeed<'de> for KeyOf<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Key, D::Error> {
        parser.deserialize_str(self)
    }
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { columns, prefix, fields } = self;
        while let Some(key) = map.next_key_seed(KeyOf { columns, prefix })? {
            match key {
                Key::Column(index) => {
                    if fields[index].replace(map.next_value()?).is_some() {
                        let path = &columns[index].path;
                        return Err(A::Error::custom(format!("`{path}` is there twice")));
                    }
                }
                Key::Within(prefix) => {
                    map.next_value_seed(Object { columns, prefix: &prefix, fields })?;
                }
                Key::Nothing => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    // Where another value stands in the place of an object, the fields in it are not there.

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Self, D::Error> {
        parser.deserialize_any(FieldVisitor)
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Field;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Field, E> {
        Ok(Field::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Field, E> {
        Ok(Field::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Field, E> {
        Ok(Field::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Field, E> {
        Ok(Field::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Field, E> {
        Ok(Field::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Field, E> {
        Ok(Field::Text(value))
    }

    fn visit_unit<E>(self) -> Result<Field, E> {
        Ok(Field::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Field, A::Error> {
        let mut numbers = Vec::new();
        while let Some(element) = seq.next_element()? {
            match element {
                Field::Integer(value) => numbers.push(value as f32),
                Field::Number(value) => numbers.push(value as f32),
                _ => {
                    while seq.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(Field::Other("a list of other things than numbers"));
                }
            }
        }
        Ok(Field::Numbers(numbers))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Field::Other("an object"))
    }
}
