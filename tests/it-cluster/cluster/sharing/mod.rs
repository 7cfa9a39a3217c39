//! Sharing handed over to NVIDIA's device plugin, with the real agent, the real aggregator and a real API server.

pub(crate) mod causes;
mod nvidia;

use std::time::Duration;

use octavo_files::plugin_config;
use octavo_model::reason::Reason;
use octavo_model::sharing_status::{DeviceProvider, HandOff, SharingStatus};
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::status;
use serde_json::Value;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use self::nvidia::{Place, Plugin};
use super::Api;
use super::agent::Rig;
use crate::agent_stream::{Line, parts};
use crate::process::{Aggregator, Program};

/// The `ConfigMap` that the plugin reads.
pub(crate) const MAP: &str = "plugin-config";
const LABEL: &str = "nvidia.com/device-plugin.config";
pub(crate) const TWO: &str = "- {board: A100_40GB, count: 2}\n";
/// What an administrator has put there.
const OWN: &str = "version: v1\n";

/// A node with a plugin's namespace.
pub(crate) struct Stage {
    pub(crate) rig: Rig<'static>,
    namespace: String,
}

impl Stage {
    pub(crate) fn new(gpus: &str) -> Self {
        let api = Api::shared();
        Self { rig: Rig::new(api, gpus), namespace: api.namespace() }
    }

    fn map(&self) -> String {
        format!("{}/{MAP}", self.namespace)
    }

    /// A `ConfigMap` with a key of the administrator's.
    pub(crate) fn make_map(&self) {
        let from = format!("--from-literal=default={OWN}");
        self.rig.api.kubectl(&["create", "configmap", MAP, "-n", &self.namespace, &from]);
    }

    /// What it says, by key.
    fn keys(&self) -> Vec<(String, String)> {
        let map = ["get", "configmap", MAP, "-n", &self.namespace, "-o", "json"];
        let map: Value = serde_json::from_str(&self.rig.api.kubectl(&map)).unwrap();
        let data = map["data"].as_object().cloned().unwrap_or_default();
        data.into_iter().map(|(key, text)| (key, text.as_str().unwrap().to_owned())).collect()
    }

    fn plugin(&self, devices: &[(&str, u64)]) -> Plugin {
        let devices = devices.iter();
        Plugin::start(&Place {
            kubeconfig: self.rig.api.kubeconfig().to_owned(),
            node: self.rig.name().to_owned(),
            namespace: self.namespace.clone(),
            devices: devices.map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        })
    }

    fn aggregator(&self) -> Aggregator {
        let map = format!("--plugin-config-map={}", self.map());
        let kubeconfig = format!("--kubeconfig={}", self.rig.api.kubeconfig().display());
        Aggregator::start(&["--plaintext", &map, &kubeconfig])
    }

    /// An agent that hands over, and the label of the layout `wanted`.
    pub(crate) fn agent(&self, rules: &str, more: &[&str]) -> Program {
        let file = self.rig.machine.layouts(rules);
        let map = format!("--plugin-config-map={}", self.map());
        let first = ["--layouts", &file, &map, "--plugin-config-delay=1s"];
        self.rig.label(&["octavo.dev/layout=wanted"]);
        self.rig.start(&[&first[..], more].concat())
    }

    fn allocatable(&self, resource: &str) -> Value {
        self.rig.get()["status"]["allocatable"][resource].clone()
    }

    pub(crate) fn followed(&self) -> Option<String> {
        let labels = self.rig.labels(LABEL);
        labels.into_iter().map(|(_, value)| value).next()
    }
}

fn reporting(aggregator: &Aggregator) -> [String; 2] {
    [format!("--aggregator=http://{}", aggregator.grpc), "--aggregator-plaintext".to_owned()]
}

#[test]
fn shared_layout_reaches_nvidia_plugin_and_is_edited_and_withdrawn() {
    let stage = Stage::new(TWO);
    stage.make_map();
    let plugin = stage.plugin(&[("nvidia.com/gpu", 2)]);
    let aggregator = stage.aggregator();
    let [to, plain] = reporting(&aggregator);
    let arguments = ["--sharing=hand-off", &to, &plain];
    let mut agent = stage.agent("[{devices: all, timeSlicing: {replicas: 3}}]", &arguments);
    agent.says("the Node advertises 6 nvidia.com/gpu");
    assert_eq!(stage.allocatable("nvidia.com/gpu"), "6");
    let first = stage.followed().unwrap();
    assert!(first.starts_with("octavo-wanted-"), "{first}");
    let shown = stage.rig.await_event("SharingInForce");
    assert!(shown.contains("nvidia.com/gpu") && shown.contains('6'), "{shown}");
    // The administrator's key is untouched, and ours says no more than it is to.
    let keys = stage.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(keys.contains(&("default".to_owned(), OWN.to_owned())));
    let (key, text) = keys.iter().find(|(key, _)| *key == first).unwrap();
    assert!(plugin_config::read(key, text).is_ok(), "{text}");

    // The layout is edited: another key, so that the plugin looks again.
    stage.rig.machine.layouts("[{devices: all, timeSlicing: {replicas: 4, rename: true}}]");
    agent.says("the Node advertises 8 nvidia.com/gpu.shared");
    let second = stage.followed().unwrap();
    assert_ne!(first, second);
    stage.rig.await_path("{.status.allocatable.nvidia\\.com/gpu}=0");

    // An agent that is started again writes nothing and finds it so.
    agent.kill();
    let mut agent =
        stage.agent("[{devices: all, timeSlicing: {replicas: 4, rename: true}}]", &arguments);
    agent.says("the Node advertises 8 nvidia.com/gpu.shared");
    assert_eq!(stage.followed(), Some(second.clone()));

    // Nothing is shared any more: our label goes, and the plugin does what its administrator says.
    stage.rig.label(&["octavo.dev/layout-"]);
    stage.rig.await_path("{.status.allocatable.nvidia\\.com/gpu}=2");
    assert_eq!(stage.followed(), None);
    assert!(!plugin.has_crashed());
    // The key outlives the label: another plugin may not have heard yet, and would not start without it.
    assert!(stage.keys().iter().any(|(key, _)| *key == second));
}

