//! `octavo validate`: creates one pod per node and accelerator resource, and compares the devices in its container
//! with the labels of the Node.
//!
//! ```text
//! plan.rs      resources of a node with a free unit: decisions without requests
//! pod.rs       the pod
//! progress.rs  the state of a pod
//! retry.rs     requests that are repeated
//! run.rs       creates the pods, watches them and removes them
//! ```

mod plan;
mod pod;
mod progress;
mod retry;
mod run;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hyper::Request;
use hyper::header::DATE;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use octavo_fleet::cluster::{ClusterNode, ClusterPod};
use serde_json::Value;
use thiserror::Error;

pub use self::plan::{PlannedPod, PlannedStep, plan_node};
pub use self::pod::{AgentPod, PodOptions, pod};
use self::retry::repeated;
pub use self::run::ValidationRun;
use crate::client::{ClusterSelection, ConnectError, RequestError, connect_user, request};
use crate::cluster::{list_nodes, list_pods_of};

/// Label of the pods, and its value.
const NAME_LABEL: &str = "app.kubernetes.io/name";
const NAME: &str = "octavo-validate";
/// Label with the id of the run that created a pod.
const RUN_LABEL: &str = "octavo.dev/validation";
/// Labels of the agents' pods, as the chart sets them.
const AGENT_PODS: &str = "app.kubernetes.io/part-of=octavo,app.kubernetes.io/component=agent";

/// Client of a user who validates nodes.
#[derive(Clone)]
pub struct ValidationClient {
    client: Client,
    /// Time limit of repeated requests.
    limit: Duration,
}

/// Error that ends a validation.
#[derive(Debug, Error)]
pub enum ValidationError {
    /// The cluster cannot be reached.
    #[error("cannot connect to a cluster to validate its nodes")]
    Connect(#[source] ConnectError),
    /// The API server refused a request or did not answer.
    #[error("cannot {action}")]
    Request {
        /// The request, for users.
        action: String,
        /// The cause.
        source: RequestError,
    },
    /// A named node does not exist.
    #[error("the cluster has no node {0}")]
    NoNode(String),
    /// A selector matches no node.
    #[error("no node matches the selector {0}")]
    NoMatch(String),
    /// The removal of the pods was interrupted.
    #[error("interrupted: the pods with the label {RUN_LABEL}={0} may remain")]
    NotRemoved(String),
    /// No agent determines the image or the namespace.
    #[error("no agent of Octavo runs in this cluster, so the {0} of the pods is not known")]
    NoAgent(&'static str),
}

impl ValidationError {
    fn request(action: impl Into<String>) -> impl FnOnce(RequestError) -> Self {
        move |source| Self::Request { action: action.into(), source }
    }

    /// Returns advice about the error.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Connect(error) => error.advice(),
            Self::Request { source, .. } => match source.code() {
                Some(401) => "check the credentials with `kubectl auth whoami`",
                Some(403) => {
                    "ask the cluster administrator for this permission; docs/tasks/validate.md lists all that the \
                     command needs"
                }
                Some(400) => "correct the selector or the name",
                Some(404) => "check the namespace with `kubectl get namespaces`",
                Some(_) | None => "check that the cluster responds with `kubectl version`",
            },
            Self::NoNode(_) => "`kubectl get nodes` lists the nodes of the cluster",
            Self::NoMatch(_) => "check the selector with `kubectl get nodes -l SELECTOR`",
            Self::NotRemoved(_) => {
                "remove them with `kubectl delete pods -A -l LABEL`; each ends at its own deadline once it is scheduled"
            }
            Self::NoAgent(_) => "specify --image and --namespace, or install Octavo",
        }
    }
}

impl fmt::Debug for ValidationClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValidationClient")
    }
}

impl ValidationClient {
    /// Creates a client. Rejected lists are repeated for at most `limit`. Sends no request yet.
    pub async fn connect(
        cluster: &ClusterSelection,
        limit: Duration,
    ) -> Result<Self, ValidationError> {
        let client = connect_user(cluster).await.map_err(ValidationError::Connect)?;
        Ok(Self { client, limit })
    }

    /// Reads these nodes, in this order without duplicates.
    pub async fn named_nodes(&self, names: &[String]) -> Result<Vec<ClusterNode>, ValidationError> {
        let mut nodes: Vec<ClusterNode> = Vec::new();
        for name in names {
            if nodes.iter().any(|node| node.name == *name) {
                continue;
            }
            let params = ListParams::default().fields(&format!("metadata.name={name}"));
            let found = repeated(self.limit, || list_nodes(&self.client, params.clone())).await;
            let found = found.map_err(ValidationError::request(format!("list the node {name}")))?;
            let found = found.into_iter().next();
            nodes.push(found.ok_or_else(|| ValidationError::NoNode(name.clone()))?);
        }
        Ok(nodes)
    }

