//! The pods, hardware profiles, policies and prices of the demo's cluster.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{Kind, ObjectKey, Objects};
use crate::error::DemoError;

const WORKLOADS: &str = include_str!("../../../demo/workloads.yaml");
const PROFILES: &str = include_str!("../../../demo/profiles.yaml");
const POLICIES: &str = include_str!("../../../demo/policies.yaml");

/// Prices of the demo's types, as a file for the aggregator.
pub const PRICES: &str = include_str!("../../../demo/prices.yaml");

/// Processor and memory that a pod requests per device.
const CPUS_PER_DEVICE: u64 = 8;
const GIB_PER_DEVICE: u64 = 64;

/// The workloads of the demo.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workloads {
    namespaces: Vec<String>,
    nodes: BTreeMap<String, NodeDetails>,
    pods: Vec<Workload>,
    pending: Vec<PendingWorkload>,
    budgets: Vec<Budget>,
}

/// What an administrator has set on a Node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NodeDetails {
    /// The desired layout.
    pub(crate) layout: Option<String>,
    /// True if the Node is unschedulable.
    pub(crate) cordoned: bool,
    /// True if the agent evicts pods that block its layout.
    pub(crate) drain: bool,
}

/// A pod that runs on a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    /// Namespace and name.
    pub(crate) pod: String,
    pub(crate) node: String,
    /// Indices of the GPUs, or of the GPUs with its partitions.
    #[serde(default)]
    pub(crate) gpus: Vec<u32>,
    /// Profile of its partitions; without one, it has whole GPUs.
    #[serde(default)]
    pub(crate) profile: Option<String>,
    /// True if the pod holds a time slice of the GPU.
    #[serde(default)]
    pub(crate) slice: bool,
    /// Requested devices of other vendors, instead of GPUs.
    #[serde(default)]
    pub(crate) requests: BTreeMap<String, u64>,
    /// Name of its processes, one per device. Without one, the devices of the pod are idle.
    #[serde(default)]
    pub(crate) program: String,
    /// Used memory per process, MiB.
    #[serde(default)]
    pub(crate) memory: u64,
    /// Amount by which the used memory varies, MiB.
    #[serde(default)]
    pub(crate) varies: u64,
    /// Mean utilization, percent.
    #[serde(default)]
    pub(crate) busy: u32,
    /// Process ID of a process that the scenario of the machine contains.
    #[serde(default)]
    pub(crate) pid: Option<u32>,
    /// True if an event starts the pod instead of the demo.
    #[serde(default)]
    later: bool,
}

/// A pod that no node has room for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingWorkload {
    pod: String,
    requests: BTreeMap<String, u64>,
    #[serde(default)]
    selector: BTreeMap<String, String>,
    /// Message of the scheduler.
    reason: String,
}

/// A disruption budget that allows no eviction of a pod.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    name: String,
    pod: String,
}

impl Workloads {
    /// Returns the workloads of the demo.
    pub fn built_in() -> Result<Self, DemoError> {
        parse("workloads.yaml", WORKLOADS)
    }

    /// Creates the objects that are independent of machines, and the pods of these nodes.
    pub fn create(&self, objects: &Objects, nodes: &[&str]) -> Result<(), DemoError> {
        let failed = DemoError::Object;
        for name in &self.namespaces {
            let namespace = json!({"metadata": {"name": name}, "status": {"phase": "Active"}});
            objects.create(Kind::Namespace, namespace).map_err(failed)?;
        }
        for (kind, file, text) in [
            (Kind::HardwareProfile, "profiles.yaml", PROFILES),
            (Kind::AcceleratorPolicy, "policies.yaml", POLICIES),
        ] {
            let all: Vec<Value> = parse(file, text)?;
            for object in all {
                objects.create(kind, object).map_err(failed)?;
            }
        }
        let is_there = |pod: &str| {
            let pod = self.pods.iter().find(|one| one.pod == pod);
            pod.is_some_and(|pod| nodes.contains(&pod.node.as_str()))
        };
        for budget in self.budgets.iter().filter(|budget| is_there(&budget.pod)) {
            objects.create(Kind::PodDisruptionBudget, budget.object()).map_err(failed)?;
        }
        let pods = self.pods.iter().filter(|pod| !pod.later && nodes.contains(&pod.node.as_str()));
        for pod in pods {
            objects.create(Kind::Pod, pod.object()).map_err(failed)?;
        }
        for pod in &self.pending {
            objects.create(Kind::Pod, pod.object()).map_err(failed)?;
        }
        Ok(())
    }

