//! Layout files: parsing into [`Layouts`] from three dialects, and writing two of them.
//!
//! Parsing has two steps. First, YAML (of which JSON is a subset) is parsed into a tree with source positions, with
//! limits on depth and size. Then the tree is converted to layouts. The second step continues after an error, so that
//! all errors are reported at once. Keys that mig-parted silently ignores are errors here, or warnings if their meaning
//! is clear (`docs/layouts.md`).

pub mod catalog;
mod device_plugin;
mod devices;
mod error;
mod findings;
mod mig_parted;
mod node;
mod octavo;
mod output;
pub mod prices;
mod profiles;
mod render;
mod scalar;
mod syntax;
mod time_slicing;
mod time_slicing_output;
mod tree;
mod write;

use octavo_model::similar_names;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{Layouts, Rule, TimeSlicing};

pub use self::error::{LayoutError, LayoutProblem, LayoutWarning, WarningProblem};
use self::findings::Findings;
use self::node::{Entry, Node, Value};
pub use self::render::render;
pub use self::write::{LayoutWriteError, write, write_json};

/// `apiVersion` of our dialect.
const API_VERSION: &str = "octavo.dev/v1";

/// `kind` of our dialect.
const KIND: &str = "Layouts";

/// Top-level keys of mig-parted's dialect.
const MIG_PARTED_KEYS: &[&str] = &["version", "mig-configs"];

/// Top-level keys of the device plugin's configuration.
const DEVICE_PLUGIN_KEYS: &[&str] = &["version", "flags", "resources", "sharing", "imex"];

/// Top-level keys that exist only in the device plugin's configuration.
const DEVICE_PLUGIN_ONLY_KEYS: &[&str] = &["flags", "resources", "sharing", "imex"];

/// Top-level keys of our dialect.
const OCTAVO_KEYS: &[&str] = &["apiVersion", "kind", "layouts"];

/// Top-level keys of all dialects.
const ALL_TOP_KEYS: [&[&str]; 3] = [OCTAVO_KEYS, MIG_PARTED_KEYS, DEVICE_PLUGIN_KEYS];

/// A parsed layout file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedLayouts {
    /// The layouts.
    pub layouts: Layouts,
    /// Warnings, in the order of the file.
    pub warnings: Vec<LayoutWarning>,
}

/// Parses a layout file of any dialect.
///
/// # Errors
/// Returns all errors in the order of the file: at least one, and at most [`LayoutProblem::MAX_ERRORS`] followed by one that
/// reports that there are more. A text that is not YAML has exactly one error, because everything after it would be
/// meaningless.
pub fn parse(text: &str) -> Result<ParsedLayouts, Vec<LayoutError>> {
    let mut findings = Findings::default();
    let layouts = read(text, &mut findings);
    findings.into_parsed(layouts)
}

/// Removes source positions, so that equal layouts of different files compare equal.
#[must_use]
pub fn without_places(mut layouts: Layouts) -> Layouts {
    for layout in &mut layouts.layouts {
        layout.place = SourcePosition::default();
        layout.rules.iter_mut().for_each(clear_places);
    }
    layouts
}

fn clear_places(rule: &mut Rule) {
    use octavo_planner::layout::MigSpec;
    rule.place = SourcePosition::default();
    if let Some(MigSpec::Enabled(counts)) = &mut rule.mig {
        for count in counts {
            count.place = SourcePosition::default();
        }
    }
    rule.time_slicing = rule.time_slicing.take().map(TimeSlicing::without_positions);
}

fn read(text: &str, findings: &mut Findings) -> Option<Layouts> {
    let root = tree::read(text, findings)?;
    let Value::Map(entries) = &root.value else {
        findings.error(root.place, LayoutProblem::UnknownDialect);
        return None;
    };
    // `version` is a key of both mig-parted and the device plugin.
    let plugin =
        first_entry_of(entries, DEVICE_PLUGIN_ONLY_KEYS).or_else(|| misplaced_plugin_key(entries));
    let theirs = first_entry_of(entries, MIG_PARTED_KEYS).or(plugin);
    let mig_configs = first_entry_of(entries, &["mig-configs"]);
    let place = match (
        first_entry_of(entries, OCTAVO_KEYS),
        theirs,
        plugin,
        mig_configs,
    ) {
        (Some(_), None, ..) => return octavo::read(&root, entries, findings),
        (None, Some(_), None, _) => return mig_parted::read(&root, entries, findings),
        (None, Some(_), Some(_), None) => return device_plugin::read(&root, entries, findings),
        (Some(one), Some(other), ..) | (None, Some(_), Some(one), Some(other)) => {
            let place = one.place.max(other.place);
            findings.error(place, LayoutProblem::MixedDialects);
            return None;
        }
        (None, None, ..) => entries.first().map_or(root.place, |entry| entry.place),
    };
    findings.error(place, LayoutProblem::UnknownDialect);
    None
}

/// In a file without keys of another dialect, returns the first key that was meant for the device plugin's
/// configuration: a misspelled key, or a key at the top level instead of in its section.
fn misplaced_plugin_key(entries: &[Entry]) -> Option<&Entry> {
    if first_entry_of(entries, OCTAVO_KEYS).is_some()
        || first_entry_of(entries, &["mig-configs"]).is_some()
    {
        return None;
    }
    entries.iter().find(|entry| {
        let all = ALL_TOP_KEYS.iter().flat_map(|keys| keys.iter().copied());
        let is_misspelt = similar_names::closest(&entry.key, all)
            .is_some_and(|nearest| DEVICE_PLUGIN_ONLY_KEYS.contains(&nearest));
        is_misspelt || device_plugin::is_section_key(&entry.key)
    })
}

fn first_entry_of<'n>(entries: &'n [Entry], keys: &[&str]) -> Option<&'n Entry> {
    entries.iter().find(|entry| keys.contains(&&*entry.key))
}

/// Checks `apiVersion` and `kind`, the first two keys of every Octavo file. The last pair is an example for `kind` and
/// its value.
fn expect_header(
    file: (SourcePosition, &[Entry]),
    what: &'static str,
    (example, kind): (&'static str, &'static str),
    findings: &mut Findings,
) {
    let needed = [
        ("apiVersion", "\"apiVersion: octavo.dev/v1\"", API_VERSION),
        ("kind", example, kind),
    ];
    for (key, example, expected) in needed {
        if let Some(node) = findings.required(file, what, (key, example)) {
            expect_text(node, key, expected, findings);
        }
    }
}

/// Checks a key with a fixed value.
fn expect_text(node: &Node, key: &'static str, expected: &'static str, findings: &mut Findings) {
    let said = match &node.value {
        Value::Scalar(scalar) => scalar.text.as_str(),
        Value::List(_) | Value::Map(_) => "",
    };
    if said != expected {
        let problem = LayoutProblem::WrongFixedValue {
            key,
            expected,
            found: node.describe(),
        };
        findings.error(node.place, problem);
    }
}

#[cfg(test)]
mod tests;
