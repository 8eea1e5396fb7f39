//! The tables of a result as CSV (RFC 4180), for spreadsheets and data frames.
//!
//! A column is a field of the JSON, in the order in which it stands there; those of an object within a
//! row are named with a point between: `measured.mops`. What is null in a row is an empty cell. A result
//! with several tables has all their rows, and a first column `table` that says which they are of. What is a list
//! has one table.

use serde::Serialize;
use serde_json::{Map, Value};

/// The rows of `result` as CSV, with a heading.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn csv(result: &impl Serialize) -> Result<String, serde_json::Error> {
    let result = serde_json::to_value(result)?;
    let fields =
        result.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value));
    // A list is a table of its own.
    let lists = fields.chain([("rows", &result)]);
    let lists = lists.filter_map(|(name, value)| Some((name, value.as_array()?)));
    let mut tables: Vec<(&str, &Vec<Value>)> =
        lists.filter(|(_, rows)| rows.first().is_some_and(Value::is_object)).collect();
    // What is worked out from the rows is no table of its own.
    if tables.iter().any(|(name, _)| *name == "rows") {
        tables.retain(|(name, _)| *name == "rows");
    }
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    for (name, values) in &tables {
        for value in *values {
            let mut cells = Map::new();
            if tables.len() > 1 {
                cells.insert("table".to_owned(), (*name).into());
            }
            flatten("", value, &mut cells);
            // A column that is new in this row stands behind the one before it.
            let mut place = 0;
            for column in cells.keys() {
                let known = columns.iter().position(|one| one == column);
                place = 1 + known.unwrap_or_else(|| {
                    columns.insert(place, column.clone());
                    place
                });
            }
            rows.push(cells);
        }
    }
    let mut text = line(columns.iter().cloned());
    for cells in &rows {
        text += &line(columns.iter().map(|column| match cells.get(column) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        }));
    }
    Ok(text)
}

/// Adds the cells of a value that is called `name`, by column.
fn flatten(name: &str, value: &Value, cells: &mut Map<String, Value>) {
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
        _ => _ = cells.insert(name.to_owned(), value.clone()),
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let quoted = cells.map(|cell| match cell.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
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
            {"variant": "b", "measured": null, "modelled": {"mops": 2, "a": true}},
            {"variant": "a", "measured": {"mops": 1.0}, "modelled": null},
        ], "crossovers": [{"lines": 28}]});
        let text = "variant,measured.mops,modelled.mops,modelled.a\r\nb,,2,true\r\na,1.0,,\r\n";
        assert_eq!(csv(&result).unwrap(), text);
    }

    #[test]
    fn rows_of_several_tables_say_which_they_are_of() {
        let result = json!({"n": 1, "a": [{"x": [1, {"y": 2}]}], "b": [{"x": "c"}], "c": []});
        assert_eq!(csv(&result).unwrap(), "table,x,x.0,x.1.y\r\na,,1,2\r\nb,c,,\r\n");
    }

    #[test]
    fn a_list_is_one_table() {
        assert_eq!(csv(&json!([{"x": 1}, {"x": 2}])).unwrap(), "x\r\n1\r\n2\r\n");
    }

    #[test]
    fn commas_quotes_and_line_ends_are_quoted() {
        let result = json!({"rows": [{"x": "1,2", "y": "say \"no\"", "z": "a\nb"}]});
        let text = "x,y,z\r\n\"1,2\",\"say \"\"no\"\"\",\"a\nb\"\r\n";
        assert_eq!(csv(&result).unwrap(), text);
    }
}
