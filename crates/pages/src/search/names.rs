//! Matches by name besides nodes, devices and pods: types, MIG profiles, layouts and hardware profiles.

use std::collections::BTreeMap;

use octavo_fleet::access::Visibility;
use octavo_fleet::availability::{Availability, Row, Shape, UnitType};
use octavo_fleet::hardware_profile::document::ProfileRow;
use octavo_planner::layout::Layouts;
use octavo_store::fleet::Fleet;
use octavo_store::search::{Matches, is_match};

use super::{ResultGroup, SearchResult, group};
use crate::address::{LIST, encoded, profile_path};
use crate::availability::{profile_anchor, type_anchor};
use crate::badges::{count_noun, printable};
use crate::layouts::dry_run;

/// Types by canonical name or product name. They are those of the page of availability, which the results lead to.
pub(super) fn types(text: &str, all: &Availability, visibility: &Visibility) -> ResultGroup {
    let mut rows = all.rows.chunk_by(|one, other| one.key.kind == other.key.kind);
    let known = rows.by_ref().filter(|rows| rows.iter().any(Row::is_shown));
    let kinds = known.filter_map(|rows| rows.first()).map(|row| &row.key.kind);
    let found = kinds.filter(|kind| {
        visibility.shows_type(kind.as_str())
            && [kind.as_str(), &kind.product_name()].iter().any(|name| is_match(name, text))
    });
    group("types", "Types", &found.collect(), |kind: &&UnitType| SearchResult {
        href: Some(format!("/availability#{}", type_anchor(kind))),
        name: kind.product_name(),
        about: kind.as_str().to_owned(),
    })
}

/// MIG profiles, with the types that have them.
pub(super) fn mig_profiles(text: &str, all: &Availability, visibility: &Visibility) -> ResultGroup {
    let mut profiles: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in all.rows.iter().filter(|row| visibility.shows_type(row.key.kind.as_str())) {
        let Shape::Mig(profile) = &row.key.shape else { continue };
        let types = profiles.entry(profile).or_default();
        let name = row.key.kind.product_name();
        // A type has a row for each resource that offers the profile.
        if types.last() != Some(&name) {
            types.push(name);
        }
    }
    let found = profiles.into_iter().filter(|(profile, _)| is_match(profile, text));
    group("mig-profiles", "MIG profiles", &found.collect(), |(profile, types)| SearchResult {
        href: Some(format!("/availability#{}", profile_anchor(profile))),
        name: printable(profile),
        about: format!("of {}", types.join(", ")),
    })
}

/// Layouts of nodes and of the aggregator's file.
pub(super) fn layouts(text: &str, fleet: &Fleet, file: Option<&Layouts>) -> ResultGroup {
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    for layout in file.into_iter().flat_map(|file| &file.layouts) {
        nodes.entry(&layout.name).or_default();
    }
    for name in fleet.nodes.iter().filter_map(|node| node.summary.layout.as_ref()?.name.as_deref())
    {
        let count = nodes.entry(name).or_default();
        *count = count.saturating_add(1);
    }
    let found = nodes.into_iter().filter(|(name, _)| is_match(name, text));
    group("layouts", "Layouts", &found.collect(), |(name, nodes)| SearchResult {
        href: Some(match nodes {
            0 => dry_run::link_of_layout_alone(name),
            _ => format!("{LIST}?layout={}", encoded(name)),
        }),
        name: printable(name),
        about: match nodes {
            0 => "selected on no node".to_owned(),
            count => format!("selected on {}", count_noun(*count, "node", "nodes")),
        },
    })
}

/// Hardware profiles by name or display name.
pub(super) fn hardware_profiles<'a>(
    text: &str,
    all: impl Iterator<Item = &'a ProfileRow>,
) -> ResultGroup {
    let found = all.filter(|row| {
        is_match(&row.display_name, text)
            || is_match(&format!("{}/{}", row.namespace, row.name), text)
    });
    let found: Matches<&ProfileRow> = found.collect();
    group("hardware-profiles", "Hardware profiles", &found, |row| SearchResult {
        href: Some(profile_path(&row.namespace, &row.name)),
        name: printable(&row.display_name),
        about: match row.namespace.as_str() {
            "" => printable(&row.name),
            namespace => printable(&format!("{namespace}/{}", row.name)),
        },
    })
}
