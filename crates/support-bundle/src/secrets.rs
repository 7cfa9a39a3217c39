//! Removes tokens, passwords and keys from texts: arguments of processes, variables, headers, private keys.

/// Text in the place of a secret.
pub(crate) const REMOVED: &str = "[removed]";

/// Words in the name of a secret, in lower case without separators.
const SECRET_WORDS: [&str; 11] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
];

/// Ends of names that contain such a word and are no secret.
const NO_SECRET_ENDS: [&str; 8] =
    ["file", "path", "dir", "audience", "review", "name", "count", "tokens"];

/// First characters of tokens that services issue.
const TOKEN_PREFIXES: [&str; 8] =
    ["hf_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "AKIA", "sha256~"];

/// Words between the name and the secret.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// Minimum length of a secret after a colon and a blank. Shorter texts without a digit are words of a sentence.
const MIN_SECRET_LENGTH: usize = 16;

/// Returns whether a field or an argument of this name has a secret.
pub(crate) fn is_secret_key(key: &str) -> bool {
    let key: String =
        key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    SECRET_WORDS.iter().any(|word| key.contains(word))
        && !NO_SECRET_ENDS.iter().any(|end| key.ends_with(end))
}

/// Replaces every secret in a text.
pub(crate) fn remove(text: &str) -> String {
    let text = without_private_keys(text);
    let mut result = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut state = State::Text;
    while let Some(first) = rest.chars().next() {
        let is_word = is_word_char(first);
        let end = rest.find(|c: char| is_word_char(c) != is_word).unwrap_or(rest.len());
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        if is_word {
            let (shown, next) = word(piece, state);
            result.push_str(shown);
            if state == State::Secret && shown == REMOVED {
                let end = rest.find(|c: char| c.is_whitespace() || "&\"'\\)]}<>".contains(c));
                rest = rest.get(end.unwrap_or(rest.len())..).unwrap_or_default();
            }
            state = next;
            continue;
        }
        result.push_str(piece);
        state = separator(piece, state);
        let quote = piece.chars().next_back().filter(|last| ['"', '\''].contains(last));
        if let (State::Secret | State::Maybe, Some(quote)) = (state, quote) {
            let is_escaped = piece.chars().rev().nth(1) == Some('\\');
            let (value, tail) = rest.split_at(closing_quote(rest, quote, is_escaped));
            let is_shown = value.is_empty() || is_path(value);
            result.push_str(if is_shown { value } else { REMOVED });
            rest = tail;
            state = State::Text;
        }
    }
    without_passwords_in_urls(&result)
}

/// Returns the position of the quotation mark that ends a value, or the end of its line.
fn closing_quote(text: &str, quote: char, is_escaped: bool) -> usize {
    let mut backslash = None;
    for (at, found) in text.char_indices() {
        if found == '\n' || (found == quote && !is_escaped && backslash.is_none()) {
            return at;
        }
        if let (true, true, Some(start)) = (found == quote, is_escaped, backslash) {
            return start;
        }
        backslash = (found == '\\' && backslash.is_none()).then_some(at);
    }
    text.len()
}

/// What the text so far means for the next word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing.
    Text,
    /// The name of a secret; `is_flag` for an argument such as `--token`.
    Key { is_flag: bool },
    /// The next word is a secret.
    Secret,
    /// The next word is a secret if it looks like one.
    Maybe,
}

/// Characters of names and of secrets. `=` is not one of them; its padding of Base64 remains.
fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.~+/%@!$*^#?".contains(c)
}

fn word(word: &str, state: State) -> (&str, State) {
    let is_scheme = SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
    if is_token(word) {
        return (REMOVED, State::Text);
    }
    match state {
        State::Secret | State::Maybe if is_scheme => (word, State::Secret),
        State::Secret if !is_path(word) => (REMOVED, State::Text),
        State::Maybe if is_random(word) && !is_path(word) => (REMOVED, State::Text),
        State::Text | State::Key { .. } | State::Secret | State::Maybe => {
            let key = word.rsplit(['/', '?']).next().unwrap_or(word);
            let next = if is_scheme {
                State::Maybe
            } else if is_secret_key(key) && !is_path(word) {
                State::Key { is_flag: word.starts_with('-') }
            } else {
                State::Text
            };
            (word, next)
        }
    }
}

/// Returns the meaning of the characters between two words.
fn separator(text: &str, state: State) -> State {
    let bare: String = text.chars().filter(|c| !"\"'\\".contains(*c)).collect();
    let is_blank = bare.trim().is_empty();
    match state {
        State::Key { is_flag: true } if is_blank && !bare.contains('\n') => State::Secret,
        // The next argument in a list.
        State::Key { is_flag: true } if bare.trim() == "," && bare != text => State::Secret,
        State::Key { .. } if bare.trim() == "=" => State::Secret,
        State::Key { .. } if bare.trim() == ":" && bare != text => State::Secret,
        State::Key { .. } if bare.trim() == ":" => State::Maybe,
        State::Secret | State::Maybe if is_blank => state,
        State::Text | State::Key { .. } | State::Secret | State::Maybe => State::Text,
    }
}

