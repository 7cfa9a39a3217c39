//! Layout files: text to [`Layouts`] and back, in both dialects.
//!
//! A file is read in two steps: YAML (JSON is YAML) to a tree whose nodes know their places, with bounds on depth and size,
//! and the tree to layouts. The reader goes on after a mistake, so that a person sees all of them at once. What
//! mig-parted passes over in silence is an error here, or a warning where the meaning is certain (`docs/layouts.md`).

mod devices;
mod error;
mod findings;
mod marks;
mod mig_parted;
mod octavo;
mod out;
mod profiles;
mod scalar;
mod show;
mod tree;
mod write;

pub use self::error::{LayoutError, LayoutProblem, LayoutWarning, WarningProblem};
use self::findings::Findings;
pub use self::show::show;
use self::tree::{Entry, Node, Value};
pub use self::write::{CannotWrite, write, write_json};
use crate::domain::layout::{Layouts, Place, Rule};

/// Version of our dialect.
const API_VERSION: &str = "octavo.dev/v1";

/// Kind of our dialect.
const KIND: &str = "Layouts";

/// Keys of mig-parted's dialect at the top.
const MIG_PARTED_KEYS: &[&str] = &["version", "mig-configs"];

/// Keys of our dialect at the top.
const OCTAVO_KEYS: &[&str] = &["apiVersion", "kind", "layouts"];

/// A layout file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// What it says.
    pub layouts: Layouts,
    /// What the author should know, in the order of the file.
    pub warnings: Vec<LayoutWarning>,
}

/// Reads a layout file of either dialect.
///
/// # Errors
/// All that is wrong with it, in the order of the file: at least one, at most [`LayoutProblem::MOST`] and a last one that
/// says that there are more. A text that is no YAML has one error, because what follows it means nothing.
pub fn parse(text: &str) -> Result<Parsed, Vec<LayoutError>> {
    let mut findings = Findings::default();
    let layouts = read(text, &mut findings);
    findings.finish(layouts)
}

/// The same without its places: what two files say when they say the same.
#[must_use]
pub fn without_places(mut layouts: Layouts) -> Layouts {
    for layout in &mut layouts.layouts {
        layout.place = Place::default();
        layout.rules.iter_mut().for_each(unplace);
    }
    layouts
}

fn unplace(rule: &mut Rule) {
    use crate::domain::layout::MigWish;
    rule.place = Place::default();
    if let Some(MigWish::Enabled(counts)) = &mut rule.mig {
        for count in counts {
            count.place = Place::default();
        }
    }
    if let Some(sharing) = &mut rule.time_slicing {
        sharing.place = Place::default();
    }
}

fn read(text: &str, findings: &mut Findings) -> Option<Layouts> {
    let root = tree::read(text, findings)?;
    let Value::Map(entries) = &root.value else {
        findings.error(root.place, LayoutProblem::NoDialect);
        return None;
    };
    match (
        first_of(entries, OCTAVO_KEYS),
        first_of(entries, MIG_PARTED_KEYS),
    ) {
        (Some(_), None) => octavo::read(&root, entries, findings),
        (None, Some(_)) => mig_parted::read(&root, entries, findings),
        (Some(ours), Some(theirs)) => {
            let place = ours.place.max(theirs.place);
            findings.error(place, LayoutProblem::BothDialects);
            None
        }
        (None, None) => {
            let place = entries.first().map_or(root.place, |entry| entry.place);
            findings.error(place, LayoutProblem::NoDialect);
            None
        }
    }
}

fn first_of<'n>(entries: &'n [Entry], keys: &[&str]) -> Option<&'n Entry> {
    entries.iter().find(|entry| keys.contains(&&*entry.key))
}

/// The value of a key that both dialects have: a name and a text that it must be.
fn expect_text(node: &Node, key: &'static str, expected: &'static str, findings: &mut Findings) {
    let said = match &node.value {
        Value::Scalar(scalar) => scalar.text.as_str(),
        Value::List(_) | Value::Map(_) => "",
    };
    if said != expected {
        let problem = LayoutProblem::NotThis {
            key,
            expected,
            found: node.in_words(),
        };
        findings.error(node.place, problem);
    }
}

#[cfg(test)]
mod tests;