    /// Creates a pod that an event starts. A pod that already exists is unchanged.
    pub fn start(&self, objects: &Objects, pod: &str) -> Result<(), String> {
        let found = self.pods.iter().find(|one| one.pod == pod);
        let found = found.ok_or_else(|| format!("the demo has no pod {pod}"))?;
        match objects.create(Kind::Pod, found.object()) {
            Err(refusal) if refusal.code != 409 => Err(refusal.to_string()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Deletes a pod that an event ends. A pod that was evicted or deleted before is no error.
    pub fn stop(objects: &Objects, pod: &str) -> Result<(), String> {
        match objects.delete(&key(pod)) {
            Err(refusal) if refusal.code != 404 => Err(refusal.to_string()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns the number of hardware profiles.
    pub fn profiles(objects: &Objects) -> usize {
        objects.list(Kind::HardwareProfile, "").1.len()
    }

    /// Returns the details of a Node.
    pub(crate) fn node(&self, name: &str) -> NodeDetails {
        self.nodes.get(name).cloned().unwrap_or_default()
    }

    /// Returns the workload of a pod.
    pub(crate) fn workload(&self, pod: &str) -> Option<&Workload> {
        self.pods.iter().find(|one| one.pod == pod)
    }
}

impl Workload {
    /// Returns the extended resource of its devices.
    pub(crate) fn resource(&self) -> String {
        match &self.profile {
            Some(profile) => format!("nvidia.com/mig-{profile}"),
            None => "nvidia.com/gpu".to_owned(),
        }
    }

    fn object(&self) -> Value {
        let mut requests = self.requests.clone();
        if !self.gpus.is_empty() {
            let count = u64::try_from(self.gpus.len()).unwrap_or(u64::MAX);
            requests.insert(self.resource(), count);
        }
        let mut pod = pod(&self.pod, &requests);
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("nodeName".to_owned(), json!(self.node));
        }
        if let Some(fields) = pod.as_object_mut() {
            let conditions = json!([{"type": "PodScheduled", "status": "True"}]);
            let status = json!({"phase": "Pending", "conditions": conditions});
            fields.insert("status".to_owned(), status);
        }
        pod
    }
}

impl PendingWorkload {
    fn object(&self) -> Value {
        let mut pod = pod(&self.pod, &self.requests);
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("nodeSelector".to_owned(), json!(self.selector));
        }
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": self.reason,
        });
        if let Some(fields) = pod.as_object_mut() {
            let status = json!({"phase": "Pending", "conditions": [condition]});
            fields.insert("status".to_owned(), status);
        }
        pod
    }
}

impl Budget {
    fn object(&self) -> Value {
        let ObjectKey { namespace, name, .. } = key(&self.pod);
        json!({
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app(&name)}}},
            "status": {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1},
        })
    }
}

