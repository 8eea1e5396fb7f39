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
    let mut functions: Vec<(&str, &Function<'_>)> = Vec::new();
    for file in files {
        functions.extend(file.functions.iter().filter(|it| it.tracks).map(|it| (file.path, it)));
    }
    // What each comes to, until nothing is added: functions call one another.
    let mut kinds: Vec<Vec<Kind>> = functions.iter().map(|(_, it)| it.own_kinds()).collect();
    let is_own: Vec<bool> = kinds.iter().map(|kinds| !kinds.is_empty()).collect();
    loop {
        let mut changed = false;
        for (number, (path, function)) in functions.iter().enumerate() {
            // How a machine does that is its own.
            if is_own[number] {
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
    let same = all.filter(|((place, it), _)| {
        let is_method = call.form == Form::Path || it.is_method == (call.form == Form::Method);
        let is_same = (it.name, it.parameters) == (call.name, call.arguments);
        is_same && is_method && it.is_seen(place, path)
    });
    let mut found: Vec<Kind> = same.flat_map(|(_, kinds)| kinds.iter().copied()).collect();
    found.sort();
    found.dedup();
    found
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
        let parts = |path: &str, count: usize| {
            path.split('/').take(count).map(str::to_owned).collect::<Vec<_>>()
        };
        match self.seen {
            Seen::Everywhere => true,
            // crates/NAME
            Seen::InCrate => parts(place, 2) == parts(path, 2),
            // crates/NAME/src/MODULE
            Seen::InModule => parts(place, 4) == parts(path, 4),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'s> {
    Name(&'s str),
    Mark(char),
    /// A literal, or a lifetime, as it stands there.
    Literal(&'s str),
}

type Placed<'s> = (Token<'s>, (u32, u32));

/// The tokens of a file, without comments.
fn tokens(text: &str) -> Vec<Placed<'_>> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    let (mut line, mut line_begins) = (1, 0);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let column = text[line_begins..at].chars().count() as u32 + 1;
        let place = (line, column);
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = literal(rest) {
            found.push((Token::Literal(&rest[..length]), place));
            length
        } else if first == '_' || first.is_alphabetic() {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            found.push((Token::Name(&rest[..end]), place));
            end
        } else {
            if !first.is_whitespace() {
                found.push((Token::Mark(first), place));
            }
            first.len_utf8()
        };
        for (offset, _) in
            bytes[at..at + length].iter().enumerate().filter(|(_, byte)| **byte == b'\n')
        {
            line += 1;
            line_begins = at + offset + 1;
        }
        at += length;
    }
    found
}

/// How long the literal or lifetime is that the text begins with.
fn literal(text: &str) -> Option<usize> {
    let raw = text.strip_prefix('b').unwrap_or(text);
    if let Some(hashes) =
        raw.strip_prefix('r').map(|rest| rest.len() - rest.trim_start_matches('#').len())
    {
        let opening = format!("r{}\"", "#".repeat(hashes));
        if raw.starts_with(&opening) {
            let before = text.len() - raw.len() + opening.len();
            let end = text[before..].find(&format!("\"{}", "#".repeat(hashes)))?;
            return Some(before + end + 1 + hashes);
        }
    }
    let quote = raw.chars().next()?;
    let before = text.len() - raw.len() + 1;
    if quote == '"' || quote == '\'' {
        let mut escaped = false;
        let inside = &text[before..];
        let end = inside.char_indices().find(|&(_, c)| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let is_character =
            |end: usize| inside.starts_with('\\') || inside[..end].chars().count() == 1;
        if quote == '"' {
            return Some(before + end?.0 + 1);
        }
        if let Some((end, _)) = end.filter(|(end, _)| is_character(*end)) {
            return Some(before + end + 1);
        }
        let name = inside.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(inside.len());
        return Some(before + name);
    }
    let digit = text.starts_with(|c: char| c.is_ascii_digit());
    digit.then(|| text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len()))
}

struct Reader<'s> {
    tokens: Vec<Placed<'s>>,
    at: usize,
    functions: Vec<Function<'s>>,
}

impl<'s> Reader<'s> {
    fn token(&self, at: usize) -> Option<Token<'s>> {
        self.tokens.get(at).map(|(token, _)| *token)
    }

    fn is(&self, at: usize, mark: char) -> bool {
        self.token(at) == Some(Token::Mark(mark))
    }

    fn name(&self, at: usize) -> Option<&'s str> {
        match self.token(at) {
            Some(Token::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// What stands between plain quotes.
    fn quoted(&self, at: usize) -> Option<&'s str> {
        match self.token(at) {
            Some(Token::Literal(text)) => text.strip_prefix('"')?.strip_suffix('"'),
            _ => None,
        }
    }

    /// The place behind what closes the bracket at `at`.
    fn behind(&self, at: usize) -> usize {
        let (mut depth, mut end) = (0, at);
        while let Some(token) = self.token(end) {
            match token {
                Token::Mark('(' | '[' | '{') => depth += 1,
                Token::Mark(')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            end += 1;
            if depth == 0 {
                break;
            }
        }
        end
    }

    /// The place behind the angle bracket that closes the one at `at`.
    fn behind_angle(&self, at: usize) -> usize {
        let (mut depth, mut end) = (0, at);
        while let Some(token) = self.token(end) {
            match token {
                Token::Mark('<') => depth += 1,
                Token::Mark('>') if !self.is(end - 1, '-') && !self.is(end - 1, '=') => depth -= 1,
                Token::Mark('(' | '[' | '{') => {
                    end = self.behind(end);
                    continue;
                }
                _ => {}
            }
            end += 1;
            if depth == 0 {
                break;
            }
        }
        end
    }

    /// The next `{` or `;` outside of brackets.
    fn body(&self, mut at: usize) -> usize {
        while let Some(token) = self.token(at) {
            match token {
                Token::Mark('{' | ';') => break,
                Token::Mark('(' | '[') => at = self.behind(at),
                _ => at += 1,
            }
        }
        at
    }

    /// Reads items up to the end of the file, or of the block that they are in. `of_trait`: they can be
    /// seen wherever the trait can.
    fn items(&mut self, of_trait: bool) {
        let (mut tracks, mut is_test, mut seen) = (false, false, Seen::InModule);
        while let Some(token) = self.token(self.at) {
            match token {
                Token::Mark('}') => return,
                // What a macro is given.
                Token::Mark('{' | '(' | '[') => {
                    self.at = self.behind(self.at);
                    continue;
                }
                Token::Mark('#') => {
                    let inner = self.is(self.at + 1, '!');
                    let opening = self.at + 1 + usize::from(inner);
                    let end = self.behind(opening);
                    let names: Vec<_> = (opening..end).filter_map(|at| self.name(at)).collect();
                    tracks |= names == ["track_caller"];
                    is_test |= !inner && names.first() == Some(&"cfg") && names.contains(&"test");
                    self.at = end;
                    continue;
                }
                Token::Name("pub") => {
                    seen = Seen::Everywhere;
                    if self.is(self.at + 1, '(') {
                        seen = if self.name(self.at + 2) == Some("crate") {
                            Seen::InCrate
                        } else {
                            Seen::InModule
                        };
                        self.at = self.behind(self.at + 1);
                        continue;
                    }
                }
                Token::Name("fn") => {
                    if of_trait {
                        seen = Seen::Everywhere;
                    }
                    self.function(tracks, seen, is_test);
                    (tracks, is_test, seen) = (false, false, Seen::InModule);
                    continue;
                }
                Token::Name("macro_rules") => {
                    self.at = self.behind(self.body(self.at));
                    continue;
                }
                Token::Name(item @ ("impl" | "trait" | "mod")) => {
                    let body = self.body(self.at);
                    let names: Vec<_> = (self.at..body).filter_map(|at| self.name(at)).collect();
                    if is_test || !self.is(body, '{') {
                        self.at = if self.is(body, '{') { self.behind(body) } else { body + 1 };
                    } else {
                        self.at = body + 1;
                        self.items(item == "trait" || item == "impl" && names.contains(&"for"));
                        self.at += 1;
                    }
                    (tracks, is_test, seen) = (false, false, Seen::InModule);
                    continue;
                }
                Token::Name("struct" | "enum" | "union" | "use" | "const" | "static" | "type") => {
                    // `const fn` goes on; anything else ends with a block or a semicolon.
                    let is_function = matches!(
                        self.name(self.at + 1),
                        Some("fn" | "unsafe" | "async" | "extern")
                    );
                    if !is_function {
                        let body = self.body(self.at);
                        self.at = if self.is(body, '{') { self.behind(body) } else { body + 1 };
                        (tracks, is_test, seen) = (false, false, Seen::InModule);
                        continue;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn function(&mut self, tracks: bool, seen: Seen, is_test: bool) {
        let name = self.name(self.at + 1).unwrap_or_default();
        let mut opening = self.at + 2;
        if self.is(opening, '<') {
            opening = self.behind_angle(opening);
        }
        let parameters = self.arguments(opening);
        let end_of_first = (opening..).find(|&at| self.is(at, ',') || self.is(at, ')'));
        let is_method =
            end_of_first.is_some_and(|end| (opening..end).any(|at| self.name(at) == Some("self")));
        let body = self.body(self.behind(opening));
        let end = if self.is(body, '{') { self.behind(body) } else { body + 1 };
        if !is_test {
            let calls = self.calls(body, end);
            self.functions.push(Function { name, parameters, is_method, tracks, seen, calls });
        }
        self.at = end;
    }

    /// The calls between two places. What is done only where a known error is committed is left out.
    fn calls(&self, mut at: usize, end: usize) -> Vec<Call<'s>> {
        let (mut calls, mut closure_end) = (Vec::new(), 0);
        while at < end {
            if let Some(behind) = self.behind_closure(at) {
                closure_end = closure_end.max(behind);
            }
            if self.name(at) == Some("if") {
                let block = self.body(at);
                let is_error = (at..block).any(|at| self.name(at) == Some("commits"));
                let is_plain = !(at..block).any(|at| self.is(at, '!') || self.is(at, '|'));
                if is_error && is_plain && self.is(block, '{') {
                    at = self.behind(block);
                    continue;
                }
            }
            let is_in_closure = at < closure_end;
            calls.extend(self.call(at).map(|call| Call { is_in_closure, ..call }));
            at += 1;
        }
        calls
    }

    /// The place behind a closure whose parameters begin at `at`.
    fn behind_closure(&self, at: usize) -> Option<usize> {
        let begins = at > 0
            && (self.name(at - 1) == Some("move")
                || ['(', ',', '=', '{', ';'].iter().any(|&mark| self.is(at - 1, mark)));
        if !self.is(at, '|') || !begins {
            return None;
        }
        let mut body = (at + 1..).find(|&at| self.is(at, '|') || self.token(at).is_none())? + 1;
        // An expression ends with the argument that it is.
        while let Some(token) = self.token(body) {
            match token {
                Token::Mark('(' | '[' | '{') => body = self.behind(body),
                Token::Mark(',' | ')' | ']' | '}' | ';') => break,
                _ => body += 1,
            }
        }
        Some(body)
    }

    /// How many arguments, or parameters, there are between the brackets.
    fn arguments(&self, opening: usize) -> usize {
        let (end, mut at) = (self.behind(opening) - 1, opening + 1);
        let (mut count, mut is_empty) = (0, true);
        while at < end {
            match self.token(at) {
                Some(Token::Mark(',')) => {
                    count += usize::from(!is_empty);
                    is_empty = true;
                    at += 1;
                    continue;
                }
                Some(Token::Mark('(' | '[' | '{')) => at = self.behind(at),
                Some(Token::Mark('<')) if self.is_generic(at) => at = self.behind_angle(at),
                // The parameters of a closure.
                Some(Token::Mark('|')) if is_empty || self.name(at - 1) == Some("move") => {
                    at += 1;
                    while at < end && !self.is(at, '|') {
                        at += 1;
                    }
                    at += 1;
                }
                _ => at += 1,
            }
            is_empty = false;
        }
        count + usize::from(!is_empty)
    }

    /// Whether the angle bracket at `at` opens a list of types: it follows a path or a type's name.
    fn is_generic(&self, at: usize) -> bool {
        self.is(at - 1, ':')
            || self.name(at - 1).is_some_and(|name| name.starts_with(char::is_uppercase))
    }

    /// The call whose function is named at `at`.
    fn call(&self, at: usize) -> Option<Call<'s>> {
        let name = self.name(at)?;
        let mut opening = at + 1;
        if self.is(opening, ':') && self.is(opening + 1, ':') && self.is(opening + 2, '<') {
            opening = self.behind_angle(opening + 2);
        }
        if !self.is(opening, '(') || self.name(at - 1) == Some("fn") {
            return None;
        }
        let arguments = self.arguments(opening);
        let literals = (opening..self.behind(opening)).filter_map(|at| self.quoted(at)).collect();
        if self.is(at - 1, '.') {
            let receiver = self.name(at - 2);
            let at = self.tokens[at].1;
            return Some(Call {
                name,
                arguments: arguments + 1,
                form: Form::Method,
                receiver,
                at,
                is_in_closure: false,
                literals,
            });
        }
        // A path is called where it begins.
        let mut first = at;
        while self.is(first - 1, ':') && self.is(first - 2, ':') {
            first -= 3;
            if self.is(first, '>') {
                let mut depth = 0;
                loop {
                    match self.token(first) {
                        Some(Token::Mark('>')) => depth += 1,
                        Some(Token::Mark('<')) => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 || first == 0 {
                        break;
                    }
                    first -= 1;
                }
                if self.is(first - 1, ':') && self.is(first - 2, ':') {
                    first -= 3;
                }
            }
        }
        let form = if first < at { Form::Path } else { Form::Plain };
        Some(Call {
            name,
            arguments,
            form,
            receiver: None,
            at: self.tokens[first].1,
            is_in_closure: false,
            literals,
        })
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
    fn an_event_is_what_stands_in_the_call() {
        let text =
            "fn a() { domain.happens(if leaf { \"split\" } else { \"growth\" }); }".to_owned();
        let events = read(&[Source { path: "a.rs".to_owned(), text }]).events;
        let names: Vec<_> = events.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["growth", "split"]);
    }
}
