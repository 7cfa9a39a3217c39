//! Fields of price books and budget files.

use std::str::FromStr;

use octavo_fleet::price::PriceError;

use super::findings::{Findings, Mapping, is_label_value};
use super::node::YamlNode;
use super::scalar;

/// An invalid value, whose error is one of the findings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reported;

/// Reads the value of a key that may be absent.
pub(super) fn optional<T>(
    mapping: Mapping<'_>,
    key: &'static str,
    findings: &mut Findings,
    read: impl Fn(&YamlNode, &'static str, &mut Findings) -> Option<T>,
) -> Result<Option<T>, Reported> {
    match mapping.get(key) {
        Some(node) => read(node, key, findings).map(Some).ok_or(Reported),
        None => Ok(None),
    }
}

/// Parses a text that is valid as the value of a label. `expected` describes it in the error message.
pub(super) fn label_text(
    node: &YamlNode,
    what: &'static str,
    expected: &'static str,
    findings: &mut Findings,
) -> Option<String> {
    let text = text(node, what, findings)?;
    let text = Some(text).filter(|text| is_label_value(text));
    findings.expect(text, node, what, expected).map(str::to_owned)
}

/// Parses a value whose error message is self-explanatory.
pub(super) fn value<T: FromStr<Err = PriceError>>(
    node: &YamlNode,
    what: &'static str,
    findings: &mut Findings,
) -> Option<T> {
    let text = text(node, what, findings)?;
    findings.accept(text.parse(), node.position)
}

/// Parses a text.
pub(super) fn text<'n>(
    node: &'n YamlNode,
    what: &'static str,
    findings: &mut Findings,
) -> Option<&'n str> {
    let text = scalar::text(node).filter(|_| !node.is_null());
    findings.expect(text, node, what, "a string")
}