/// Returns a pod with one container and a controller.
fn pod(pod: &str, requests: &BTreeMap<String, u64>) -> Value {
    let ObjectKey { namespace, name, .. } = key(pod);
    let devices: u64 = requests.values().sum();
    let mut all: BTreeMap<String, String> =
        requests.iter().map(|(name, count)| (name.clone(), count.to_string())).collect();
    all.insert("cpu".to_owned(), devices.saturating_mul(CPUS_PER_DEVICE).to_string());
    all.insert("memory".to_owned(), format!("{}Gi", devices.saturating_mul(GIB_PER_DEVICE)));
    let app = app(&name).to_owned();
    let owner = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": app,
        "uid": "00000000-0000-4000-9000-000000000000",
        "controller": true,
    });
    json!({
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": app},
            "ownerReferences": [owner],
        },
        "spec": {
            "containers": [{
                "name": CONTAINER,
                "image": format!("example.invalid/{app}"),
                "resources": {"requests": all, "limits": requests_as_text(requests)},
            }],
        },
    })
}

/// Name of the container of every pod.
pub(crate) const CONTAINER: &str = "main";

fn requests_as_text(requests: &BTreeMap<String, u64>) -> BTreeMap<&String, String> {
    requests.iter().map(|(name, count)| (name, count.to_string())).collect()
}

/// Returns the name of a pod without its ordinal.
fn app(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(app, _)| app)
}

/// Returns the key of a pod from its namespace and name.
pub(crate) fn key(pod: &str) -> ObjectKey {
    let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
    ObjectKey::new(Kind::Pod, namespace, name)
}

fn parse<T: for<'de> Deserialize<'de>>(file: &'static str, text: &str) -> Result<T, DemoError> {
    serde_saphyr::from_str(text)
        .map_err(|error| DemoError::Data { file, message: error.without_snippet().to_string() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario;

    #[test]
    fn every_workload_names_a_machine_and_its_own_devices() {
        let workloads = Workloads::built_in().unwrap();
        let machines = scenario::all(None).unwrap();
        let names: BTreeSet<&str> = machines.iter().map(|one| one.name.as_str()).collect();
        let mut held = BTreeSet::new();
        for pod in &workloads.pods {
            assert!(names.contains(pod.node.as_str()), "{}", pod.node);
            let namespace = key(&pod.pod).namespace;
            assert!(workloads.namespaces.contains(&namespace), "{namespace}");
            assert!(pod.gpus.is_empty() != pod.requests.is_empty(), "{}", pod.pod);
            for gpu in pod.gpus.iter().filter(|_| pod.profile.is_none() && !pod.slice) {
                assert!(held.insert((pod.node.clone(), *gpu)), "{} and another pod", pod.pod);
            }
        }
        assert!(workloads.nodes.keys().all(|name| names.contains(name.as_str())));
        assert!(workloads.budgets.iter().all(|one| workloads.workload(&one.pod).is_some()));
    }

    #[test]
    fn pods_request_what_they_hold_and_pending_ones_have_a_reason() {
        let workloads = Workloads::built_in().unwrap();
        let objects = Objects::default();
        workloads.create(&objects, &["t4"]).unwrap();
        let pod = objects.get(&key("serving/triton-0")).unwrap();
        assert_eq!(pod["spec"]["nodeName"], "t4");
        let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
        assert_eq!(requests["nvidia.com/gpu"], "1");
        assert!(Workloads::profiles(&objects) >= 5);
        let waiting = objects.get(&key(&workloads.pending[0].pod)).unwrap();
        let condition = &waiting["status"]["conditions"][0];
        assert!(condition["message"].as_str().unwrap().contains("nodes are available"));
        assert_eq!(objects.get(&key("research/llama-sft-0")), None);
    }

    #[test]
    fn events_start_and_stop_pods_repeatedly() {
        let workloads = Workloads::built_in().unwrap();
        let objects = Objects::default();
        workloads.create(&objects, &[]).unwrap();
        for _ in 0..2 {
            workloads.start(&objects, "serving/triton-0").unwrap();
        }
        for _ in 0..2 {
            Workloads::stop(&objects, "serving/triton-0").unwrap();
        }
        assert_eq!(objects.get(&key("serving/triton-0")), None);
        assert!(workloads.start(&objects, "serving/unknown-0").is_err());
    }
}
