//! Removes tokens, passwords and keys from texts: arguments of processes, variables, headers, private keys.

/// Text in the place of a secret.
pub const REMOVED: &str = "[removed]";

/// Words in the name of a secret, in lower case without separators.
const SECRET_WORDS: [&str; 9] = [
    "token",
    "secret",
    "password",
    "passwd",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
];

/// Ends of names that contain such a word and are no secret.
const NO_SECRET_ENDS: [&str; 8] =
    ["file", "path", "dir", "audience", "review", "name", "count", "tokens"];

/// Words between the name and the secret.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// Minimum length of a secret after a colon and a blank. Shorter texts without a digit are words of a sentence.
const MIN_SECRET_LENGTH: usize = 16;

/// Returns whether a field or an argument of this name has a secret.
pub fn is_secret_key(key: &str) -> bool {
    let key: String =
        key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    SECRET_WORDS.iter().any(|word| key.contains(word))
        && !NO_SECRET_ENDS.iter().any(|end| key.ends_with(end))
}

/// Replaces every secret in a text.
pub fn remove(text: &str) -> String {
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
            state = next;
        } else {
            result.push_str(piece);
            state = separator(piece, state);
        }
    }
    without_passwords_in_urls(&result)
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
        State::Key { .. } if bare.trim() == "=" || (bare == ":" && text != ":") => State::Secret,
        State::Key { .. } if bare.trim() == ":" => State::Maybe,
        State::Secret | State::Maybe if is_blank => state,
        State::Text | State::Key { .. } | State::Secret | State::Maybe => State::Text,
    }
}

/// Returns whether a word is a secret by its own form: a JSON Web Token or an `OpenShift` token.
fn is_token(word: &str) -> bool {
    (word.starts_with("eyJ") && word.matches('.').count() >= 2) || word.starts_with("sha256~")
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

/// Removes `user:password` before the host of a URL.
fn without_passwords_in_urls(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("://") {
        result.push_str(before);
        result.push_str("://");
        let end = tail.find(|c: char| c.is_whitespace() || "/\"'<>".contains(c));
        let (authority, after) = tail.split_at(end.unwrap_or(tail.len()));
        match authority.rsplit_once('@') {
            Some((user, host)) if user.contains(':') => {
                result.push_str(REMOVED);
                result.push('@');
                result.push_str(host);
            }
            Some(_) | None => result.push_str(authority),
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
            ("authorization=\"Basic dXNlcg==\"", "authorization=\"Basic [removed]==\""),
            ("{\"password\":\"correct horse\"}", "{\"password\":\"[removed] horse\"}"),
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
