//! State of NVIDIA's device plugin in the API server: its `ConfigMap`, the `DaemonSets` that run it, and its pods on
//! this node.
//!
//! Callers have a [`DevicePluginHandle`] and never wait: they set the wanted information and read the result. Requests are only sent
//! while it is wanted, at increasing intervals. Missing permissions are part of the result.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap as ApiConfigMap, Container, ContainerStatus, Pod};
use kube::api::{GetParams, ListParams};
use kube::{Api, Client};
use octavo_model::backoff::Backoff;
use octavo_model::id::NodeName;
use octavo_node::sharing::diagnosis::{
    ConfigMap, Evidence, LookupResult, PluginDaemonSet, PluginPod,
};
use octavo_node::sharing::hand_off::rollout::{ApiAnswers, ApiQueries};
use octavo_toolkit::desired::{self, TaskHandle, TaskState, update};
use tokio::time::Instant;
use tracing::debug;

use crate::client::{self, RequestError};
use crate::nvidia_plugin_config::FIELD_MANAGER;

/// Interval between reads of the `ConfigMap`, for which a whole fleet may wait.
const CONFIG_MAP_INTERVAL: Backoff =
    Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(30) };
/// Interval between investigations of a blocked change.
const INVESTIGATION_INTERVAL: Backoff =
    Backoff { initial: Duration::from_secs(30), max: Duration::from_mins(10) };
/// Program names of the plugin and of the program that follows the Node's label. Source: NVIDIA k8s-device-plugin,
/// `deployments/helm`; NVIDIA GPU Operator, `assets/state-device-plugin`.
const PLUGIN_PROGRAM: &str = "nvidia-device-plugin";
const CONFIG_MANAGER_PROGRAM: &str = "config-manager";

/// Handle of a [`DevicePluginWatcher`]: the wanted information, and the results.
pub type DevicePluginHandle = TaskHandle<ApiQueries, ApiAnswers>;

/// Reads the plugin's state; run it as a task.
#[derive(Debug)]
pub struct DevicePluginWatcher {
    maps: Api<ApiConfigMap>,
    sets: Api<DaemonSet>,
    pods: Api<Pod>,
    name: String,
    node: String,
    state: TaskState<ApiQueries, ApiAnswers>,
    config_map_schedule: Schedule,
    investigation: Schedule,
}

/// Schedule with increasing intervals.
#[derive(Debug)]
struct Schedule {
    at: Instant,
    interval: Backoff,
    /// Number of times that it was due.
    count: u32,
}

