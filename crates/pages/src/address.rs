//! Query parameters of the list's address, and links that change one of them.

use axum::extract::Query;
use axum::http::Uri;
use octavo_model::text::shell_word;
use octavo_store::query::check_names;
use octavo_toolkit::error::chain;

/// Path of the list of nodes.
pub(super) const LIST: &str = "/nodes";

/// Error of an address whose parameters cannot be decoded.
const INVALID_ENCODING: &str = "the address has an invalid encoding";

/// Parameters of an address, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListAddress(Vec<(String, String)>);

impl ListAddress {
    /// Parameters of `uri`; `None` if the encoding is invalid.
    pub(super) fn parse(uri: &Uri) -> Option<Self> {
        let pairs = query_pairs(uri)?.into_iter();
        Some(Self(pairs.filter(|(_, value)| !value.is_empty()).collect()))
    }

    /// The address and its request. Of an invalid one, the defaults and the error.
    pub(super) fn read<T: Default>(
        uri: &Uri,
        parse: impl FnOnce(&Self) -> Result<T, String>,
    ) -> (Self, T, Option<String>) {
        let Some(address) = Self::parse(uri) else {
            return (Self::default(), T::default(), Some(INVALID_ENCODING.to_owned()));
        };
        match parse(&address) {
            Ok(request) => (address, request, None),
            Err(error) => (address, T::default(), Some(error)),
        }
    }

    /// All parameters.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().cloned()
    }

    /// First value of a parameter, or an empty string.
    pub(super) fn get(&self, name: &str) -> &str {
        let mut all = self.0.iter();
        all.find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Address with `value` in place of the current values; an empty value removes the parameter. It leads to the first
    /// page, because a continuation token is valid for one order and filter only.
    pub(super) fn with(&self, name: &str, value: &str) -> String {
        let retained = self.0.iter().filter(|(known, _)| known != name && known != "continue");
        let mut text: Vec<String> =
            retained.map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        if !value.is_empty() {
            text.push(format!("{}={}", encoded(name), encoded(value)));
        }
        if text.is_empty() { LIST.to_owned() } else { format!("{LIST}?{}", text.join("&")) }
    }

    /// Address with only these parameters.
    pub(super) fn only(&self, names: &[&str]) -> String {
        let retained = self.0.iter();
        let retained = retained.filter(|(known, _)| names.contains(&known.as_str()));
        Self(retained.cloned().collect()).with("continue", "")
    }

    /// Removes a parameter.
    pub(super) fn without(&self, name: &str) -> Self {
        let retained = self.0.iter().filter(|(known, _)| known != name);
        Self(retained.cloned().collect())
    }

    /// Replaces the values of a parameter; an empty value removes it.
    pub(super) fn set(&self, name: &str, value: &str) -> Self {
        let mut changed = self.without(name);
        if !value.is_empty() {
            changed.0.push((name.to_owned(), value.to_owned()));
        }
        changed
    }

    /// Address of another page with these parameters.
    pub(super) fn at(&self, path: &str) -> String {
        moved(&self.with("", ""), path)
    }

    /// The same filter as flags of `octavo nodes`, each preceded by a space, quoted for a shell. Excludes the order,
    /// because the command line has its own defaults.
    pub(super) fn flags(&self) -> String {
        let flag = |(name, value): &(String, String)| match name.as_str() {
            "search" | "type" | "state" | "problem" | "sharing" | "layout" | "selector" => {
                Some(format!(" --{name}={}", shell_word(value)))
            }
            "layoutState" => Some(format!(" --layout-state={}", shell_word(value))),
            "group" => Some(format!(" --group-by={}", shell_word(value))),
            _ => None,
        };
        self.0.iter().filter_map(flag).collect()
    }

    /// Address with this value, or without it if it is already set, so that a second click undoes the first.
    pub(super) fn toggled(&self, name: &str, value: &str) -> String {
        if self.get(name) == value { self.with(name, "") } else { self.with(name, value) }
    }
}

/// The address `path` with the query of `link`.
pub(super) fn moved(link: &str, path: &str) -> String {
    let query = link.split_once('?').map(|(_, query)| format!("?{query}"));
    format!("{path}{}", query.unwrap_or_default())
}

/// Query parameters of `uri`, in order; `None` if the encoding is invalid.
pub(super) fn query_pairs(uri: &Uri) -> Option<Vec<(String, String)>> {
    let Query(pairs) = Query::try_from_uri(uri).ok()?;
    Some(pairs)
}

/// First value of a query parameter; `None` if it is absent or empty.
pub(super) fn query_parameter(uri: &Uri, name: &str) -> Option<String> {
    let found = query_pairs(uri)?.into_iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Message about the first parameter of `uri` that is not in the list `known`, or that is repeated.
pub(super) fn parameter_error(uri: &Uri, known: &'static str) -> Option<String> {
    let checked = match ListAddress::parse(uri) {
        Some(address) => check_names(address.pairs(), known).map_err(|error| chain(&error)),
        None => Err(INVALID_ENCODING.to_owned()),
    };
    checked.err().map(|error| format!("Invalid address: {error}."))
}

/// Path of the page of a hardware profile; a profile of a file may have no namespace.
pub(super) fn profile_path(namespace: &str, name: &str) -> String {
    match namespace {
        "" => format!("/profiles/{}", encoded(name)),
        namespace => format!("/profiles/{}/{}", encoded(namespace), encoded(name)),
    }
}

/// Percent-encodes `text` for a query.
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

    fn address(uri: &str) -> ListAddress {
        ListAddress::parse(&uri.parse().unwrap()).unwrap()
    }

    #[test]
    fn address_changes_one_parameter() {
        let address = address("/nodes?search=&type=a&selector=x%20in%20(a%2Cb)&continue=t");
        assert_eq!(address.get("selector"), "x in (a,b)");
        assert_eq!(address.with("type", "b"), "/nodes?selector=x%20in%20%28a%2Cb%29&type=b");
        assert_eq!(address.toggled("type", "a"), "/nodes?selector=x%20in%20%28a%2Cb%29");
    }

    #[test]
    fn filter_is_quoted_as_shell_flags() {
        let address =
            address("/nodes?sort=-free&state=ok&selector=x%20in%20(a)&search=it's&limit=2");
        assert_eq!(address.flags(), r" --state=ok --selector='x in (a)' --search='it'\''s'");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(address("/nodes?search=%ff").get("search"), "\u{fffd}");
        assert_eq!(address("/nodes").with("type", ""), "/nodes");
    }
}
