//! Diagnosis of another node: from its report to the aggregator and, with a kubeconfig, from its Node and the agent's
//! pod. Checks that need files or sockets of the node are unknown here; a note has the command that runs them.

use octavo_client::{Client, RequestPath, ServerSettings, segment};
use octavo_fleet::api::NodeDetail;
use octavo_kube::aggregator_access::{AccessError, DEFAULT_NAMESPACE};
use octavo_kube::diagnostics::{ClusterDiagnostics, ClusterNode, OctavoPod};
use octavo_model::driver_traces::Observed;
use octavo_node::doctor::{
    Check, CheckResult, ExaminedPaths, Facts, FeatureLabels, Finding, Kubelet, LayoutDevice,
    LayoutProgress, Subject, claim_service, run_checks,
};

use super::format_findings;
use crate::fleet::{format, stale_notes};
use crate::settings::Colors;
use crate::settings::doctor::{DoctorFormat, DoctorSettings};
use crate::text::{count_noun, lines, printable, wrap};
use crate::{CliError, Report};

/// Reason why a source has no facts.
const ON_NODE: &str = "visible only on the node";

/// What is known about a node from elsewhere.
#[derive(Debug)]
pub(crate) struct RemoteNode {
    detail: NodeDetail,
    /// The Node object; the reason if it cannot be read.
    node: Result<Option<ClusterNode>, String>,
    /// The agent's pods on the node; the reason if they cannot be listed.
    pods: Result<Vec<OctavoPod>, String>,
    namespace: Option<String>,
}

/// Runs `octavo doctor NODE`.
pub(crate) async fn diagnose(
    name: &str,
    settings: &DoctorSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let client = Client::connect(&settings.server).await?;
    let cluster = connect_cluster(&settings.server).await;
    let node = RemoteNode::read(name, &client, cluster.as_ref().map_err(String::clone)).await?;
    let mut report = format_findings(node.findings(), settings, colors)?;
    if settings.format == DoctorFormat::Table {
        report.output = format!("{}\n{}", node.summary(), report.output);
    }
    Ok(Report::with_notes(report.output, &node.notes(), report.exit))
}

/// Connects to the cluster of the aggregator; otherwise returns the reason why it is not used.
pub(crate) async fn connect_cluster(server: &ServerSettings) -> Result<ClusterDiagnostics, String> {
    let cluster = server.aggregator_cluster().ok_or_else(|| {
        "not requested from the API server, because --server specifies the aggregator; add \
         --kubeconfig or --context"
            .to_owned()
    })?;
    let namespace = server.octavo_namespace.as_deref();
    let connected = ClusterDiagnostics::connect(&cluster, namespace).await;
    connected.map_err(|error| error.brief())
}

impl RemoteNode {
    /// Reads the node from the aggregator, and its objects from the API server.
    pub(crate) async fn read(
        name: &str,
        client: &Client,
        cluster: Result<&ClusterDiagnostics, String>,
    ) -> Result<Self, CliError> {
        let target = RequestPath::new(&format!("/api/v1/nodes/{}", segment(name)));
        let detail: NodeDetail = client.get(&target).await?;
        let reason = |error: AccessError| error.brief();
        let (node, pods, namespace) = match cluster {
            Ok(cluster) => {
                let (node, pods) = tokio::join!(cluster.node(name), cluster.pods(Some(name)));
                let namespace = Some(cluster.namespace().to_owned());
                (node.map_err(reason), pods.map_err(reason), namespace)
            }
            Err(why) => (Err(why.clone()), Err(why), None),
        };
        Ok(Self { detail, node, pods, namespace })
    }

    /// Returns the node as the aggregator reports it.
    pub(crate) fn detail(&self) -> &NodeDetail {
        &self.detail
    }

    /// Returns the Node object.
    pub(crate) fn object(&self) -> Result<Option<&ClusterNode>, &str> {
        self.node.as_ref().map(Option::as_ref).map_err(String::as_str)
    }

