//! `octavo version`: versions of this command, the aggregator and the agents, with warnings about differences.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use octavo_client::{Client, RequestPath, ServerSettings};
use octavo_model::API_VERSION;
use serde::{Deserialize, Serialize};

use super::text::{Cell, count_noun, printable, table};
use super::{CliError, Exit, Report, explain, json, yaml};
use crate::settings::version::{VersionFormat, VersionSettings};
use crate::settings::{Colors, Headers};

const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// The versions, as JSON and YAML have them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Versions {
    api_version: &'static str,
    kind: &'static str,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregator: Option<String>,
    /// Name of the cluster; absent if the aggregator has none, or if the user is not authorized to list nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// Absent if the aggregator was not asked, or if the user is not authorized to list nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<Vec<AgentVersion>>,
}

#[derive(Debug, Serialize)]
struct AgentVersion {
    version: String,
    nodes: usize,
}

/// The part of the API description that names the aggregator's version. Every client is authorized to read it.
#[derive(Debug, Deserialize)]
struct ApiDescription {
    info: ApiInfo,
}

#[derive(Debug, Deserialize)]
struct ApiInfo {
    version: String,
}

/// Runs `octavo version`. The version of this command is printed even if the aggregator cannot be reached.
pub(super) async fn version(
    settings: &VersionSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let mut versions = client_only();
    let mut report = Report::default();
    if !settings.client {
        match add_fleet(&mut versions, &settings.server).await {
            Ok(()) => report = Report::with_notes(String::new(), &skew(&versions), Exit::Done),
            Err(error) => report = Report::failed(explain(&error)),
        }
    }
    report.output = match settings.format {
        VersionFormat::Table => text(&versions, colors),
        VersionFormat::Json => json(&versions)?,
        VersionFormat::Yaml => yaml(&versions)?,
    };
    Ok(report)
}

/// Returns the version of this command.
pub(super) fn client_only() -> Versions {
    Versions {
        api_version: API_VERSION,
        kind: "Versions",
        client: CLIENT.to_owned(),
        aggregator: None,
        cluster: None,
        agents: None,
    }
}

/// Returns the versions that can be determined.
pub(super) async fn versions(server: &ServerSettings) -> Versions {
    let mut versions = client_only();
    // A missing aggregator is reported elsewhere.
    let _ = add_fleet(&mut versions, server).await;
    versions
}

async fn add_fleet(versions: &mut Versions, server: &ServerSettings) -> Result<(), CliError> {
    let client = Client::connect(server).await?;
    let description: ApiDescription = client.get(&RequestPath::new("/openapi.json")).await?;
    versions.aggregator = Some(description.info.version);
    let nodes = match client.all_nodes().await {
        Err(error) if error.is_forbidden() => return Ok(()),
        nodes => nodes?,
    };
    versions.cluster = nodes.cluster;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    // Nodes without an agent have an empty version.
    for node in nodes.items.into_iter().filter(|node| !node.agent_version.is_empty()) {
        let count = counts.entry(node.agent_version).or_default();
        *count = count.saturating_add(1);
    }
    let agents = counts.into_iter().map(|(version, nodes)| AgentVersion { version, nodes });
    versions.agents = Some(agents.collect());
    Ok(())
}

fn text(versions: &Versions, colors: Colors) -> String {
    let row = |component: &str, version: &str, nodes: Option<usize>| {
        vec![Cell::plain(component), Cell::plain(version), Cell::optional(nodes)]
    };
    let client = row("octavo", &versions.client, None);
    let aggregator = versions.cluster.as_deref().map_or_else(
        || "aggregator".to_owned(),
        |cluster| format!("aggregator ({})", printable(cluster)),
    );
    let aggregator = versions.aggregator.iter().map(|version| row(&aggregator, version, None));
    let agents = versions.agents.iter().flatten();
    let agents = agents.map(|agent| row("agent", &agent.version, Some(agent.nodes)));
    let rows = std::iter::once(client).chain(aggregator).chain(agents);
    table(&[&["COMPONENT", "VERSION", "NODES"]], rows, Headers::Shown, colors)
}

