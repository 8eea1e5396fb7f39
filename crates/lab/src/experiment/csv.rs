//! The tables of a result as CSV (RFC 4180), for spreadsheets and data frames.
//!
//! A column is a field of the JSON, and columns are in the order of their names; those of an object within a row are named with a point
//! between: `measured.mops`. What is null in a row is an empty cell. A result with several tables
//! has all their rows, and a first column `table` that says which they are of.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

/// The rows of `result` as CSV, with a heading.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn csv(result: &impl Serialize) -> Result<String, serde_json::Error> {
    let result = serde_json::to_value(result)?;
    let lists = result.as_object().into_iter().flatten();
    let lists = lists.filter_map(|(name, value)| Some((name.as_str(), value.as_array()?)));
    let mut tables: Vec<(&str, &Vec<Value>)> =
        lists.filter(|(_, rows)| rows.first().is_some_and(Value::is_object)).collect();
    // What is worked out from the rows is no table of its own.
    if tables.iter().any(|(name, _)| *name == "rows") {
        tables.retain(|(name, _)| *name == "rows");
    }
    let mut rows: Vec<BTreeMap<String, String>> = Vec::new();
    for (name, values) in &tables {
        for value in *values {
            let mut cells = BTreeMap::new();
            if tables.len() > 1 {
                cells.insert("table".to_owned(), (*name).to_owned());
            }
            flatten("", value, &mut cells);
            rows.push(cells);
        }
    }
    let columns: BTreeSet<&String> = rows.iter().flat_map(BTreeMap::keys).collect();
    let mut text = line(columns.iter().map(|column| column.as_str()));
    for cells in &rows {
        text += &line(columns.iter().map(|column| cells.get(*column).map_or("", String::as_str)));
    }
    Ok(text)
}

/// Adds the cells of a value that is called `name`, by column.
fn flatten(name: &str, value: &Value, cells: &mut BTreeMap<String, String>) {
    let within = |inner: &str| match name {
        "" => inner.to_owned(),
        _ => format!("{name}.{inner}"),
    };
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            fields.iter().for_each(|(field, value)| flatten(&within(field), value, cells));
        }
        Value::Array(values) => {
            let numbered = values.iter().enumerate();
            numbered.for_each(|(at, value)| flatten(&within(&at.to_string()), value, cells));
        }
        Value::String(text) => _ = cells.insert(name.to_owned(), text.clone()),
        Value::Bool(_) | Value::Number(_) => _ = cells.insert(name.to_owned(), value.to_string()),
    }
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
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_within_a_row_become_columns_and_what_is_missing_stays_empty() {
        let result = json!({"rows": [
            {"variant": "b", "measured": {"mops": 1.0}, "modelled": null},
            {"variant": "a", "measured": null, "modelled": {"mops": 2, "a": true}},
        ], "crossovers": [{"lines": 28}]});
        let text = "measured.mops,modelled.a,modelled.mops,variant\r\n1.0,,,b\r\n,true,2,a\r\n";
        assert_eq!(csv(&result).unwrap(), text);
    }

    #[test]
    fn rows_of_several_tables_say_which_they_are_of() {
        let result = json!({"n": 1, "a": [{"x": [1, {"y": 2}]}], "b": [{"x": "c"}], "c": []});
        assert_eq!(csv(&result).unwrap(), "table,x,x.0,x.1.y\r\na,,1,2\r\nb,c,,\r\n");
    }

    #[test]
    fn commas_quotes_and_line_ends_are_quoted() {
        let result = json!({"rows": [{"x": "1,2", "y": "say \"no\"", "z": "a\nb"}]});
        let text = "x,y,z\r\n\"1,2\",\"say \"\"no\"\"\",\"a\nb\"\r\n";
        assert_eq!(csv(&result).unwrap(), text);
    }
}