    /// Runs the checks.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let row = &self.detail.row;
        if !format::has_agent(row) {
            let reason = row.reason.as_deref().unwrap_or("no agent reports it");
            return vec![Finding {
                check: Check::Accelerators,
                subject: Subject::Node,
                verdict: CheckResult::Warning,
                evidence: format!("no agent has reported this node: {reason}"),
                remedy: Some(
                    "check the agent's pod on this node, and the node selector and the affinity \
                     of the DaemonSet"
                        .to_owned(),
                ),
            }];
        }
        run_checks(&self.facts())
    }

    fn facts(&self) -> Facts<'_> {
        let unknown = || ON_NODE.to_owned();
        let text = |path: &str| path.to_owned();
        Facts {
            inventory: &self.detail.inventory,
            is_recorded: false,
            roots: ExaminedPaths {
                sys: text("/sys"),
                dev: text("/dev"),
                proc: text("/proc"),
                kubelet: format!("status of the Node {}", self.detail.row.name),
                state: text("/var/lib/octavo"),
            },
            traces: Err(unknown()),
            files: Err(unknown()),
            instance_files: Err(unknown()),
            groups: Err(unknown()),
            processes: Err(unknown()),
            layout: Ok(Some(self.layout())),
            kubelet: self.kubelet(),
            labels: Ok(Some(self.labels())),
        }
    }

    fn layout(&self) -> LayoutProgress {
        let claims = claim_service(self.detail.sharing_status.as_deref());
        let empty = LayoutProgress { is_agent: true, claims, ..LayoutProgress::default() };
        let Some(layout) = &self.detail.row.layout else { return empty };
        let devices = layout.devices.iter().map(|device| LayoutDevice {
            name: device.name.clone(),
            state: device.state.clone(),
            message: device.message.clone(),
        });
        let devices: Vec<LayoutDevice> = devices.collect();
        // The summary repeats a device's message.
        let is_own = devices.iter().all(|device| device.message.is_empty());
        LayoutProgress {
            name: layout.name.clone(),
            state: layout.state.clone(),
            notice: layout.message.clone().filter(|_| is_own),
            devices,
            ..empty
        }
    }

    /// Returns the resources in the Node's status, which the kubelet sets. Device IDs are not in it.
    fn kubelet(&self) -> Observed<Option<Kubelet>> {
        let unknown = || ON_NODE.to_owned();
        let node = self.node.as_ref().map_err(String::clone)?;
        let node = node.as_ref().ok_or_else(|| "the cluster has no such Node".to_owned())?;
        Ok(Some(Kubelet {
            registered: Ok(node.allocatable.clone()),
            allocatable: Err(format!("device IDs are {ON_NODE}")),
            claim_drivers: Err(unknown()),
            sockets: Err(unknown()),
        }))
    }

    fn labels(&self) -> FeatureLabels {
        let name = &self.detail.row.name;
        match &self.node {
            Ok(Some(node)) => FeatureLabels {
                place: format!("Node {name}"),
                labels: node.labels.clone(),
                gfd: None,
            },
            Ok(None) | Err(_) => FeatureLabels {
                place: format!("the report of the agent on {name}"),
                labels: self.detail.labels.clone(),
                gfd: None,
            },
        }
    }

    /// Describes the node, the Node object and the agent's pods.
    fn summary(&self) -> String {
        let row = &self.detail.row;
        let age = format::age(row.age_seconds);
        let reason = row.reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
        let mut all = vec![wrap(&format!("Node: {}, {}{reason}", row.name, row.state), 2)];
        if format::has_agent(row) {
            let state = if row.connected { "connected" } else { "disconnected" };
            all.push(wrap(
                &format!("Agent: {} {state}, confirmed {age} ago", row.agent_version),
                2,
            ));
        }
        let node = match &self.node {
            Ok(Some(node)) => node.conditions.join(", "),
            Ok(None) => "the cluster has no such Node".to_owned(),
            Err(why) => format!("unknown: {why}"),
        };
        all.push(wrap(&format!("Node status: {node}"), 2));
        match &self.pods {
            Ok(pods) if pods.is_empty() => all.push("Agent pod: none on this node".to_owned()),
            Ok(pods) => all.extend(pods.iter().map(|pod| wrap(&describe_pod(pod), 2))),
            // The same reason as above.
            Err(why) if self.node.as_ref().err() == Some(why) => {}
            Err(why) => all.push(wrap(&format!("Agent pod: unknown: {why}"), 2)),
        }
        if let Some(sharing) = &self.detail.sharing_status {
            let why = sharing.message.as_deref();
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            let (mode, state) = (sharing.mode.as_str(), sharing.state.as_str());
            all.push(wrap(&format!("Device plugin: {mode}, {state}{why}"), 2));
        }
        lines(all)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = stale_notes(std::slice::from_ref(&self.detail.row));
        notes.push(format!("to run all checks on the node: {}", self.command()));
        notes
    }

    /// Returns the command that runs the checks on the node.
    fn command(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let agent = self.pods.as_ref().ok().and_then(|pods| pods.first());
        let pod = match agent {
            Some(pod) => printable(&pod.name),
            None => format!(
                "$(kubectl get pods -n {namespace} -o name -l \
                 app.kubernetes.io/part-of=octavo,app.kubernetes.io/component=agent \
                 --field-selector spec.nodeName={})",
                printable(&self.detail.row.name)
            ),
        };
        format!(
            "kubectl exec -n {namespace} {pod} -c agent -- octavo doctor --proc-root /host/proc"
        )
    }
}

/// Describes a pod: `Agent pod: octavo-system/octavo-agent-x, Running, ready, 3 restarts`.
fn describe_pod(pod: &OctavoPod) -> String {
    let OctavoPod { namespace, name, phase, ready, reasons, restarts, .. } = pod;
    let ready = if *ready { "ready" } else { "not ready" };
    let restarts = usize::try_from(*restarts).unwrap_or_default();
    let mut text = format!(
        "Agent pod: {namespace}/{name}, {phase}, {ready}, {}",
        count_noun(restarts, "restart", "restarts")
    );
    for reason in reasons {
        text.push_str("; ");
        text.push_str(reason);
    }
    text
}