/// Returns warnings about versions that differ from the aggregator's.
fn skew(versions: &Versions) -> Vec<String> {
    let Some(aggregator) = versions.aggregator.as_deref() else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    if release(&versions.client).map(minor) != release(aggregator).map(minor) {
        notes.push(format!(
            "octavo {} and the aggregator {} have different minor versions; use octavo in the \
             version of the aggregator",
            versions.client,
            printable(aggregator)
        ));
    }
    let Some(agents) = &versions.agents else {
        notes.push(
            "agents are not shown: permission to list nodes.octavo.dev is required".to_owned(),
        );
        return notes;
    };
    for agent in agents.iter().filter(|agent| agent.version != aggregator) {
        let order =
            release(&agent.version).zip(release(aggregator)).map(|(one, other)| one.cmp(&other));
        let (relation, remedy) = match order {
            Some(Ordering::Less) => {
                ("older than", "; wait for the rollout of the agents, or upgrade them")
            }
            Some(Ordering::Greater) => ("newer than", "; upgrade the aggregator"),
            Some(Ordering::Equal) | None => ("different from", ""),
        };
        notes.push(format!(
            "{} {} agent {}, which is {relation} the aggregator {}{remedy}",
            count_noun(agent.nodes, "node", "nodes"),
            if agent.nodes == 1 { "has" } else { "have" },
            printable(&agent.version),
            printable(aggregator)
        ));
    }
    notes
}

/// Returns major, minor and patch of a version, without a pre-release.
fn release(version: &str) -> Option<[u64; 3]> {
    let numbers = version.split(['-', '+']).next()?;
    let mut numbers = numbers.split('.').map(|number| number.parse().ok());
    let release = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(release)
}

fn minor([major, minor, _]: [u64; 3]) -> [u64; 2] {
    [major, minor]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(client: &str, aggregator: &str, agents: &[(&str, usize)]) -> Versions {
        let agents = agents
            .iter()
            .map(|(version, nodes)| AgentVersion { version: (*version).to_owned(), nodes: *nodes });
        Versions {
            api_version: API_VERSION,
            kind: "Versions",
            client: client.to_owned(),
            aggregator: Some(aggregator.to_owned()),
            cluster: None,
            agents: Some(agents.collect()),
        }
    }

    #[test]
    fn version_skew_is_reported_with_the_remedy() {
        assert_eq!(skew(&versions("0.1.3", "0.1.0", &[("0.1.0", 4)])), [""; 0]);
        assert_eq!(
            skew(&versions("0.2.0", "0.1.0", &[("0.0.9", 2), ("0.1.1", 1), ("0.1.0-rc.1", 1)])),
            [
                "octavo 0.2.0 and the aggregator 0.1.0 have different minor versions; use octavo in the version of the aggregator",
                "2 nodes have agent 0.0.9, which is older than the aggregator 0.1.0; wait for the rollout of the agents, or upgrade them",
                "1 node has agent 0.1.1, which is newer than the aggregator 0.1.0; upgrade the aggregator",
                "1 node has agent 0.1.0-rc.1, which is different from the aggregator 0.1.0",
            ]
        );
        let partial = Versions { agents: None, ..versions("0.1.0", "0.1.0", &[]) };
        assert!(skew(&partial)[0].starts_with("agents are not shown: permission"));
    }

    #[test]
    fn versions_are_rows_and_documents() {
        let versions = versions("0.2.0", "0.1.0", &[("0.1.0", 4)]);
        assert_eq!(
            text(&versions, Colors::Off),
            "COMPONENT   VERSION  NODES\noctavo      0.2.0    -\naggregator  0.1.0    -\nagent       0.1.0    4\n"
        );
        assert_eq!(
            serde_json::to_value(&versions).unwrap(),
            serde_json::json!({
                "apiVersion": "octavo.dev/v1", "kind": "Versions", "client": "0.2.0", "aggregator": "0.1.0",
                "agents": [{"version": "0.1.0", "nodes": 4}],
            })
        );
        let named = Versions { cluster: Some("prod-eu".to_owned()), ..versions };
        assert!(text(&named, Colors::Off).contains("\naggregator (prod-eu)  0.1.0    -\n"));
        assert_eq!(serde_json::to_value(&named).unwrap()["cluster"], "prod-eu");
    }
}