    /// Reads the nodes that a label selector matches, ordered by name.
    pub async fn selected_nodes(
        &self,
        selector: &str,
    ) -> Result<Vec<ClusterNode>, ValidationError> {
        let params = ListParams::default().labels(selector);
        let nodes = repeated(self.limit, || list_nodes(&self.client, params.clone())).await;
        let mut nodes = nodes.map_err(ValidationError::request(format!(
            "list nodes with the selector {selector}"
        )))?;
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        if nodes.is_empty() {
            return Err(ValidationError::NoMatch(selector.to_owned()));
        }
        Ok(nodes)
    }

    /// Lists the pods on a node that hold resources.
    pub async fn pods_of(&self, node: &str) -> Result<Vec<ClusterPod>, ValidationError> {
        let pods = repeated(self.limit, || list_pods_of(&self.client, node)).await;
        pods.map_err(ValidationError::request(format!("list the pods on the node {node}")))
    }

    /// Returns the agents by node.
    pub async fn agents(&self) -> Result<BTreeMap<String, AgentPod>, ValidationError> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let params = ListParams::default().labels(AGENT_PODS);
        let found = repeated(self.limit, || request(pods.list(&params))).await;
        let found =
            found.map_err(ValidationError::request("list the agents' pods in all namespaces"))?;
        Ok(found.items.into_iter().filter_map(AgentPod::from_object).collect())
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create(&self, namespace: &str, pod: &Value) -> Result<Pod, RequestError> {
        let create = async {
            let pod: Pod = serde_json::from_value(pod.clone()).map_err(kube::Error::SerdeError)?;
            self.pods(namespace).create(&PostParams::default(), &pod).await
        };
        request(create).await
    }

    /// Lists the pods of a run, or those of all runs.
    async fn list(&self, namespace: &str, run: Option<&str>) -> Result<Vec<Pod>, RequestError> {
        let selector = match run {
            Some(run) => format!("{NAME_LABEL}={NAME},{RUN_LABEL}={run}"),
            None => format!("{NAME_LABEL}={NAME},{RUN_LABEL}"),
        };
        let params = ListParams::default().labels(&selector);
        Ok(request(self.pods(namespace).list(&params)).await?.items)
    }

    /// Deletes a pod. An absent one is no error.
    async fn delete(&self, namespace: &str, name: &str) -> Result<(), RequestError> {
        // With 0, the unit would be released before the kubelet has ended the container.
        let params = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() };
        match request(self.pods(namespace).delete(name, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the message of the latest warning about a pod. Without the permission to list events, there is none.
    async fn latest_warning(&self, namespace: &str, pod: &str) -> Option<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let params =
            ListParams::default().fields(&format!("involvedObject.name={pod},type=Warning"));
        let found = request(events.list(&params)).await.ok()?;
        let latest = found.items.into_iter().max_by_key(|event| {
            let last = event.last_timestamp.as_ref().map(|time| time.0);
            let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
            last.or(created).unwrap_or(Timestamp::MIN)
        })?;
        let (reason, message) = (latest.reason.unwrap_or_default(), latest.message?);
        Some(format!("{reason}: {message}"))
    }

    /// Time of the API server; `None` if its responses have no date.
    async fn server_time(&self) -> Result<Option<Timestamp>, RequestError> {
        let send = async {
            let request = Request::get("/version").body(Body::empty());
            let response = self.client.send(request.map_err(kube::Error::HttpError)?).await?;
            let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
            Ok(date.and_then(parse_date))
        };
        request(send).await
    }

    /// Removes the pods of runs that were killed: those older than their own deadline, by the clock of the API server. Returns their
    /// names; `None` if the API server reports no time.
    pub async fn remove_expired(
        &self,
        namespace: &str,
    ) -> Result<Option<Vec<String>>, ValidationError> {
        let listed = repeated(self.limit, || self.list(namespace, None)).await;
        let listed = listed
            .map_err(ValidationError::request(format!("list pods in the namespace {namespace}")))?;
        let mut removed = Vec::new();
        if listed.is_empty() {
            return Ok(Some(removed));
        }
        let now = repeated(self.limit, || self.server_time()).await;
        let now = now.map_err(ValidationError::request("read the time of the API server"))?;
        let Some(now) = now else { return Ok(None) };
        for pod in listed.iter().filter(|pod| progress::is_expired(pod, now)) {
            let Some(name) = &pod.metadata.name else { continue };
            let deleted = self.delete(namespace, name).await;
            deleted
                .map_err(ValidationError::request(format!("delete the pod {namespace}/{name}")))?;
            removed.push(name.clone());
        }
        Ok(Some(removed))
    }
}

/// Parses the header `Date`. Source: RFC 9110, "HTTP-date".
fn parse_date(text: &str) -> Option<Timestamp> {
    rfc2822::parse(text).ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_of_the_api_server_is_read() {
        let read = |text| parse_date(text).map(|time| time.to_string());
        let date = read("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.as_deref(), Some("1994-11-06T08:49:37Z"));
        assert_eq!(read("soon"), None);
    }
}