/// Returns whether a word is a secret by its own form: a JSON Web Token, or a token with the prefix of a service.
fn is_token(word: &str) -> bool {
    word.split('/').any(|part| {
        (part.starts_with("eyJ") && part.matches('.').count() >= 2)
            || TOKEN_PREFIXES
                .iter()
                .any(|prefix| part.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()))
    })
}

fn is_random(word: &str) -> bool {
    word.len() >= MIN_SECRET_LENGTH || word.contains(|c: char| c.is_ascii_digit())
}

fn is_path(word: &str) -> bool {
    ["/var/", "/etc/", "/run/", "/home/"].iter().any(|root| word.starts_with(root))
}

fn without_private_keys(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN ";
    const KEY: &str = "PRIVATE KEY-----";
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once(BEGIN) {
        result.push_str(before);
        let kind = tail.find("-----").and_then(|end| tail.get(..end));
        if !kind.is_some_and(|kind| kind.ends_with("PRIVATE KEY")) {
            result.push_str(BEGIN);
            rest = tail;
            continue;
        }
        result.push_str(REMOVED);
        // An incomplete key extends to the end of the text.
        let body = tail.split_once(KEY).map_or("", |(_, body)| body);
        rest = body.split_once(KEY).map_or("", |(_, after)| after);
    }
    result.push_str(rest);
    result
}

/// Removes the user and the password before the host of a URL. A user without a password is often a token.
fn without_passwords_in_urls(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("://") {
        result.push_str(before);
        result.push_str("://");
        let end = tail.find(|c: char| c.is_whitespace() || "/?#\"'<>".contains(c));
        let (authority, after) = tail.split_at(end.unwrap_or(tail.len()));
        match authority.rsplit_once('@') {
            Some((_user, host)) => {
                result.push_str(REMOVED);
                result.push('@');
                result.push_str(host);
            }
            None => result.push_str(authority),
        }
        rest = after;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_from_texts() {
        for (text, expected) in [
            (
                "python train.py --token s3cr3t --epochs 3",
                "python train.py --token [removed] --epochs 3",
            ),
            ("serve --api-key=abcdef x", "serve --api-key=[removed] x"),
            (
                "HF_TOKEN=hf_abc AWS_SECRET_ACCESS_KEY=a/b+c",
                "HF_TOKEN=[removed] AWS_SECRET_ACCESS_KEY=[removed]",
            ),
            ("Authorization: Bearer abc", "Authorization: Bearer [removed]"),
            ("authorization=\"Basic dXNlcg==\"", "authorization=\"[removed]\""),
            ("{\"password\":\"correct horse\"}", "{\"password\":\"[removed]\"}"),
            ("{\"password\": \"letmein\", \"x\": 1}", "{\"password\": \"[removed]\", \"x\": 1}"),
            ("{\\\"token\\\": \\\"a b\\\"}", "{\\\"token\\\": \\\"[removed]\\\"}"),
            ("TOKEN='a \"b' c", "TOKEN='[removed]' c"),
            ("run --password=abc,def --x", "run --password=[removed] --x"),
            ("[\"--token\",\"s3cr3t\",\"--x\"]", "[\"--token\",\"[removed]\",\"--x\"]"),
            ("clone https://abcdef@github.com/org", "clone https://[removed]@github.com/org"),
            ("clone https://ghp_abc@github.com/org", "clone https:[removed]"),
            ("download with hf_abcdef now", "download with [removed] now"),
            ("get https://host/cb/eyJhbGci.eyJpc3.c2ln", "get https:[removed]"),
            ("password: hunter2", "password: [removed]"),
            ("got eyJhbGciOi.eyJpc3Mi.c2ln in a line", "got [removed] in a line"),
            ("login sha256~AbC", "login [removed]"),
            ("https://bob:pw@proxy.example/x?y", "https://[removed]@proxy.example/x?y"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter",
                "[removed]\nafter",
            ),
            ("-----BEGIN PRIVATE KEY-----\nMIIE", "[removed]"),
        ] {
            assert_eq!(remove(text), expected);
        }
    }

    #[test]
    fn other_texts_are_unchanged() {
        for text in [
            "cannot read the token: permission denied",
            "--token-file /var/run/secrets/octavo/token --agent-auth=token-review",
            "tokens=4096 tokens per second: 12",
            "cannot use the token in /var/run/secrets/octavo/token: No such file",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "https://octavo.example:8443/api?x=a@b",
        ] {
            assert_eq!(remove(text), text);
        }
    }
}
