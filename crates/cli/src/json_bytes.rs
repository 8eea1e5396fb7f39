//! Byte strings in JSON: a string where the bytes are UTF-8, else base64 under a `_base64` name.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Adds `bytes` to `object` as `name` if they are UTF-8, else as `name_base64`.
pub fn insert(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), Value::from(text)),
        Err(_) => object.insert(format!("{name}_base64"), Value::from(STANDARD.encode(bytes))),
    };
}

/// The bytes that a base64 string stands for.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Bytes for a sentence: as they are if they are text, else escaped; cut if long.
pub fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 64;
    let cut = &bytes[..bytes.len().min(MOST)];
    let text = cut.escape_ascii().to_string();
    let text = match std::str::from_utf8(cut) {
        Ok(utf8) if utf8.chars().all(|c| !c.is_control()) => utf8.to_owned(),
        _ => text,
    };
    if bytes.len() > MOST { format!("{text}...") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_other_bytes_become_base64() {
        let mut object = Map::new();
        insert(&mut object, "key", "grün".as_bytes());
        insert(&mut object, "value", &[0xff, 0]);
        assert_eq!(object["key"], "grün");
        assert_eq!(decode(object["value_base64"].as_str().unwrap()), Some(vec![0xff, 0]));
        assert!(!object.contains_key("value"));
    }

    #[test]
    fn shown_bytes_are_printable_and_short() {
        assert_eq!(shown(b"a\nb"), "a\\nb");
        assert_eq!(shown("ü".as_bytes()), "ü");
        assert!(shown(&[b'x'; 1000]).len() < 80);
    }
}
