//! `docs/json.md` has every field of all that `--json` prints in any test, and its type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::Value;

/// Set, what is not in the document yet is written into it.
const WRITES: &str = "LAPIS_WRITE_JSON_DOCUMENT";
const BEGIN: &str = "<!-- generated: LAPIS_WRITE_JSON_DOCUMENT=1 cargo test -p lapis-cli -->\n";
const END: &str = "<!-- end of generated -->\n";

/// The types that a field was seen to have.
type Fields = BTreeMap<String, BTreeSet<String>>;

static DOCUMENTED: LazyLock<Mutex<BTreeMap<String, Fields>>> = LazyLock::new(|| {
    let document = std::fs::read_to_string(path()).unwrap();
    let generated = document.split_once(BEGIN).unwrap().1.split_once(END).unwrap().0;
    let mut commands = BTreeMap::<_, Fields>::new();
    for section in generated.split("### ").skip(1) {
        let (title, rows) = section.split_once('\n').unwrap();
        let fields = commands.entry(title.trim_matches('`').to_owned()).or_default();
        for row in rows.lines().filter(|row| row.starts_with("| `")) {
            let [field, types] = row.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>()[..]
            else {
                panic!("{row}")
            };
            let types = types.split(" or ").map(str::to_owned).collect();
            fields.insert(field.trim_matches('`').to_owned(), types);
        }
    }
    Mutex::new(commands)
});

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md"))
}

/// What stands in the document for a command.
fn command_of(words: &[String], printed: &Value) -> String {
    if printed.get("error").is_some() {
        return "any command that fails".to_owned();
    }
    let of_crash = ["--mutants", "--rates", "--all", "--persist-points"];
    let words: Vec<_> = words.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    match words[..] {
        ["lab", "wort", ..] if words.contains(&"--depths") => "lab wort --depths".to_owned(),
        ["lab", experiment, ..] => format!("lab {experiment}"),
        ["crash", ..] => {
            let chosen = of_crash.into_iter().find(|option| words.contains(option));
            chosen.map_or("crash".to_owned(), |option| format!("crash {option}"))
        }
        [command, ..] => command.to_owned(),
        [] => unreachable!("no command"),
    }
}

fn collect(value: &Value, path: &str, fields: &mut Fields) {
    let name = match value {
        // Any field may say nothing, on this machine or on another.
        Value::Null => return,
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !path.is_empty() {
        fields.entry(path.to_owned()).or_default().insert(name.to_owned());
    }
    match value {
        Value::Array(items) => {
            items.iter().for_each(|item| collect(item, &format!("{path}[]"), fields));
        }
        Value::Object(entries) => {
            let dot = if path.is_empty() { "" } else { "." };
            entries
                .iter()
                .for_each(|(key, item)| collect(item, &format!("{path}{dot}{key}"), fields));
        }
        _ => {}
    }
}

/// Sees to it that the document has all that a command printed.
pub fn check(words: &[String], printed: &Value) {
    let mut documented = DOCUMENTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (command, mut fields) = (command_of(words, printed), Fields::new());
    collect(printed, "", &mut fields);
    let known = documented.entry(command.clone()).or_default();
    let is_known = |(field, types): &(String, BTreeSet<String>)| {
        known.get(field).is_some_and(|known| types.is_subset(known))
    };
    let (_, new): (Vec<_>, Vec<_>) = fields.into_iter().partition(is_known);
    if new.is_empty() {
        return;
    }
    assert!(
        std::env::var_os(WRITES).is_some(),
        "docs/json.md lacks of `{command}`: {new:?}; {WRITES}=1 writes it"
    );
    for (field, types) in new {
        known.entry(field).or_default().extend(types);
    }
    let mut generated = String::new();
    for (command, fields) in &*documented {
        let _ = write!(generated, "### `{command}`\n\n| field | type |\n|---|---|\n");
        for (field, types) in fields {
            let types: Vec<_> = types.iter().map(String::as_str).collect();
            let _ = writeln!(generated, "| `{field}` | {} |", types.join(" or "));
        }
        generated.push('\n');
    }
    let document = std::fs::read_to_string(path()).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let after = rest.split_once(END).unwrap().1;
    std::fs::write(path(), format!("{before}{BEGIN}\n{generated}{END}{after}")).unwrap();
}
