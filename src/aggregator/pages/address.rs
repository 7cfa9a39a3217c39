//! The address of a list: what was asked for, and addresses that ask for a little more or less.

use axum::extract::Query;
use axum::http::Uri;

/// The parameters of an address, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asked(Vec<(String, String)>);

impl Asked {
    /// Those of `uri`; `None` where they are not encoded as parameters are.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
        let pairs = pairs.into_iter();
        Some(Self(pairs.filter(|(_, value)| !value.is_empty()).collect()))
    }

    /// All of them.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().cloned()
    }

    /// The first value of a parameter, empty where there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        let mut all = self.0.iter();
        all.find(|(known, _)| known == name)
            .map_or("", |(_, value)| value)
    }

    /// The address with this value instead of those there are; an empty one takes the parameter out. It is that of a first
    /// page: what continues another order or another filter continues nothing.
    pub(super) fn with(&self, name: &str, value: &str) -> String {
        let kept = self
            .0
            .iter()
            .filter(|(known, _)| known != name && known != "continue");
        let mut text: Vec<String> = kept
            .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
            .collect();
        if !value.is_empty() {
            text.push(format!("{}={}", encoded(name), encoded(value)));
        }
        if text.is_empty() {
            "/".to_owned()
        } else {
            format!("/?{}", text.join("&"))
        }
    }

    /// The address with nothing but these.
    pub(super) fn only(&self, names: &[&str]) -> String {
        let kept = self.0.iter();
        let kept = kept.filter(|(known, _)| names.contains(&known.as_str()));
        Self(kept.cloned().collect()).with("continue", "")
    }

    /// The same without a parameter.
    pub(super) fn without(&self, name: &str) -> Self {
        let kept = self.0.iter().filter(|(known, _)| known != name);
        Self(kept.cloned().collect())
    }

    /// The same filter as flags of `octavo nodes`, each with a blank before it, quoted for a shell. Not the order: that of
    /// the command line has directions of its own.
    pub(super) fn flags(&self) -> String {
        let flag = |(name, value): &(String, String)| match name.as_str() {
            "search" | "type" | "state" | "sharing" | "layout" | "selector" => {
                Some(format!(" --{name}={}", quoted(value)))
            }
            "layoutState" => Some(format!(" --layout-state={}", quoted(value))),
            "group" => Some(format!(" --group-by={}", quoted(value))),
            _ => None,
        };
        self.0.iter().filter_map(flag).collect()
    }

    /// The address with this value, or without it where it is there already: what a second click takes back.
    pub(super) fn toggled(&self, name: &str, value: &str) -> String {
        if self.get(name) == value {
            self.with(name, "")
        } else {
            self.with(name, value)
        }
    }
}

/// `text` as one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/,=".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// `text` as part of a query.
pub(super) fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str) -> Asked {
        Asked::of(&uri.parse().unwrap()).unwrap()
    }

    #[test]
    fn an_address_is_what_was_asked_for_with_one_thing_changed() {
        let asked = asked("/?search=&type=a&selector=x%20in%20(a%2Cb)&continue=t");
        assert_eq!(asked.get("selector"), "x in (a,b)");
        assert_eq!(
            asked.with("type", "b"),
            "/?selector=x%20in%20%28a%2Cb%29&type=b"
        );
        assert_eq!(
            asked.toggled("type", "a"),
            "/?selector=x%20in%20%28a%2Cb%29"
        );
    }

    #[test]
    fn a_filter_is_said_as_flags_that_a_shell_takes_as_they_are() {
        let asked = asked("/?sort=-free&state=ok&selector=x%20in%20(a)&search=it's&limit=2");
        assert_eq!(
            asked.flags(),
            r" --state=ok --selector='x in (a)' --search='it'\''s'"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_looked_for_and_not_found() {
        assert_eq!(asked("/?search=%ff").get("search"), "\u{fffd}");
        assert_eq!(asked("/").with("type", ""), "/");
    }
}
