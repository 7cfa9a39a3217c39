//! Selection of the Service of the aggregator and of the pod behind it.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::AccessError;

/// Namespace of an installation as documented.
pub const DEFAULT_NAMESPACE: &str = "octavo-system";

/// Labels of the aggregator's Service, as the chart sets them.
pub(super) const SERVICE_LABELS: &str =
    "app.kubernetes.io/part-of=octavo,app.kubernetes.io/component=aggregator";

/// Name of the port of pages and API.
const PORT: &str = "https";

const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// Scope in which Services were listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SearchScope {
    /// All namespaces.
    Cluster,
    /// One namespace.
    Namespace(String),
}

/// The aggregator's Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AggregatorService {
    pub(crate) namespace: String,
    pub(super) name: String,
    /// Port of the Service.
    pub(super) port: u16,
    /// Port of the pods.
    target: IntOrString,
    selector: BTreeMap<String, String>,
    instance: Option<String>,
}

impl fmt::Display for SearchScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("all namespaces"),
            Self::Namespace(name) => write!(f, "the namespace {name}"),
        }
    }
}

/// Chooses the only Service.
pub(super) fn choose_service(
    mut found: Vec<Service>,
    scope: &SearchScope,
) -> Result<AggregatorService, AccessError> {
    if found.len() > 1 {
        let found = found.iter().map(named).collect();
        return Err(AccessError::Several { scope: scope.to_string(), found });
    }
    let service = found.pop();
    let service = service.ok_or_else(|| AccessError::NotFound { scope: scope.to_string() })?;
    let name = named(&service);
    AggregatorService::from_object(service).ok_or(AccessError::NoPort { service: name })
}

fn named(service: &Service) -> String {
    let (namespace, name) = (&service.metadata.namespace, &service.metadata.name);
    format!("{}/{}", namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
}

impl AggregatorService {
    fn from_object(service: Service) -> Option<Self> {
        let spec = service.spec?;
        let port = spec.ports?.into_iter().find(|port| port.name.as_deref() == Some(PORT))?;
        let ServicePort { port: number, target_port, .. } = port;
        let metadata = service.metadata;
        Some(Self {
            namespace: metadata.namespace?,
            name: metadata.name?,
            port: number.try_into().ok()?,
            target: target_port.unwrap_or(IntOrString::Int(number)),
            selector: spec.selector?,
            instance: metadata.labels.and_then(|mut labels| labels.remove(INSTANCE_LABEL)),
        })
    }

    /// Returns the selector of the pods.
    pub(super) fn pod_labels(&self) -> String {
        let pairs = self.selector.iter().map(|(key, value)| format!("{key}={value}"));
        pairs.collect::<Vec<_>>().join(",")
    }

    /// Returns the selector of the readers' service account of the same release.
    pub(super) fn reader_labels(&self) -> String {
        let reader = "app.kubernetes.io/name=octavo,app.kubernetes.io/component=reader";
        match &self.instance {
            Some(instance) => format!("{reader},{INSTANCE_LABEL}={instance}"),
            None => reader.to_owned(),
        }
    }

    /// Returns a ready pod and its port.
    pub(super) fn ready_pod(&self, pods: &[Pod]) -> Option<(String, u16)> {
        let mut ready = pods.iter().filter(|pod| is_ready(pod));
        ready.find_map(|pod| Some((pod.metadata.name.clone()?, self.port_of(pod)?)))
    }

    fn port_of(&self, pod: &Pod) -> Option<u16> {
        let number = match &self.target {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let containers = pod.spec.as_ref()?.containers.iter();
                let mut ports = containers.filter_map(|one| one.ports.as_ref()).flatten();
                ports.find(|port| port.name.as_ref() == Some(name))?.container_port
            }
        };
        number.try_into().ok()
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Describes a pod that is not ready: `octavo-aggregator-1 (Pending)`.
pub(super) fn describe_pod(pod: &Pod) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let state = match phase {
        _ if pod.metadata.deletion_timestamp.is_some() => "terminating",
        Some("Running") => "running, not ready",
        Some(phase) => phase,
        None => "unknown",
    };
    format!("{name} ({state})")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn service(namespace: &str, change: impl FnOnce(&mut Value)) -> Service {
        let mut object = json!({
            "metadata": {"namespace": namespace, "name": "octavo-aggregator", "labels": {"app.kubernetes.io/instance": "octavo"}},
            "spec": {
                "selector": {"app.kubernetes.io/name": "octavo-aggregator", "a": "b"},
                "ports": [
                    {"name": "grpc", "port": 7443, "targetPort": "grpc"},
                    {"name": "https", "port": 443, "targetPort": "https"},
                ],
            },
        });
        change(&mut object);
        from_value(object).unwrap()
    }

    fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {"containers": [
                {"name": "proxy"},
                {"name": "aggregator", "ports": [{"name": "https", "containerPort": 8443}]},
            ]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        change(&mut object);
        from_value(object).unwrap()
    }

    fn chosen(found: Vec<Service>) -> Result<AggregatorService, String> {
        choose_service(found, &SearchScope::Cluster).map_err(|error| error.to_string())
    }

    #[test]
    fn exactly_one_service_is_chosen() {
        let one = chosen(vec![service("a", |_| {})]).unwrap();
        assert_eq!((one.namespace.as_str(), one.port), ("a", 443));
        assert_eq!(one.pod_labels(), "a=b,app.kubernetes.io/name=octavo-aggregator");
        assert_eq!(
            one.reader_labels(),
            "app.kubernetes.io/name=octavo,app.kubernetes.io/component=reader,app.kubernetes.io/instance=octavo"
        );
        assert_eq!(
            chosen(vec![service("a", |_| {}), service("b", |_| {})]).unwrap_err(),
            "several aggregators in all namespaces: a/octavo-aggregator, b/octavo-aggregator"
        );
        assert_eq!(
            choose_service(Vec::new(), &SearchScope::Namespace("x".to_owned()))
                .unwrap_err()
                .to_string(),
            "no Service of an aggregator in the namespace x"
        );
        let other = service("a", |object| object["spec"]["ports"][1]["name"] = json!("http"));
        assert_eq!(
            chosen(vec![other]).unwrap_err(),
            "the Service a/octavo-aggregator has no selector or no port named https"
        );
    }

    #[test]
    fn ready_pod_is_chosen_with_its_container_port() {
        let named = chosen(vec![service("a", |_| {})]).unwrap();
        let unready = pod("one", |pod| pod["status"]["conditions"][0]["status"] = json!("False"));
        let deleted = pod("two", |pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        let pending = pod("three", |pod| pod["status"] = json!({"phase": "Pending"}));
        let mut pods = vec![unready, deleted, pending];
        assert_eq!(named.ready_pod(&pods), None);
        let described: Vec<String> = pods.iter().map(describe_pod).collect();
        assert_eq!(described, ["one (running, not ready)", "two (terminating)", "three (Pending)"]);
        pods.push(pod("four", |_| {}));
        assert_eq!(named.ready_pod(&pods), Some(("four".to_owned(), 8443)));
        let number = service("a", |object| object["spec"]["ports"][1]["targetPort"] = json!(9443));
        assert_eq!(chosen(vec![number]).unwrap().ready_pod(&pods), Some(("four".to_owned(), 9443)));
        let same = service("a", |object| {
            object["spec"]["ports"][1] = json!({"name": "https", "port": 443});
        });
        assert_eq!(chosen(vec![same]).unwrap().ready_pod(&pods), Some(("four".to_owned(), 443)));
    }
}
