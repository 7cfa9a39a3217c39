//! Paths and parameters of requests.

use std::fmt::Write;

/// Path and query, below the aggregator's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPath(String);

impl RequestPath {
    /// Creates a target from a path in this program; text from users goes through [`segment`].
    pub fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// Adds parameters.
    #[must_use]
    pub fn with<'a>(mut self, parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        for (name, value) in parameters {
            self.0.push(if self.0.contains('?') { '&' } else { '?' });
            self.0.push_str(name);
            self.0.push('=');
            self.0.push_str(&segment(value));
        }
        self
    }

    /// Returns the whole URL.
    pub(super) fn url(&self, server: &str) -> String {
        format!("{server}{}", self.0)
    }
}

/// Encodes `text` as a part of a path or a query: all but the unreserved characters of RFC 3986 are percent-encoded.
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_input_is_percent_encoded() {
        let target = RequestPath::new("/api/v1/nodes")
            .with([("selector", "a in (b, c)"), ("type", "x&y=ü")]);
        assert_eq!(
            target.url("https://host/below"),
            "https://host/below/api/v1/nodes?selector=a%20in%20%28b%2C%20c%29&type=x%26y%3D%C3%BC"
        );
        assert_eq!(segment("../a?b"), "..%2Fa%3Fb");
    }
}
