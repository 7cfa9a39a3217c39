//! Lines of a device card: attributes and issues of the device.

use octavo_model::inventory::Issue;

use super::badges::{printable, severity_style};

/// Line of a complaint.
#[derive(Debug)]
pub(super) struct IssueLine {
    pub(super) tone: &'static str,
    pub(super) icon: &'static str,
    pub(super) text: String,
}

/// Attribute of a device.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: String,
}

/// Keeps the facts with a known value.
pub(super) fn known_facts(
    all: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Vec<Fact> {
    let all = all.into_iter();
    all.filter_map(|(name, value)| value.map(|value| Fact { name, value })).collect()
}

/// Converts the domain's complaints to lines.
pub(super) fn issue_lines(complaints: Vec<Issue>) -> Vec<IssueLine> {
    let complaints = complaints.into_iter();
    let line = |one: Issue| {
        let (tone, icon) = severity_style(one.severity);
        let text = printable(&one.text);
        IssueLine { tone, icon, text }
    };
    complaints.map(line).collect()
}