impl DevicePluginWatcher {
    /// Creates a watcher for the `ConfigMap` `name` in `namespace` and the plugin in the same namespace. Sends no
    /// request before it runs.
    pub fn new(
        client: Client,
        (namespace, name): (&str, &str),
        node: &NodeName,
    ) -> (DevicePluginHandle, Self) {
        let (handle, state) = desired::channel();
        let watcher = Self {
            maps: Api::namespaced(client.clone(), namespace),
            sets: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client, namespace),
            name: name.to_owned(),
            node: node.as_str().to_owned(),
            state,
            config_map_schedule: Schedule::new(CONFIG_MAP_INTERVAL),
            investigation: Schedule::new(INVESTIGATION_INTERVAL),
        };
        (handle, watcher)
    }

    /// Runs until the handle is dropped.
    pub async fn run(mut self) {
        let mut known = ApiQueries::default();
        loop {
            let orders = self.state.latest();
            if orders.key != known.key {
                self.config_map_schedule = Schedule::new(CONFIG_MAP_INTERVAL);
            }
            if orders != known {
                self.investigation = Schedule::new(INVESTIGATION_INTERVAL);
            }
            self.drop_unwanted(&orders);
            known = orders.clone();
            let wait = self.step(&orders).await;
            if !self.state.wait(wait).await {
                return;
            }
        }
    }

    /// Drops results that are no longer wanted, because they become outdated.
    fn drop_unwanted(&self, orders: &ApiQueries) {
        update(&self.state.observed, |answers| {
            let key = orders.key.clone().unwrap_or_default();
            if answers.key != key {
                *answers = ApiAnswers { key, ..ApiAnswers::default() };
            }
            if !orders.investigate {
                answers.evidence = None;
            }
        });
    }

    /// Reads what is due. Returns the delay until the next read.
    async fn step(&mut self, orders: &ApiQueries) -> Option<Duration> {
        let key = orders.key.as_deref()?;
        if orders.investigate && self.investigation.is_now() {
            self.investigate(key).await;
            self.investigation.done();
        }
        // During an investigation, the key may still appear.
        if self.config_map_schedule.is_now() {
            let map = self.config_map(key).await;
            debug!(%key, "ConfigMap of NVIDIA's device plugin read");
            update(&self.state.observed, |answers| answers.config_map = Some(map));
            self.config_map_schedule.done();
        }
        let left = self.config_map_schedule.left();
        Some(if orders.investigate { left.min(self.investigation.left()) } else { left })
    }

    async fn investigate(&self, key: &str) {
        let evidence = Evidence {
            config_map: self.config_map(key).await,
            plugins: self.plugins().await,
            pods: LookupResult::Present(Vec::new()),
        };
        let named: BTreeSet<&str> = match &evidence.plugins {
            LookupResult::Present(plugins) => plugins.iter().map(|one| one.name.as_str()).collect(),
            LookupResult::Missing | LookupResult::Unknown(_) => BTreeSet::new(),
        };
        let pods = self.pods(&named).await;
        update(&self.state.observed, |answers| {
            answers.config_map = Some(evidence.config_map.clone());
            answers.evidence = Some(Evidence { pods, ..evidence });
        });
    }

    async fn config_map(&self, key: &str) -> LookupResult<ConfigMap> {
        // The API server's cache suffices, because the object is read again.
        let params = GetParams::any();
        let response = client::request(self.maps.get_with(&self.name, &params)).await;
        from_response(response, |map| seen(map, key))
    }

    async fn plugins(&self) -> LookupResult<Vec<PluginDaemonSet>> {
        let params = ListParams::default().match_any();
        from_response(client::request(self.sets.list(&params)).await, |list| {
            let mut all: Vec<PluginDaemonSet> = list.items.into_iter().filter_map(plugin).collect();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            all
        })
    }

    async fn pods(&self, plugins: &BTreeSet<&str>) -> LookupResult<Vec<PluginPod>> {
        let params =
            ListParams::default().fields(&format!("spec.nodeName={}", self.node)).match_any();
        from_response(client::request(self.pods.list(&params)).await, |list| {
            let all = list.items.into_iter();
            let mut all: Vec<PluginPod> = all.filter_map(|one| pod(one, plugins)).collect();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            all
        })
    }
}

impl Schedule {
    fn new(interval: Backoff) -> Self {
        Self { at: Instant::now(), interval, count: 0 }
    }

    fn is_now(&self) -> bool {
        self.left().is_zero()
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    fn done(&mut self) {
        let wait = self.interval.delay(self.count);
        self.at = Instant::now().checked_add(wait).unwrap_or(self.at);
        self.count = self.count.saturating_add(1);
    }
}

/// Converts a response.
fn from_response<T, U>(
    response: Result<T, RequestError>,
    convert: impl FnOnce(T) -> U,
) -> LookupResult<U> {
    match response {
        Ok(object) => LookupResult::Present(convert(object)),
        Err(error) if error.code() == Some(404) => LookupResult::Missing,
        Err(error) => LookupResult::Unknown(error.describe()),
    }
}

fn seen(map: ApiConfigMap, key: &str) -> ConfigMap {
    let fields = map.metadata.managed_fields.unwrap_or_default();
    let mut ours = fields.into_iter().filter(|one| one.manager.as_deref() == Some(FIELD_MANAGER));
    let written = ours.next().and_then(|one| one.time).map(|time| time_since(time.0));
    let data = map.data.unwrap_or_default();
    ConfigMap { content: data.get(key).cloned(), keys: data.into_keys().collect(), written }
}

/// Returns the time since `then`; zero if the local clock is behind the API server's.
fn time_since(then: Timestamp) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(then)).unwrap_or_default()
}

