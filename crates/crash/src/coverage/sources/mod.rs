//! What sources say that can happen in them: persist points and events.
//!
//! A flush, fence or non-temporal copy is known by the place that called it, by way of functions that are
//! `#[track_caller]` (`lapis_pmem::domain`). So the calls of such functions are the persist points, and
//! which functions come to a flush or a fence follows from what they call in turn. Calls are told apart by
//! name and number of arguments, and by where the function that they mean can be seen. That is no type
//! checker, but a test compares it with what runs pass: each of those points must be here. An event is
//! what stands in a call of `happens`.
//!
//! The build script reads the sources of the workspace with this module, so that a place that no run of
//! anything passes is known too. A list in the repository would be wrong after each edit above a call,
//! and what is registered when it is passed knows nothing of what is not.

mod reader;
mod tokens;

use reader::Reader;
use tokens::tokens;

/// A source file, by its path from the root of the workspace.
pub struct Source {
    pub path: String,
    pub text: String,
}

/// A place that flushes, fences or copies non-temporally.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PersistCall {
    pub path: String,
    pub line: u32,
    pub column: u32,
    pub kind: Kind,
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Flush,
    Fence,
    NonTemporal,
}

/// What a domain itself does, by name.
const BY_A_DOMAIN: [(&str, Kind); 4] = [
    ("flush_range", Kind::Flush),
    ("fence", Kind::Fence),
    ("copy_nontemporal", Kind::NonTemporal),
    ("zero_nontemporal", Kind::NonTemporal),
];

/// What is found in all files.
pub struct Findings {
    /// In the order of files and lines.
    pub persist_calls: Vec<PersistCall>,
    /// File and name.
    pub events: Vec<(String, String)>,
}

/// Reads all files.
pub fn read(sources: &[Source]) -> Findings {
    let files: Vec<File<'_>> = sources.iter().map(File::read).collect();
    let mut events = Vec::new();
    for file in &files {
        let calls = file.functions.iter().flat_map(|it| &it.calls);
        for name in calls.filter(|call| call.name == "happens").flat_map(|call| &call.literals) {
            events.push((file.path.to_owned(), (*name).to_owned()));
        }
    }
    events.sort();
    events.dedup();
    Findings { persist_calls: persist_calls(&files), events }
}

