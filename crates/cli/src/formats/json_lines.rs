//! JSON lines: an object per line.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde_json::value::RawValue;

use super::lines::Lines;
use super::{KEY_SEPARATOR, KeyPart, Layout, Position, ReadError, Record};
use crate::json_bytes;

/// Reads one JSON object per line.
pub struct JsonLines {
    lines: Lines,
    key_fields: Vec<String>,
    value_field: Option<String>,
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

impl JsonLines {
    pub fn new(input: Box<dyn BufRead>, start: Position, layout: &Layout) -> Self {
        let name = |part: &KeyPart| match part {
            KeyPart::Name(name) => name.clone(),
            KeyPart::Number(number) => number.to_string(),
        };
        let mut key_fields: Vec<_> = layout.key.iter().map(name).collect();
        if key_fields.is_empty() {
            key_fields.push("key".to_owned());
        }
        Self {
            lines: Lines::new(input, start),
            key_fields,
            value_field: layout.value_field.clone(),
        }
    }

    pub fn key_fields(&self) -> &[String] {
        &self.key_fields
    }

    pub fn position(&self) -> Position {
        self.lines.position()
    }

    pub fn next(&mut self) -> Result<Option<(Record, u64)>, ReadError> {
        let (key_fields, value_field) = (&self.key_fields, self.value_field.as_deref());
        let Some((line, number)) = self.lines.next()? else { return Ok(None) };
        match parse(line, key_fields, value_field) {
            Ok(record) => Ok(Some((record, number))),
            Err(what) => Err(ReadError::bad(number, what)),
        }
    }
}

fn parse(line: &[u8], key_fields: &[String], value_field: Option<&str>) -> Result<Record, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim();
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|error| {
        format!("this is not a JSON object, as column {} shows", error.column().max(1))
    })?;
    let mut parts = Vec::new();
    for field in key_fields {
        let part = bytes_of(&fields, field)?;
        parts.push(part.ok_or_else(|| format!("the object has no field `{field}`"))?);
    }
    let key = parts.join(&KEY_SEPARATOR);
    let value = match value_field {
        Some(field) => {
            bytes_of(&fields, field)?.ok_or_else(|| format!("the object has no field `{field}`"))?
        }
        None if is_exported(&fields) => bytes_of(&fields, "value")?.unwrap_or_default(),
        None => text.as_bytes().to_vec(),
    };
    Ok(Record { key, value })
}

/// Whether the object is of the form that `lapis export` writes.
fn is_exported(fields: &Fields<'_>) -> bool {
    let has =
        |name: &str| fields.contains_key(name) != fields.contains_key(&format!("{name}_base64"));
    fields.len() == 2 && has("key") && has("value")
}

/// The bytes of a field: a string's characters, what `FIELD_base64` stands for, or the JSON text of
/// anything else.
fn bytes_of(fields: &Fields<'_>, field: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(raw) = fields.get(field) {
        let text = raw.get();
        return if text.starts_with('"') {
            let string: String = serde_json::from_str(text)
                .map_err(|_| format!("the field `{field}` is not a valid string"))?;
            Ok(Some(string.into_bytes()))
        } else {
            Ok(Some(text.as_bytes().to_vec()))
        };
    }
    let encoded = format!("{field}_base64");
    let Some(raw) = fields.get(&encoded) else { return Ok(None) };
    let decoded =
        serde_json::from_str::<String>(raw.get()).ok().and_then(|s| json_bytes::decode(&s));
    match decoded {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(format!("the field `{encoded}` is not base64")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_value(line: &str, key: &str, value: Option<&str>) -> Result<(String, String), String> {
        let record = parse(line.as_bytes(), &[key.to_owned()], value)?;
        Ok((String::from_utf8(record.key).unwrap(), String::from_utf8(record.value).unwrap()))
    }

    #[test]
    fn the_value_is_the_whole_line_unless_a_field_is_named() {
        let line = r#"{"id":"x","n":1.50}"#;
        assert_eq!(key_value(line, "id", None).unwrap(), ("x".into(), line.into()));
        assert_eq!(key_value(line, "id", Some("n")).unwrap(), ("x".into(), "1.50".into()));
        assert_eq!(key_value(line, "n", None).unwrap().0, "1.50");
    }

    #[test]
    fn exported_objects_give_back_key_and_value() {
        let (key, value) = key_value(r#"{"key":"k","value":"a\nb"}"#, "key", None).unwrap();
        assert_eq!((key.as_str(), value.as_str()), ("k", "a\nb"));
        let record =
            parse(br#"{"key_base64":"/w==","value_base64":"AP8="}"#, &["key".into()], None)
                .unwrap();
        assert_eq!(record, Record { key: vec![0xff], value: vec![0, 0xff] });
    }

    #[test]
    fn an_object_with_more_fields_is_not_taken_for_an_exported_one() {
        let line = r#"{"key":"k","value":"v","more":0}"#;
        assert_eq!(key_value(line, "key", None).unwrap().1, line);
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        let what = |line: &str| key_value(line, "key", None).unwrap_err();
        assert_eq!(what(r#"{"key":"k""#), "this is not a JSON object, as column 10 shows");
        assert_eq!(what("[1]"), "this is not a JSON object, as column 1 shows");
        assert_eq!(what(r#"{"k":1}"#), "the object has no field `key`");
        assert_eq!(what(r#"{"key":"\ud800"}"#), "the field `key` is not a valid string");
        assert_eq!(what(r#"{"key_base64":"%"}"#), "the field `key_base64` is not base64");
        assert_eq!(parse(b"\xff", &["key".into()], None).unwrap_err(), "the line is not UTF-8");
    }
}
