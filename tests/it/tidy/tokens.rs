//! Tokens of Rust source text, for tests that check how the code refers to itself.

/// A name, `::` or one character of punctuation.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// Splits a source text into tokens without comments and literals.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    pieces(text).into_iter().filter(|(_, is_code)| *is_code).map(|(token, _)| token).collect()
}

/// Returns the string literals of a source text, with their quotes and prefixes.
pub(super) fn string_literals(text: &str) -> Vec<Token<'_>> {
    let is_string = |token: &Token| {
        let body = token.text.trim_start_matches(['b', 'c', 'r']);
        body.trim_start_matches('#').starts_with('"')
    };
    let others = pieces(text).into_iter().filter(|(_, is_code)| !is_code);
    others.map(|(token, _)| token).filter(is_string).collect()
}

/// Splits a source text into tokens, each with whether it is code: not white space, a comment or a literal.
fn pieces(text: &str) -> Vec<(Token<'_>, bool)> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let ignored = ignored_length(rest);
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let length = match ignored {
            Some(length) => length,
            None if word > 0 => word,
            None if rest.starts_with("::") => 2,
            None => first.len_utf8(),
        };
        let (text, after) = rest.split_at(length);
        found.push((Token { text, line }, ignored.is_none()));
        line += text.matches('\n').count();
        rest = after;
    }
    found
}

/// Length of the white space, comment, string or character at the start of a text.
fn ignored_length(text: &str) -> Option<usize> {
    if text.starts_with(char::is_whitespace) {
        return text.find(|c: char| !c.is_whitespace()).or(Some(text.len()));
    }
    if text.starts_with("//") {
        return text.find('\n').or(Some(text.len()));
    }
    if text.starts_with("/*") {
        return text.find("*/").map(|end| end + 2);
    }
    let body = text.trim_start_matches(['b', 'c', 'r']);
    let start = text.len() - body.len();
    if text[..start].ends_with('r') {
        let opening = body.trim_start_matches('#');
        let hashes = body.len() - opening.len();
        let closing = format!("\"{}", "#".repeat(hashes));
        let length = opening.strip_prefix('"')?.find(&closing)? + 1 + closing.len();
        return Some(start + hashes + length);
    }
    if body.starts_with('"') {
        let mut escaped = true;
        let end = body.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return end.map(|end| start + end + 1);
    }
    let mut chars = body.strip_prefix('\'')?.char_indices().skip(1);
    // Anything else with one quote is a lifetime.
    let end = if body.starts_with("'\\") {
        chars.skip(1).find(|(_, c)| *c == '\'')
    } else {
        chars.next().filter(|(_, c)| *c == '\'')
    };
    end.map(|(at, _)| start + at + 2)
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Tokens without the items under `#[cfg(test)]`.
pub(super) fn without_tests<'a>(mut rest: &[Token<'a>]) -> Vec<Token<'a>> {
    let attribute = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut retained = Vec::new();
    while let Some(token) = rest.first() {
        let start = rest.iter().take(attribute.len()).map(|token| token.text);
        if start.eq(attribute) {
            rest = &rest[item_end(rest, attribute.len())..];
        } else {
            retained.push(*token);
            rest = &rest[1..];
        }
    }
    retained
}

/// Index after the item that starts at an index: after its `;`, its block, or before the end of the block around it.
pub(super) fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            "}" if depth == 1 => return at + 1,
            ")" | "]" | "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}
