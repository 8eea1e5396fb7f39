//! The tokens of a source file.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'s> {
    Name(&'s str),
    Mark(char),
    /// A literal, or a lifetime, as it stands there.
    Literal(&'s str),
}

pub(super) type Placed<'s> = (Token<'s>, (u32, u32));

/// The tokens of a file, without comments.
pub(super) fn tokens(text: &str) -> Vec<Placed<'_>> {
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