/// Extracts the relevant fields of a `DaemonSet` that runs the plugin.
fn plugin(set: DaemonSet) -> Option<PluginDaemonSet> {
    let spec = set.spec?.template.spec?;
    let mut runners = spec.containers.iter().filter(|one| is_plugin(one));
    let runner = runners.next()?;
    let env = runner.env.iter().flatten();
    let strategy = env.into_iter().find(|one| one.name == "MIG_STRATEGY");
    let volumes = spec.volumes.into_iter().flatten();
    Some(PluginDaemonSet {
        name: set.metadata.name.unwrap_or_default(),
        config_maps: volumes.filter_map(|volume| volume.config_map.map(|map| map.name)).collect(),
        has_config_manager: spec.containers.iter().any(is_config_manager),
        mig_strategy: strategy.and_then(|one| one.value.clone()),
    })
}

fn is_plugin(container: &Container) -> bool {
    let named = container.name == PLUGIN_PROGRAM || container.name == "nvidia-device-plugin-ctr";
    (named || runs_program(container, PLUGIN_PROGRAM)) && !is_config_manager(container)
}

fn is_config_manager(container: &Container) -> bool {
    container.name == CONFIG_MANAGER_PROGRAM || runs_program(container, CONFIG_MANAGER_PROGRAM)
}

/// Returns whether the container runs this program.
fn runs_program(container: &Container, program: &str) -> bool {
    let words = container.command.iter().chain(&container.args).flatten();
    let mut names = words.filter_map(|word| word.rsplit('/').next());
    names.any(|name| name == program)
}

fn pod(pod: Pod, plugins: &BTreeSet<&str>) -> Option<PluginPod> {
    let owners = pod.metadata.owner_references.unwrap_or_default();
    let mut owners = owners.into_iter();
    let owner =
        owners.find(|one| one.kind == "DaemonSet" && plugins.contains(one.name.as_str()))?;
    let runners: BTreeSet<String> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .filter(|one| is_plugin(one))
        .map(|one| one.name.clone())
        .collect();
    let status = pod.status.unwrap_or_default();
    let first = status.init_container_statuses.unwrap_or_default();
    let then = status.container_statuses.unwrap_or_default();
    let all = || first.iter().chain(&then);
    let runs = then.iter().filter(|one| runners.contains(&one.name));
    let runs = runs.filter_map(|one| one.state.as_ref()?.running.as_ref()?.started_at.as_ref());
    Some(PluginPod {
        name: pod.metadata.name.unwrap_or_default(),
        daemon_set: owner.name,
        running_for: runs.map(|time| time_since(time.0)).next(),
        error: all().find_map(container_error),
    })
}

