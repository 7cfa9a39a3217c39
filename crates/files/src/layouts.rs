//! Layout files: parsing into [`Layouts`] from three dialects, and writing two of them.
//!
//! Parsing has two steps. First, YAML (of which JSON is a subset) is parsed into a tree with source positions, with
//! limits on depth and size. Then the tree is converted to layouts. The second step continues after an error, so that
//! all errors are reported at once. Keys that mig-parted silently ignores are errors here, or warnings if their meaning
//! is clear (`docs/reference/layouts.md`).

pub mod budgets;
mod device_plugin;
mod devices;
mod error;
mod fields;
mod findings;
mod mig_parted;
mod node;
mod octavo;
mod output;
pub mod prices;
mod profiles;
mod render;
mod scalar;
mod time_slicing;
mod tree;
mod write;

use octavo_model::similar_names;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::Layouts;

pub use self::error::{LayoutError, LayoutProblem, LayoutWarning, Positioned, WarningProblem};
use self::findings::{Findings, Mapping, MappingShape};
use self::node::{Entry, YamlNode};
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

fn read(text: &str, findings: &mut Findings) -> Option<Layouts> {
    let root = tree::read(text, findings)?;
    let Some(entries) = root.entries() else {
        findings.error(root.position, LayoutProblem::UnknownDialect);
        return None;
    };
    // `version` is a key of both mig-parted and the device plugin.
    let plugin =
        first_entry_of(entries, DEVICE_PLUGIN_ONLY_KEYS).or_else(|| misplaced_plugin_key(entries));
    let theirs = first_entry_of(entries, MIG_PARTED_KEYS).or(plugin);
    let mig_configs = first_entry_of(entries, &["mig-configs"]);
    let (position, problem) =
        match (first_entry_of(entries, OCTAVO_KEYS), theirs, plugin, mig_configs) {
            (Some(_), None, ..) => return octavo::read(&root, findings),
            (None, Some(_), None, _) => return mig_parted::read(&root, findings),
            (None, Some(_), Some(_), None) => return device_plugin::read(&root, findings),
            (Some(one), Some(other), ..) | (None, Some(_), Some(one), Some(other)) => {
                (one.position.max(other.position), LayoutProblem::MixedDialects)
            }
            (None, None, ..) => {
                let position = entries.first().map_or(root.position, |entry| entry.position);
                (position, LayoutProblem::UnknownDialect)
            }
        };
    findings.error(position, problem);
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

/// Checks `apiVersion` and `kind`, the first two keys of every Octavo file. `example` shows `kind` with its value.
fn expect_header(
    file: Mapping<'_>,
    kind: &'static str,
    example: &'static str,
    findings: &mut Findings,
) {
    let version = "\"apiVersion: octavo.dev/v1\"";
    for (key, example, expected) in [("apiVersion", version, API_VERSION), ("kind", example, kind)]
    {
        if let Some(node) = findings.required(file, key, example) {
            expect_text(node, key, expected, findings);
        }
    }
}

/// Checks a key with a fixed value.
fn expect_text(
    node: &YamlNode,
    key: &'static str,
    expected: &'static str,
    findings: &mut Findings,
) {
    if scalar::text(node) != Some(expected) {
        let problem = LayoutProblem::WrongFixedValue { key, expected, found: node.describe() };
        findings.error(node.position, problem);
    }
}

/// Parses a file that is not empty and has a mapping at the top. Otherwise the error is `problem`.
fn parse_file<T>(
    text: &str,
    shape: MappingShape,
    problem: LayoutProblem,
    read: impl FnOnce(Mapping<'_>, &mut Findings) -> Option<T>,
) -> Result<T, Vec<LayoutError>> {
    let mut findings = Findings::default();
    if text.trim().is_empty() {
        findings.error(SourcePosition { line: 1, column: 1 }, problem);
        return findings.into_result(None);
    }
    let parsed = tree::read(text, &mut findings).and_then(|root| {
        if root.entries().is_none() {
            findings.error(root.position, problem);
            return None;
        }
        let file = findings.mapping(&root, shape)?;
        read(file, &mut findings)
    });
    findings.into_result(parsed)
}

#[cfg(test)]
mod tests;