fn persist_calls(files: &[File<'_>]) -> Vec<PersistCall> {
    // Those that forward nobody's place stand for themselves: a call that means one of them means no other.
    let mut functions: Vec<(&str, &Function<'_>)> = Vec::new();
    for file in files {
        functions.extend(file.functions.iter().map(|it| (file.path, it)));
    }
    // What each comes to, until nothing is added: functions call one another.
    let mut kinds: Vec<Vec<Kind>> = functions.iter().map(|(_, it)| it.own_kinds()).collect();
    let is_own: Vec<bool> = kinds.iter().map(|kinds| !kinds.is_empty()).collect();
    loop {
        let mut changed = false;
        for (number, (path, function)) in functions.iter().enumerate() {
            // How a machine does that is its own, and what forwards no place has its own points.
            if is_own[number] || !function.tracks {
                continue;
            }
            let direct = function.calls.iter().filter(|call| !call.is_in_closure);
            let found = direct.flat_map(|call| meant(call, path, &functions, &kinds));
            for kind in found.collect::<Vec<_>>() {
                if !kinds[number].contains(&kind) {
                    kinds[number].push(kind);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    let mut calls = Vec::new();
    for file in files {
        // A closure does not forward the place of who calls its function.
        let outside = file
            .functions
            .iter()
            .flat_map(|it| it.calls.iter().filter(|call| !it.tracks || call.is_in_closure));
        for call in outside {
            for kind in meant(call, file.path, &functions, &kinds) {
                let (line, column) = call.at;
                calls.push(PersistCall { path: file.path.to_owned(), line, column, kind });
            }
        }
    }
    calls.sort();
    calls.dedup();
    calls
}

/// What the function that is called comes to.
fn meant(
    call: &Call<'_>,
    path: &str,
    functions: &[(&str, &Function<'_>)],
    kinds: &[Vec<Kind>],
) -> Vec<Kind> {
    // Of a block device it is a request.
    if call.receiver == Some("device") {
        return Vec::new();
    }
    let all = functions.iter().zip(kinds);
    let mut same: Vec<_> = all
        .filter(|((place, it), _)| {
            let is_method = call.form == Form::Path || it.is_method == (call.form == Form::Method);
            let is_same = (it.name, it.parameters) == (call.name, call.arguments);
            is_same && is_method && it.is_seen(place, path) && is_in(call.qualifier, place)
        })
        .collect();
    // What a type has itself comes before what traits give it.
    if call.receiver == Some("self") && same.iter().any(|((place, _), _)| is_beside(place, path)) {
        same.retain(|((place, _), _)| is_beside(place, path));
    }
    let mut found: Vec<Kind> = same.iter().flat_map(|(_, kinds)| kinds.iter().copied()).collect();
    found.sort();
    found.dedup();
    found
}

/// Whether a function of this file can be meant by a path that leads through this module.
fn is_in(qualifier: Option<&str>, place: &str) -> bool {
    let module = |name: &str| {
        let is_type = name.starts_with(char::is_uppercase);
        (!is_type && !["crate", "self", "super"].contains(&name)).then(|| name.to_owned())
    };
    qualifier.and_then(module).is_none_or(|name| {
        place.ends_with(&format!("/{name}.rs")) || place.ends_with(&format!("/{name}/mod.rs"))
    })
}

/// Whether two files are in the same crates/NAME/src/MODULE.
fn is_beside(one: &str, other: &str) -> bool {
    one.split('/').take(4).eq(other.split('/').take(4))
}

/// How far a function can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Everywhere,
    InCrate,
    InModule,
}

#[derive(Debug)]
struct Function<'s> {
    name: &'s str,
    /// The receiver included.
    parameters: usize,
    is_method: bool,
    tracks: bool,
    seen: Seen,
    calls: Vec<Call<'s>>,
}

impl Function<'_> {
    fn own_kinds(&self) -> Vec<Kind> {
        let own = BY_A_DOMAIN
            .iter()
            .filter(|(name, _)| self.seen == Seen::Everywhere && *name == self.name);
        own.map(|(_, kind)| *kind).collect()
    }

    /// Whether code in the file `path` can call it, which is in `place`.
    fn is_seen(&self, place: &str, path: &str) -> bool {
        match self.seen {
            Seen::Everywhere => true,
            // crates/NAME
            Seen::InCrate => place.split('/').take(2).eq(path.split('/').take(2)),
            Seen::InModule => is_beside(place, path),
        }
    }
}

/// How a function is named that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Method,
    Path,
    Plain,
}

#[derive(Debug)]
struct Call<'s> {
    name: &'s str,
    /// The receiver included.
    arguments: usize,
    form: Form,
    /// The last name before the dot.
    receiver: Option<&'s str>,
    /// The last name before the two colons.
    qualifier: Option<&'s str>,
    /// Line and column, as the compiler numbers them.
    at: (u32, u32),
    is_in_closure: bool,
    /// What stands between quotes in its arguments.
    literals: Vec<&'s str>,
}

#[derive(Debug)]
struct File<'s> {
    path: &'s str,
    functions: Vec<Function<'s>>,
}

impl<'s> File<'s> {
    fn read(source: &'s Source) -> Self {
        let mut reader = Reader { tokens: tokens(&source.text), at: 0, functions: Vec::new() };
        reader.items(false);
        Self { path: &source.path, functions: reader.functions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(u32, u32, Kind)> {
        let domain = Source {
            path: "crates/pmem/src/domain.rs".to_owned(),
            text: "pub trait Domain { #[track_caller] fn flush_range(&self, start: *const u8, bytes: usize); \
                   #[track_caller] fn fence(&self); #[track_caller] fn persist<T>(&self, what: &T) { \
                   self.flush_range(what, 8); self.fence(); } }"
                .to_owned(),
        };
        let path = "crates/index/src/tree/mod.rs".to_owned();
        let own = Source { path: path.clone(), text: text.to_owned() };
        let calls = read(&[domain, own]).persist_calls;
        let here = calls.into_iter().filter(|call| call.path == path);
        here.map(|call| (call.line, call.column, call.kind)).collect()
    }

    #[test]
    fn a_call_that_comes_to_a_flush_and_a_fence_is_two_points_of_its_name() {
        let text = "fn change(&self) {\n    self.domain().persist(&self.word);\n}";
        assert_eq!(found(text), [(2, 19, Kind::Flush), (2, 19, Kind::Fence)]);
    }

    #[test]
    fn who_forwards_the_place_of_its_caller_has_no_point_and_its_callers_have() {
        let text = "#[track_caller]\nfn settle(domain: &D) { domain.fence(); }\n\
                    fn change() { Self::settle::<D>(&domain); other(|| domain.fence()) }\n\
                    #[track_caller] fn by(d: &D) { with(1, |a| d.fence()); }";
        let here = |line, column| (line, column, Kind::Fence);
        assert_eq!(found(text), [here(3, 15), here(3, 59), here(4, 46)]);
    }

    #[test]
    fn tests_comments_and_text_have_no_points() {
        let text = "#[cfg(test)] mod tests { fn a() { domain.fence(); } }\n\
                    // domain.fence()\nfn b<'d>() { let c = '\"'; let d = \"domain.fence()\"; }";
        assert_eq!(found(text), []);
    }

    #[test]
    fn as_many_arguments_as_the_function_has_make_the_call_another_one() {
        let text = "fn a() { domain.persist(); domain.persist(&one, &two); }";
        assert_eq!(found(text), []);
    }

    #[test]
    fn what_only_a_known_error_does_is_no_point_and_what_a_macro_is_given_ends_nothing() {
        let text = "persistent! { pub struct A: 8 { a: u64 } }\n\
                    fn a() { if domain.commits(M) { domain.fence(); } else { domain.fence(); } \
                    if !domain.commits(M) { domain.fence(); } fence(Order); }";
        assert_eq!(found(text), [(2, 65, Kind::Fence), (2, 107, Kind::Fence)]);
    }

    #[test]
    fn a_path_through_a_module_means_what_is_there_and_a_type_has_its_own_methods_first() {
        let domain = "pub trait Domain { #[track_caller] fn flush_range(&self, a: A, b: B); #[track_caller] fn fence(&self); }";
        let table = "#[track_caller] pub fn empty(d: D) { d.fence(); } impl Table { #[track_caller] pub fn grow(&self, d: D) { d.fence(); } }";
        let text = "fn a() { std::sync::atomic::fence(Order); resize::empty(d); table::empty(d); self.grow(d); it.grow(d); }\n\
                    impl Tree { fn grow(&self, d: D) {} }";
        let files = [
            ("crates/pmem/src/domain.rs", domain),
            ("crates/index/src/tables/table.rs", table),
            ("crates/index/src/tree/mod.rs", text),
        ];
        let files =
            files.map(|(path, text)| Source { path: path.to_owned(), text: text.to_owned() });
        let calls = read(&files).persist_calls;
        let here = calls.into_iter().filter(|call| call.path.contains("tree"));
        let found: Vec<_> = here.map(|call| (call.line, call.column)).collect();
        let places =
            ["table::empty", "grow(d); }"].map(|call| (1, text.find(call).unwrap() as u32 + 1));
        assert_eq!(found, places);
    }

    #[test]
    fn an_event_is_what_stands_in_the_call() {
        let text =
            "fn a() { domain.happens(if leaf { \"split\" } else { \"growth\" }); }".to_owned();
        let events = read(&[Source { path: "a.rs".to_owned(), text }]).events;
        let names: Vec<_> = events.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["growth", "split"]);
    }
}
