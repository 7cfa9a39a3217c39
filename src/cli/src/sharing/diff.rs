//! Comparison of the offered devices with the Node's current resources.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::resource::ResourceName;

use super::SharingPreview;
use crate::settings::Colors;
use crate::style::Style;
use crate::text::{lines, printable};
use crate::{Exit, Report};

/// Compares the counts, because a Node contains nothing else. An NVIDIA resource that the Node offers and the layout
/// does not is a difference too.
pub(super) fn report(
    outlook: SharingPreview,
    now: &BTreeMap<ResourceName, u64>,
    colors: Colors,
) -> Report {
    let resources = outlook.compiled.offers.resources.iter();
    let then: BTreeMap<&ResourceName, u64> = resources
        .map(|offer| {
            let count = u64::try_from(offer.count()).unwrap_or(u64::MAX);
            (&offer.name, count)
        })
        .collect();
    let names: BTreeSet<&ResourceName> = now.keys().chain(then.keys().copied()).collect();
    let mut differences = Vec::new();
    for name in names {
        // A removed resource remains in the Node with a count of zero.
        let before = now.get(name).copied().filter(|count| *count > 0);
        let after = then.get(name).copied().filter(|count| *count > 0);
        if before == after {
            continue;
        }
        if let Some(count) = before {
            differences.push(Style::Bad.paint(&format!("- {name}: {count}"), colors));
        }
        if let Some(count) = after {
            differences.push(Style::Good.paint(&format!("+ {name}: {count}"), colors));
        }
    }
    let warnings = outlook.compiled.warnings.iter();
    let warnings = lines(warnings.map(|text| printable(&format!("warning: {text}"))));
    Report {
        exit: if differences.is_empty() { Exit::Done } else { Exit::Changes },
        output: lines(differences),
        notes: outlook.notes + &warnings,
    }
}