#[test]
fn layout_that_nvidia_plugin_cannot_express_is_refused_without_writes() {
    let stage = Stage::new(TWO);
    stage.make_map();
    let aggregator = stage.aggregator();
    let [to, plain] = reporting(&aggregator);
    let rules =
        "[{devices: 0, timeSlicing: {replicas: 2}}, {devices: 1, timeSlicing: {replicas: 4}}]";
    let mut agent = stage.agent(rules, &["--sharing=hand-off", &to, &plain]);
    agent.says("uses one number of replicas for all of nvidia.com/gpu");
    let why = stage.rig.await_event("SharingRefused");
    assert!(why.contains("has 2 and 0000:2b:00.0 has 4"), "{why}");
    assert_eq!(stage.followed(), None);
    assert_eq!(stage.keys(), [("default".to_owned(), OWN.to_owned())]);
}

#[test]
fn label_of_another_owner_stays_until_its_owner_removes_it() {
    let stage = Stage::new(TWO);
    stage.make_map();
    let _plugin = stage.plugin(&[("nvidia.com/gpu", 2)]);
    let aggregator = stage.aggregator();
    let [to, plain] = reporting(&aggregator);
    stage.rig.label(&["nvidia.com/device-plugin.config=default"]);
    // Where the plugin runs, it need not be configured.
    let mut agent = stage.agent("[{devices: all, timeSlicing: {replicas: 3}}]", &[&to, &plain]);
    let why = stage.rig.await_event("SharingRefused");
    assert!(why.contains("is default and is managed by kubectl-label"), "{why}");
    assert_eq!(stage.followed().as_deref(), Some("default"));
    stage.rig.label(&["nvidia.com/device-plugin.config-"]);
    agent.says("the Node advertises 6 nvidia.com/gpu");
}

#[tokio::test]
async fn aggregator_writes_only_agent_configurations_and_unowned_keys() {
    let stage = Stage::new(TWO);
    stage.make_map();
    let good = shown("night", 5);
    let taken = shown("taken", 5);
    let owned = format!("{{\"data\": {{\"{}\": \"mine\"}}}}", taken.key);
    let patch = ["patch", "configmap", MAP, "-n", &stage.namespace, "-p", &owned];
    stage.rig.api.kubectl(&[&patch[..], &["--field-manager=somebody"]].concat());
    let mut aggregator = stage.aggregator();
    let hostile = [
        HandOff {
            config: "version: v1\nflags: {plugin: {passDeviceSpecs: true}}\n".to_owned(),
            ..shown("evil", 5)
        },
        HandOff { key: "default".to_owned(), ..shown("evil", 5) },
        taken.clone(),
    ];
    let mut client = connected(&aggregator).await;
    let mut lines = Vec::new();
    for (number, shown) in hostile.iter().enumerate() {
        let name = format!("hostile-{number}");
        lines.push(report(&mut client, &name, shown).await);
        let reported = aggregator
            .says(&format!("device plugin configuration that the node requested node={name}"));
        assert!(!reported.contains("passDeviceSpecs"), "{reported}");
    }
    // Others are not held up by it.
    lines.push(report(&mut client, "good", &good).await);
    aggregator.says("managed_keys=1");
    let mut expected = vec![
        ("default".to_owned(), OWN.to_owned()),
        (good.key.clone(), good.config.clone()),
        (taken.key.clone(), "mine".to_owned()),
    ];
    expected.sort();
    assert_eq!(stage.keys(), expected);

    // A second aggregator whose agents ask for something else takes nothing away.
    let mut second = stage.aggregator();
    let mut client = connected(&second).await;
    let other = shown("day", 2);
    lines.push(report(&mut client, "other", &other).await);
    second.says("managed_keys=2");
    expected.push((other.key, other.config));
    expected.sort();
    assert_eq!(stage.keys(), expected);
}

/// What an agent would say of two GPUs that so many share.
fn shown(layout: &str, replicas: u32) -> HandOff {
    let config = format!(
        "version: v1\nflags:\n  migStrategy: none\nsharing:\n  timeSlicing:\n    renameByDefault: false\n    \
         failRequestsGreaterThanOne: false\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {replicas}\n"
    );
    HandOff { key: plugin_config::key(layout, &config), config }
}

async fn connected(aggregator: &Aggregator) -> FleetClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", aggregator.grpc)).unwrap();
    FleetClient::new(endpoint.connect().await.unwrap())
}

/// A node that asks for this.
async fn report(client: &mut FleetClient<Channel>, node: &str, shown: &HandOff) -> Line {
    let report = SharingStatus {
        mode: DeviceProvider::HandOff.into(),
        state: Reason::SharingPending.into(),
        hand_off: Some(shown.clone()),
        ..SharingStatus::default()
    };
    let all = parts(1);
    let all = all.iter().map(|(key, content)| (key.clone(), content.clone()));
    let all = all.chain([status::encode_sharing(&report)]).collect();
    let introduced = Line::introduced(client, node, all);
    timeout(Duration::from_mins(1), introduced).await.unwrap()
}
