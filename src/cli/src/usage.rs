//! `octavo usage`: current allocations of each namespace by type, as a table or as the original document.

use std::collections::BTreeMap;

use octavo_client::{Client, RequestPath};
use octavo_fleet::usage::{UsageSum, UsageSummary};
use octavo_model::id::TypeName;

use super::fleet::absent_types;
use super::generate::access_rules;
use super::output::render;
use super::text::{self, Cell, count_noun};
use super::{CliError, Exit, Report, fleet};
use crate::settings::Colors;
use crate::settings::fleet::OutputOptions;
use crate::settings::usage::{UsageGrouping, UsageSettings};

const COUNTS: [&str; 4] = ["DEVICES", "PARTITIONS", "REPLICAS", "PODS"];

/// Runs `octavo usage`.
pub(super) async fn usage(settings: &UsageSettings, colors: Colors) -> Result<Report, CliError> {
    let rules = settings.access_rules.as_ref().map(access_rules).transpose()?;
    let client = Client::connect(&settings.server).await?;
    let target = RequestPath::new("/api/v1/usage/summary");
    let mut summary: UsageSummary = client.get(&target).await?;
    let is_empty = summary.items.is_empty();
    summary.items.retain(|one| {
        settings.matches(&one.namespace, one.type_name.as_ref().map(TypeName::as_str))
    });
    let mut notes = notes(&summary, is_empty);
    let types = summary.items.iter().filter_map(|one| one.type_name.as_ref());
    let types = types.map(TypeName::as_str);
    let unknown = absent_types::unknown(&client, &settings.types, types).await;
    if let Some(rules) = rules.filter(|_| !summary.items.is_empty()) {
        summary.items.retain(|one| !rules.allow(&one.namespace, one.type_name.as_ref()));
        if summary.items.is_empty() {
            notes.push("no reported allocation violates the access rules".to_owned());
        }
    }
    let is_complete = !is_empty && summary.stale_nodes == 0 && !summary.incomplete;
    let printed = settings.output;
    let mut names: Vec<&str> = summary.items.iter().map(|one| one.namespace.as_str()).collect();
    names.dedup();
    let text = || table(&summary.items, settings.by, printed, colors);
    let output = render(printed.format, &summary, names, text)?;
    let report = fleet::report(output, notes, unknown);
    let exit = match (&settings.access_rules, summary.items.is_empty()) {
        (Some(_), false) => Exit::Changes,
        (Some(_), true) if !is_complete => Exit::Failed,
        (Some(_) | None, _) => report.exit,
    };
    Ok(Report { exit, ..report })
}

fn notes(summary: &UsageSummary, is_empty: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if is_empty {
        notes.push(
            "no allocations: no pod has a device, or no agent runs with --usage-interval"
                .to_owned(),
        );
    } else if summary.items.is_empty() {
        notes.push("no matching allocations".to_owned());
    }
    if summary.stale_nodes > 0 {
        let stale = usize::try_from(summary.stale_nodes).unwrap_or(usize::MAX);
        let silent = count_noun(stale, "node", "nodes");
        notes.push(format!("{silent} stale; allocations there are not counted"));
    }
    if summary.incomplete {
        notes.push(
            "the result is incomplete, because there are too many allocations to count in \
                    one request"
                .to_owned(),
        );
    }
    notes
}

/// Total of a row's pods. A pod with several types counts for each, so the number of pods is valid only within one
/// type.
#[derive(Debug, Clone, Copy, Default)]
struct AllocationTotal {
    pods: u64,
    devices: u64,
    partitions: u64,
    replicas: u64,
}

fn table(items: &[UsageSum], by: UsageGrouping, printed: OutputOptions, colors: Colors) -> String {
    let mut sums: BTreeMap<Vec<&str>, AllocationTotal> = BTreeMap::new();
    for one in items {
        let type_name = one.type_name.as_ref().map_or("unknown", TypeName::as_str);
        let key = match by {
            UsageGrouping::Both => vec![one.namespace.as_str(), type_name],
            UsageGrouping::Namespace => vec![one.namespace.as_str()],
            UsageGrouping::Type => vec![type_name],
        };
        let sum = sums.entry(key).or_default();
        sum.pods = sum.pods.saturating_add(one.pods);
        sum.devices = sum.devices.saturating_add(one.devices);
        sum.partitions = sum.partitions.saturating_add(one.partitions);
        sum.replicas = sum.replicas.saturating_add(one.replicas);
    }
    if sums.is_empty() {
        return String::new();
    }
    let names: &[&str] = match by {
        UsageGrouping::Both => &["NAMESPACE", "TYPE"],
        UsageGrouping::Namespace => &["NAMESPACE"],
        UsageGrouping::Type => &["TYPE"],
    };
    // A pod with two types is one pod of its namespace, but the total would count it twice.
    let has_pods = by != UsageGrouping::Namespace;
    let counts = if has_pods { &COUNTS[..] } else { &COUNTS[..3] };
    let rows = sums.iter().map(|(key, sum)| {
        let numbers = [sum.devices, sum.partitions, sum.replicas, sum.pods];
        let numbers = numbers.iter().map(Cell::plain);
        key.iter().map(Cell::plain).chain(numbers).collect()
    });
    text::table(&[names, counts], rows, printed.headers, colors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Headers;
    use crate::settings::fleet::FleetFormat;

    fn one(namespace: &str, type_name: Option<&str>, devices: u64) -> UsageSum {
        UsageSum {
            namespace: namespace.to_owned(),
            type_name: type_name.map(|name| name.parse().unwrap()),
            pods: 1,
            devices,
            partitions: 0,
            replicas: 3,
        }
    }

    #[test]
    fn rows_are_grouped_and_pods_are_not_counted_twice() {
        let items = [
            one("team-a", Some("acme-x"), 2),
            one("team-a", None, 1),
            one("team-b", Some("acme-x"), 4),
        ];
        let text = |by, headers| {
            let format = FleetFormat::Table;
            table(&items, by, OutputOptions { format, headers }, Colors::Off)
        };
        assert_eq!(
            text(UsageGrouping::Both, Headers::Shown),
            "\
NAMESPACE  TYPE     DEVICES  PARTITIONS  REPLICAS  PODS
team-a     acme-x   2        0           3         1
team-a     unknown  1        0           3         1
team-b     acme-x   4        0           3         1
"
        );
        assert_eq!(
            text(UsageGrouping::Namespace, Headers::Shown),
            "\
NAMESPACE  DEVICES  PARTITIONS  REPLICAS
team-a     3        0           6
team-b     4        0           3
"
        );
        assert_eq!(
            text(UsageGrouping::Type, Headers::Hidden),
            "acme-x   6  0  6  2\nunknown  1  0  3  1\n"
        );
    }

    #[test]
    fn uncounted_allocations_have_a_note() {
        let mut summary = UsageSummary {
            api_version: String::new(),
            kind: String::new(),
            revision: 1,
            stale_nodes: 2,
            incomplete: true,
            items: Vec::new(),
        };
        let shown = notes(&summary, true);
        assert_eq!(shown.len(), 3, "{shown:?}");
        assert!(shown[1].starts_with("2 nodes stale"), "{shown:?}");
        summary.stale_nodes = 0;
        summary.incomplete = false;
        assert_eq!(notes(&summary, false), ["no matching allocations"]);
    }
}