/// Returns why a container does not run. Source: Kubernetes, `ContainerState`.
fn container_error(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    let name = &status.name;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref()?;
        let is_usual = matches!(reason, "ContainerCreating" | "PodInitializing");
        let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let code =
            last.map_or_else(String::new, |last| format!(", after exit status {}", last.exit_code));
        return (!is_usual).then(|| format!("its container {name} is not running: {reason}{code}"));
    }
    let ended = state.terminated.as_ref()?;
    (ended.exit_code != 0)
        .then(|| format!("its container {name} exited with status {}", ended.exit_code))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(containers: &serde_json::Value) -> Option<PluginDaemonSet> {
        let body = json!({
            "metadata": {"name": "plugin"},
            "spec": {"selector": {}, "template": {"spec": {
                "containers": containers,
                "volumes": [{"name": "a", "configMap": {"name": "plugin-config"}}, {"name": "b", "emptyDir": {}}],
            }}},
        });
        plugin(serde_json::from_value(body).unwrap())
    }

    #[test]
    fn plugin_daemon_set_is_identified_by_its_program() {
        let operator = set(&json!([
            {"name": "nvidia-device-plugin", "command": ["/bin/sh", "-c"], "args": ["/bin/entrypoint.sh"],
             "env": [{"name": "MIG_STRATEGY", "value": "single"}]},
            {"name": "config-manager", "command": ["config-manager"]}]));
        let expected = PluginDaemonSet {
            name: "plugin".to_owned(),
            config_maps: ["plugin-config".to_owned()].into(),
            has_config_manager: true,
            mig_strategy: Some("single".to_owned()),
        };
        assert_eq!(operator, Some(expected.clone()));
        let helm = set(&json!([
            {"name": "nvidia-device-plugin-sidecar", "command": ["config-manager"]},
            {"name": "nvidia-device-plugin-ctr", "command": ["nvidia-device-plugin"]}]));
        let helms = PluginDaemonSet { mig_strategy: None, ..expected };
        assert_eq!(helm, Some(helms.clone()));
        let alone = set(&json!([{"name": "one", "command": ["/usr/bin/nvidia-device-plugin"]}]));
        assert_eq!(alone, Some(PluginDaemonSet { has_config_manager: false, ..helms }));
        for other in [
            json!([{"name": "gpu-feature-discovery-ctr", "command": ["gpu-feature-discovery"]},
                   {"name": "gpu-feature-discovery-sidecar", "command": ["config-manager"]}]),
            json!([{"name": "mps-control-daemon-ctr", "command": ["mps-control-daemon"]}]),
            json!([]),
        ] {
            assert_eq!(set(&other), None);
        }
    }

    #[test]
    fn plugin_pod_reports_start_time_or_error() {
        let read = |statuses: serde_json::Value| {
            let body = json!({
                "metadata": {"name": "p", "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "plugin", "uid": "1"}]},
                "spec": {"containers": [{"name": "nvidia-device-plugin-ctr"}]},
                "status": {"containerStatuses": statuses},
            });
            let known = BTreeSet::from(["plugin"]);
            pod(serde_json::from_value(body).unwrap(), &known).unwrap()
        };
        let status = |name: &str, state: serde_json::Value| json!({"name": name, "state": state, "image": "", "imageID": "", "ready": true, "restartCount": 0});
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let well = read(json!([status("nvidia-device-plugin-ctr", running.clone())]));
        assert!(well.running_for.is_some() && well.error.is_none(), "{well:?}");
        let crash = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let ill = read(json!([
            status("nvidia-device-plugin-ctr", running),
            status("nvidia-device-plugin-sidecar", crash)
        ]));
        let error = ill.error.unwrap();
        assert!(error.contains("sidecar is not running: CrashLoopBackOff"), "{error}");
        let begins = json!({"waiting": {"reason": "ContainerCreating"}});
        let young = read(json!([status("nvidia-device-plugin-ctr", begins)]));
        assert_eq!((young.running_for, young.error), (None, None));
    }

    #[test]
    fn missing_object_differs_from_forbidden_one() {
        let answer = |code: u16| {
            let status = kube::core::Status::failure("no", "Why").with_code(code);
            let error = RequestError::Refused(Box::new(kube::Error::Api(Box::new(status))));
            from_response(Err(error), |()| ())
        };
        assert_eq!(answer(404), LookupResult::Missing);
        assert!(matches!(answer(403), LookupResult::Unknown(why) if why.contains("403")));
        let late = Err(RequestError::TimedOut(Duration::from_secs(1)));
        assert!(matches!(from_response(late, |()| ()), LookupResult::Unknown(_)));
    }
}
