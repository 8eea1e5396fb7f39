//! The tables of a result as CSV (RFC 4180), for spreadsheets and data frames.
//!
//! A column is a field as JSON has it; those of an object within a row are named with a point
//! between: `measured.mops`. What is null in a row is an empty cell. A result with several tables
//! has all their rows, and a first column `table` that says which they are of.

use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A JSON value whose fields are in the order in which they were written.
enum Json {
    Null,
    Scalar(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Scalar(serde_json::Value::from(value).to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = entries.next_entry()? {
            fields.push(field);
        }
        Ok(Json::Object(fields))
    }
}

impl Json {
    /// Adds the cells of this value, which is called `name`, and their columns.
    fn flatten(&self, name: &str, cells: &mut Vec<(String, String)>) {
        let within = |inner: &str| match name {
            "" => inner.to_owned(),
            _ => format!("{name}.{inner}"),
        };
        match self {
            Self::Null => {}
            Self::Scalar(text) => cells.push((name.to_owned(), text.clone())),
            Self::List(values) => {
                let numbered = values.iter().enumerate();
                numbered.for_each(|(at, value)| value.flatten(&within(&at.to_string()), cells));
            }
            Self::Object(fields) => {
                fields.iter().for_each(|(field, value)| value.flatten(&within(field), cells));
            }
        }
    }

    /// The lists of objects in this object, with their names; of those only `rows`, if it has any.
    fn tables(&self) -> Vec<(&str, &[Self])> {
        let Self::Object(fields) = self else { return Vec::new() };
        let lists = fields.iter().filter_map(|(name, value)| match value {
            Self::List(rows) if matches!(rows.first(), Some(Self::Object(_))) => {
                Some((name.as_str(), rows.as_slice()))
            }
            _ => None,
        });
        let tables: Vec<_> = lists.collect();
        match tables.iter().find(|(name, _)| *name == "rows") {
            Some(&rows) => vec![rows],
            None => tables,
        }
    }
}

/// The rows of `result` as CSV, with a heading.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn csv(result: &impl Serialize) -> Result<String, serde_json::Error> {
    of_json(&serde_json::to_string(result)?)
}

fn of_json(result: &str) -> Result<String, serde_json::Error> {
    let result: Json = serde_json::from_str(result)?;
    let tables = result.tables();
    let (mut columns, mut rows) = (Vec::new(), Vec::new());
    for (name, values) in &tables {
        for value in *values {
            let mut cells = Vec::new();
            if tables.len() > 1 {
                cells.push(("table".to_owned(), (*name).to_owned()));
            }
            value.flatten("", &mut cells);
            for (column, _) in &cells {
                if !columns.contains(column) {
                    columns.push(column.clone());
                }
            }
            rows.push(cells);
        }
    }
    let mut text = line(columns.iter().map(String::as_str));
    for cells in rows {
        let of = |column: &String| cells.iter().find(|(name, _)| name == column);
        text += &line(columns.iter().map(|column| of(column).map_or("", |(_, cell)| cell)));
    }
    Ok(text)
}

fn line<'c>(cells: impl Iterator<Item = &'c str>) -> String {
    let quoted = cells.map(|cell| match cell.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    });
    quoted.collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_within_a_row_become_columns_and_what_is_missing_stays_empty() {
        let text = of_json(
            r#"{"rows": [{"variant": "b", "measured": {"mops": 1.0}, "modelled": null},
                {"variant": "a", "measured": null, "modelled": {"mops": 2, "a": true}}],
                "crossovers": [{"lines": 28}]}"#,
        );
        assert_eq!(
            text.unwrap(),
            "variant,measured.mops,modelled.mops,modelled.a\r\nb,1.0,,\r\na,,2,true\r\n"
        );
    }

    #[test]
    fn rows_of_several_tables_say_which_they_are_of() {
        let text = of_json(r#"{"n": 1, "b": [{"x": [1, {"y": 2}]}], "a": [{"x": "c"}], "c": []}"#)
            .unwrap();
        assert_eq!(text, "table,x.0,x.1.y,x\r\nb,1,2,\r\na,,,c\r\n");
    }

    #[test]
    fn commas_quotes_and_line_ends_are_quoted() {
        let text = of_json(r#"{"rows": [{"x": "1,2", "y": "say \"no\"", "z": "a\nb"}]}"#).unwrap();
        assert_eq!(text, "x,y,z\r\n\"1,2\",\"say \"\"no\"\"\",\"a\nb\"\r\n");
    }
}
