//! Parsing of a mapping from profiles to counts, which both dialects have.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::profile::{ProfileName, ProfileNameError};
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::ProfileCount;

use super::error::LayoutProblem;
use super::findings::Findings;
use super::node::{Entry, quoted};
use super::scalar;

/// Parses the entries. `zero` is called for a count of zero and returns whether it is accepted.
pub(super) fn read(
    entries: &[Entry],
    findings: &mut Findings,
    zero: impl Fn(&Entry, &mut Findings) -> bool,
) -> Vec<ProfileCount> {
    let mut seen: BTreeMap<ProfileName, SourcePosition> = BTreeMap::new();
    let mut counts = Vec::new();
    for entry in entries {
        let profile = name(entry, findings);
        let count = scalar::number(&entry.value);
        let passed = count == Some(0) && zero(entry, findings);
        let count = count.filter(|count| *count > 0);
        if count.is_none() && !passed {
            let value = &entry.value;
            let (profile, found) = (quoted(&entry.key), value.describe());
            findings.error(value.position, LayoutProblem::Count { profile, found });
        }
        let Some(profile) = profile else {
            continue;
        };
        if let Some(first) = seen.get(&profile) {
            let problem =
                LayoutProblem::DuplicateProfile { profile: profile.to_string(), first: *first };
            findings.error(entry.position, problem);
            continue;
        }
        seen.insert(profile.clone(), entry.position);
        if let Some(count) = count {
            counts.push(ProfileCount { position: entry.position, profile, count });
        }
    }
    counts
}

/// Parses a profile name and checks that its attributes exist. Whether a device offers the profile is checked later.
pub(super) fn name(entry: &Entry, findings: &mut Findings) -> Option<ProfileName> {
    // Limits the length of the name repeated in the message.
    let shown = entry.key.chars().take(60).collect::<String>();
    let profile = match without_leading_zeros(&shown).parse() {
        Ok(_) if shown.len() != entry.key.len() => Err(ProfileNameError::Malformed(shown)),
        parsed => parsed,
    };
    let profile = findings.accept(profile, entry.position)?;
    if let Some(attribute) = unknown_attribute(&entry.key) {
        findings.error(entry.position, LayoutProblem::Attribute { attribute });
        return None;
    }
    if let Some(attribute) = repeated_attribute(&entry.key) {
        findings.error(entry.position, LayoutProblem::DuplicateAttribute { attribute });
        return None;
    }
    Some(profile)
}

/// Removes leading zeros as mig-parted does: `01g.05gb` is `1g.5gb`.
fn without_leading_zeros(name: &str) -> String {
    let mut text = String::new();
    let mut letters = name.chars().peekable();
    let mut is_in_number = false;
    while let Some(letter) = letters.next() {
        let is_before_digit = letters.peek().is_some_and(char::is_ascii_digit);
        if letter == '0' && !is_in_number && is_before_digit {
            continue;
        }
        is_in_number = letter.is_ascii_digit();
        text.push(letter);
    }
    text
}

/// Returns an attribute that no profile has. Source: go-nvlib v0.8.1, `pkg/nvlib/device/mig_profile.go`, which knows
/// `+me`, `+me.all`, `+gfx` and `-me`. `nvml.h` defines no profiles with other attributes.
fn unknown_attribute(name: &str) -> Option<String> {
    let (sign, list) = attributes(name)?;
    let known: &[&str] = if sign == "+" { &["me", "me.all", "gfx"] } else { &["me"] };
    let unknown = list.split(',').find(|attribute| !known.contains(attribute));
    unknown.map(|attribute| quoted(&format!("{sign}{attribute}")))
}

/// Returns a duplicate attribute. mig-parted rejects these as well.
fn repeated_attribute(name: &str) -> Option<String> {
    let (sign, list) = attributes(name)?;
    let mut seen = BTreeSet::new();
    let twice = list.split(',').find(|attribute| !seen.insert(*attribute));
    twice.map(|attribute| quoted(&format!("{sign}{attribute}")))
}

/// Splits off the attributes of a name: their sign and the list.
fn attributes(name: &str) -> Option<(&str, &str)> {
    let at = name.find(['+', '-'])?;
    name.split_at_checked(at)?.1.split_at_checked(1)
}
