//! The functions of a source file, and what they call.

use super::tokens::{Placed, Token};
use super::{Call, Form, Function, Seen};

pub(super) struct Reader<'s> {
    pub(super) tokens: Vec<Placed<'s>>,
    pub(super) at: usize,
    pub(super) functions: Vec<Function<'s>>,
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
    pub(super) fn items(&mut self, of_trait: bool) {
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
                qualifier: None,
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
            qualifier: if first < at { self.name(at - 3) } else { None },
            at: self.tokens[first].1,
            is_in_closure: false,
            literals,
        })
    }
}
