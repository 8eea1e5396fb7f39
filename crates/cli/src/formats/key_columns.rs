//! Which columns of a record are its key.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What stands between the parts of a key of several columns.
pub const KEY_SEPARATOR: u8 = b':';

/// A column as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyPart {
    /// By its number, from 1.
    Number(usize),
    /// By its name: in the first line, or of a field.
    Name(String),
}

impl FromStr for KeyPart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(0) => Err("columns are counted from 1".to_owned()),
            Ok(number) => Ok(Self::Number(number)),
            Err(_) if text.is_empty() => Err("a column has a number or a name".to_owned()),
            Err(_) => Ok(Self::Name(text.to_owned())),
        }
    }
}

/// The columns of the key, found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyColumns {
    /// Counted from 0.
    columns: Vec<usize>,
    /// What they are called.
    pub names: Vec<String>,
}

impl KeyColumns {
    /// The columns that are asked for (none: the first), in a file whose first line has these fields, if
    /// they are names.
    pub fn find<'f>(
        asked: &[KeyPart],
        header: Option<impl Iterator<Item = &'f [u8]>>,
    ) -> Result<Self, String> {
        let header: Option<Vec<&[u8]>> = header.map(Iterator::collect);
        let mut found = Self { columns: Vec::new(), names: Vec::new() };
        let first = [KeyPart::Number(1)];
        for part in if asked.is_empty() { &first[..] } else { asked } {
            let column = match part {
                KeyPart::Number(number) => number - 1,
                KeyPart::Name(name) => header
                    .iter()
                    .flatten()
                    .position(|field| *field == name.as_bytes())
                    .ok_or_else(|| format!("no column is named `{name}`"))?,
            };
            let name = header.as_ref().and_then(|header| header.get(column));
            found.names.push(match name {
                Some(name) => String::from_utf8_lossy(name).into_owned(),
                None => format!("column {}", column + 1),
            });
            found.columns.push(column);
        }
        Ok(found)
    }

    /// Fields that are found by their names in each record.
    pub fn fields(names: &[String]) -> Self {
        Self { columns: Vec::new(), names: names.to_vec() }
    }

    /// The key of a record, and its other fields.
    pub fn split<'f>(&self, fields: &[&'f [u8]]) -> Result<(Vec<u8>, Vec<&'f [u8]>), String> {
        let mut key = Vec::new();
        for (at, &column) in self.columns.iter().enumerate() {
            let Some(field) = fields.get(column) else {
                let (count, column) = (fields.len(), column + 1);
                return Err(format!(
                    "there are {count} fields, and the key is to be field {column}"
                ));
            };
            if at > 0 {
                key.push(KEY_SEPARATOR);
            }
            key.extend_from_slice(field);
        }
        let others = fields.iter().enumerate().filter(|(at, _)| !self.columns.contains(at));
        Ok((key, others.map(|(_, field)| *field).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(asked: &[&str], header: Option<&[&'static [u8]]>) -> Result<KeyColumns, String> {
        let asked: Vec<KeyPart> = asked.iter().map(|part| part.parse().unwrap()).collect();
        KeyColumns::find(&asked, header.map(|header| header.iter().copied()))
    }

    #[test]
    fn columns_are_found_by_number_and_by_name() {
        let header: &[&'static [u8]] = &[b"version", b"time", b"lbn"];
        let found = find(&["lbn", "1"], Some(header)).unwrap();
        assert_eq!(found.names, ["lbn", "version"]);
        assert_eq!(found.split(&[b"1", b"77", b"9"]).unwrap(), (b"9:1".to_vec(), vec![&b"77"[..]]));
        assert_eq!(find(&[], None).unwrap().names, ["column 1"]);
        assert_eq!(find(&["size"], Some(header)).unwrap_err(), "no column is named `size`");
        assert_eq!(find(&["size"], None).unwrap_err(), "no column is named `size`");
        assert!("0".parse::<KeyPart>().is_err() && "".parse::<KeyPart>().is_err());
    }
}
