//! Files of the fleet: documents of the aggregator, and pods with their logs from the API server. A part that cannot
//! be read does not stop the others.

use octavo_client::{Client, RequestPath};
use octavo_fleet::api::NodeRow;
use octavo_fleet::summary::NodeState;
use octavo_kube::diagnostics::{ClusterDiagnostics, OctavoPod};
use octavo_node::doctor::Diagnosis;
use octavo_support_bundle::{Contents, NameKind};
use octavo_toolkit::error::chain;
use serde_json::Value;

use crate::doctor::{RemoteNode, connect_cluster};
use crate::output::note;
use crate::settings::support_bundle::SupportBundleSettings;
use crate::text::{count_noun, printable};
use crate::{CliError, version};

/// Maximum number of agents whose logs are read if no nodes are specified.
const MAX_AGENT_LOGS: usize = 20;

/// Documents of the whole fleet.
const FLEET_DOCUMENTS: [(&str, &str); 4] = [
    ("types.json", "/api/v1/types"),
    ("availability.json", "/api/v1/availability"),
    ("usage-summary.json", "/api/v1/usage/summary"),
    ("profiles.json", "/api/v1/profiles"),
];

/// Collects the files. Without an aggregator, those of the API server remain.
pub(super) async fn contents(settings: &SupportBundleSettings) -> Result<Contents, CliError> {
    let mut contents = Contents::new()?;
    note("Connecting to the aggregator and the API server");
    let (client, cluster) =
        tokio::join!(Client::connect(&settings.server), connect_cluster(&settings.server));
    let nodes = match &client {
        Ok(client) => nodes(client, settings, &mut contents).await,
        Err(_) => Ok(Vec::new()),
    };
    let client = client.map_err(CliError::from);
    let (client, nodes) = match (client, nodes) {
        (Ok(client), Ok(nodes)) => (Some(client), nodes),
        (Err(error), _) | (Ok(_), Err(error)) => {
            // The logs are needed most if the aggregator does not respond.
            if cluster.is_err() || matches!(error, CliError::NoSuchNode(_)) {
                return Err(error);
            }
            contents.add_error("aggregator", &chain(&error));
            (None, Vec::new())
        }
    };
    contents.add_document("versions.json", &version::versions(&settings.server).await)?;
    if let Some(client) = &client {
        for (number, node) in nodes.iter().enumerate() {
            progress(number, nodes.len(), &format!("node {}", printable(&node.name)));
            let cluster = cluster.as_ref().map_err(String::clone);
            add_node(&node.name, (client, cluster), &mut contents).await?;
        }
    }
    match &cluster {
        Ok(cluster) => add_pods(cluster, (settings, &nodes), &mut contents).await?,
        Err(why) => contents.add_error("logs", why),
    }
    Ok(contents)
}

/// Reads the list of nodes and the documents of the fleet; returns the selected nodes.
async fn nodes(
    client: &Client,
    settings: &SupportBundleSettings,
    contents: &mut Contents,
) -> Result<Vec<NodeRow>, CliError> {
    let mut nodes = client.all_nodes().await?.items;
    for node in &nodes {
        contents.add_name(NameKind::Node, &node.name);
    }
    if settings.nodes.is_empty() {
        contents.add_document("nodes.json", &nodes)?;
        for (path, target) in FLEET_DOCUMENTS {
            let document: Result<Value, _> = client.get(&RequestPath::new(target)).await;
            match document {
                Ok(document) => contents.add_document(path, &document)?,
                Err(error) => contents.add_error(path, &chain(&error)),
            }
        }
        return Ok(nodes);
    }
    let is_known = |name: &&String| nodes.iter().any(|node| node.name == **name);
    if let Some(unknown) = settings.nodes.iter().find(|name| !is_known(name)) {
        return Err(CliError::NoSuchNode(unknown.clone()));
    }
    nodes.retain(|node| settings.nodes.contains(&node.name));
    Ok(nodes)
}

