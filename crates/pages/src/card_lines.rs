//! Lines of a device card: attributes and issues of the device.

use octavo_model::inventory::Issue;
use octavo_model::tone::Tone;

use super::badges::{printable, tone_class, tone_icon};

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
        let tone = Tone::from(one.severity);
        let text = printable(&one.text);
        IssueLine { tone: tone_class(tone), icon: tone_icon(tone), text }
    };
    complaints.map(line).collect()
}