async fn add_node(
    name: &str,
    (client, cluster): (&Client, Result<&ClusterDiagnostics, String>),
    contents: &mut Contents,
) -> Result<(), CliError> {
    let directory = format!("nodes/{}", file_name(name));
    let is_cluster = cluster.is_ok();
    let node = match RemoteNode::read(name, client, cluster).await {
        Ok(node) => node,
        Err(error) => {
            contents.add_error(&directory, &chain(&error));
            return Ok(());
        }
    };
    contents.add_document(&format!("{directory}/status.json"), node.detail())?;
    contents.add_document(&format!("{directory}/doctor.json"), &Diagnosis::new(node.findings()))?;
    let path = format!("{directory}/kubernetes.json");
    match node.object() {
        Ok(Some(object)) => contents.add_document(&path, object)?,
        Err(why) if is_cluster => contents.add_error(&path, why),
        Ok(None) | Err(_) => {}
    }
    Ok(())
}

async fn add_pods(
    cluster: &ClusterDiagnostics,
    (settings, nodes): (&SupportBundleSettings, &[NodeRow]),
    contents: &mut Contents,
) -> Result<(), CliError> {
    let pods = match cluster.pods(None).await {
        Ok(pods) => pods,
        Err(error) => {
            contents.add_error("logs", &error.brief());
            return Ok(());
        }
    };
    for pod in &pods {
        contents.add_name(NameKind::Pod, &pod.name);
        contents.add_name(NameKind::Namespace, &pod.namespace);
    }
    contents.add_document("pods.json", &pods)?;
    let (selected, omitted) = with_logs(&pods, settings, nodes);
    if omitted > 0 {
        let omitted = count_noun(omitted, "agent", "agents");
        contents.add_error("logs", &format!("logs of {omitted} omitted; name nodes to get theirs"));
    }
    for (number, pod) in selected.iter().enumerate() {
        progress(number, selected.len(), &format!("log of {}", printable(&pod.name)));
        for container in &pod.containers {
            let path = format!("logs/{}-{}", file_name(&pod.name), file_name(container));
            let runs = [(false, ""), (true, "-previous")];
            for (previous, suffix) in runs.into_iter().filter(|(old, _)| !old || pod.restarts > 0) {
                let path = format!("{path}{suffix}.log");
                match cluster.log(pod, container, previous).await {
                    Ok(log) => contents.add_log(&path, &log)?,
                    Err(error) => contents.add_error(&path, &error.brief()),
                }
            }
        }
    }
    Ok(())
}

/// Selects the pods whose logs are read: the aggregator, and the agents of the named nodes or, of the whole fleet, a
/// limited number of agents, those with problems first. Returns the number of other agents too.
fn with_logs<'a>(
    pods: &'a [OctavoPod],
    settings: &SupportBundleSettings,
    nodes: &[NodeRow],
) -> (Vec<&'a OctavoPod>, usize) {
    let (agents, others): (Vec<&OctavoPod>, Vec<&OctavoPod>) =
        pods.iter().partition(|pod| pod.is_agent());
    let mut agents = agents;
    let mut selected = others;
    if !settings.nodes.is_empty() {
        let is_named =
            |pod: &&OctavoPod| pod.node.as_ref().is_some_and(|node| settings.nodes.contains(node));
        selected.extend(agents.into_iter().filter(is_named));
        return (selected, 0);
    }
    let is_fine = |pod: &OctavoPod| {
        let mut of_pod = nodes.iter().filter(|node| Some(&node.name) == pod.node.as_ref());
        pod.ready && pod.restarts == 0 && of_pod.all(|node| node.state == NodeState::Ok)
    };
    agents.sort_by_key(|pod| is_fine(pod));
    let omitted = agents.len().saturating_sub(MAX_AGENT_LOGS);
    selected.extend(agents.into_iter().take(MAX_AGENT_LOGS));
    (selected, omitted)
}

fn progress(number: usize, count: usize, what: &str) {
    note(&format!("[{}/{count}] {what}", number.saturating_add(1)));
}

/// Returns a name without path separators.
fn file_name(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_stays_in_its_directory() {
        assert_eq!(file_name("../../etc/passwd"), ".._.._etc_passwd");
        assert_eq!(file_name("gpu-1.example.com"), "gpu-1.example.com");
    }
}
