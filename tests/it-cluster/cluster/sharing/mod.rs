//! Sharing through NVIDIA's device plugin, with the real agent, the real aggregator and a real API server.

pub(crate) mod causes;
mod nvidia;

use std::time::Duration;

use octavo_files::plugin_config;
use octavo_model::reason::Reason;
use octavo_model::sharing_status::{DeviceProvider, HandOffConfig, SharingStatus};
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::status;
use serde_json::Value;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use self::nvidia::{Plugin, PluginSettings};
use super::Api;
use super::agent::Rig;
use crate::agent_stream::{AgentStream, parts};
use crate::process::{Aggregator, Program};

/// The `ConfigMap` that the plugin reads.
pub(crate) const MAP: &str = "plugin-config";
const LABEL: &str = "nvidia.com/device-plugin.config";
pub(crate) const TWO: &str = "- {board: A100_40GB, count: 2}\n";
/// Configuration of the administrator.
const OWN: &str = "version: v1\n";

/// A node with the namespace of a plugin.
pub(crate) struct HandOffFixture {
    pub(crate) rig: Rig<'static>,
    namespace: String,
}

impl HandOffFixture {
    pub(crate) fn new(gpus: &str) -> Self {
        let api = Api::shared();
        Self { rig: Rig::new(api, gpus), namespace: api.namespace() }
    }

    fn map(&self) -> String {
        format!("{}/{MAP}", self.namespace)
    }

    /// A `ConfigMap` with a key of the administrator.
    pub(crate) fn make_map(&self) {
        let from = format!("--from-literal=default={OWN}");
        self.rig.api.kubectl(&["create", "configmap", MAP, "-n", &self.namespace, &from]);
    }

    /// Its data by key.
    fn keys(&self) -> Vec<(String, String)> {
        let map = ["get", "configmap", MAP, "-n", &self.namespace, "-o", "json"];
        let map: Value = serde_json::from_str(&self.rig.api.kubectl(&map)).unwrap();
        let data = map["data"].as_object().cloned().unwrap_or_default();
        data.into_iter().map(|(key, text)| (key, text.as_str().unwrap().to_owned())).collect()
    }

    fn plugin(&self, devices: &[(&str, u64)]) -> Plugin {
        let devices = devices.iter();
        Plugin::start(&PluginSettings {
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

    /// An agent with the hand-off, and the label of the layout `wanted`.
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
    let fixture = HandOffFixture::new(TWO);
    fixture.make_map();
    let plugin = fixture.plugin(&[("nvidia.com/gpu", 2)]);
    let aggregator = fixture.aggregator();
    let [to, plain] = reporting(&aggregator);
    let arguments = ["--sharing=hand-off", &to, &plain];
    let mut agent = fixture.agent("[{devices: all, timeSlicing: {replicas: 3}}]", &arguments);
    agent.expect_log("the Node advertises 6 nvidia.com/gpu");
    assert_eq!(fixture.allocatable("nvidia.com/gpu"), "6");
    let first = fixture.followed().unwrap();
    assert!(first.starts_with("octavo-wanted-"), "{first}");
    let shown = fixture.rig.await_event("SharingInForce");
    assert!(shown.contains("nvidia.com/gpu") && shown.contains('6'), "{shown}");
    // The administrator's key is unchanged, and ours has the expected content.
    let keys = fixture.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(keys.contains(&("default".to_owned(), OWN.to_owned())));
    let (key, text) = keys.iter().find(|(key, _)| *key == first).unwrap();
    assert!(plugin_config::read(key, text).is_ok(), "{text}");

    // The layout is edited: another key, so that the plugin reloads.
    fixture.rig.machine.layouts("[{devices: all, timeSlicing: {replicas: 4, rename: true}}]");
    agent.expect_log("the Node advertises 8 nvidia.com/gpu.shared");
    let second = fixture.followed().unwrap();
    assert_ne!(first, second);
    fixture.rig.await_path("{.status.allocatable.nvidia\\.com/gpu}=0");

    // A restarted agent writes nothing and verifies the state.
    agent.kill();
    let mut agent =
        fixture.agent("[{devices: all, timeSlicing: {replicas: 4, rename: true}}]", &arguments);
    agent.expect_log("the Node advertises 8 nvidia.com/gpu.shared");
    assert_eq!(fixture.followed(), Some(second.clone()));

    // Nothing is shared any more: our label is removed, and the plugin uses the default.
    fixture.rig.label(&["octavo.dev/layout-"]);
    fixture.rig.await_path("{.status.allocatable.nvidia\\.com/gpu}=2");
    assert_eq!(fixture.followed(), None);
    assert!(!plugin.has_crashed());
    // The key outlives the label: another plugin may not have reloaded yet, and would not start without it.
    assert!(fixture.keys().iter().any(|(key, _)| *key == second));
}

#[test]
fn layout_that_nvidia_plugin_cannot_express_is_refused_without_writes() {
    let fixture = HandOffFixture::new(TWO);
    fixture.make_map();
    let aggregator = fixture.aggregator();
    let [to, plain] = reporting(&aggregator);
    let rules =
        "[{devices: 0, timeSlicing: {replicas: 2}}, {devices: 1, timeSlicing: {replicas: 4}}]";
    let mut agent = fixture.agent(rules, &["--sharing=hand-off", &to, &plain]);
    agent.expect_log("uses one number of replicas for all of nvidia.com/gpu");
    let why = fixture.rig.await_event("SharingRefused");
    assert!(why.contains("has 2 and 0000:2b:00.0 has 4"), "{why}");
    assert_eq!(fixture.followed(), None);
    assert_eq!(fixture.keys(), [("default".to_owned(), OWN.to_owned())]);
}

#[test]
fn label_of_another_owner_stays_until_its_owner_removes_it() {
    let fixture = HandOffFixture::new(TWO);
    fixture.make_map();
    let _plugin = fixture.plugin(&[("nvidia.com/gpu", 2)]);
    let aggregator = fixture.aggregator();
    let [to, plain] = reporting(&aggregator);
    fixture.rig.label(&["nvidia.com/device-plugin.config=default"]);
    // The hand-off does not require a namespace of the plugin.
    let mut agent = fixture.agent("[{devices: all, timeSlicing: {replicas: 3}}]", &[&to, &plain]);
    let why = fixture.rig.await_event("SharingRefused");
    assert!(why.contains("is default and is managed by kubectl-label"), "{why}");
    assert_eq!(fixture.followed().as_deref(), Some("default"));
    fixture.rig.label(&["nvidia.com/device-plugin.config-"]);
    agent.expect_log("the Node advertises 6 nvidia.com/gpu");
}

#[tokio::test]
async fn aggregator_writes_only_agent_configurations_and_unowned_keys() {
    let fixture = HandOffFixture::new(TWO);
    fixture.make_map();
    let good = shown("night", 5);
    let taken = shown("taken", 5);
    let owned = format!("{{\"data\": {{\"{}\": \"mine\"}}}}", taken.key);
    let patch = ["patch", "configmap", MAP, "-n", &fixture.namespace, "-p", &owned];
    fixture.rig.api.kubectl(&[&patch[..], &["--field-manager=another-manager"]].concat());
    let mut aggregator = fixture.aggregator();
    let hostile = [
        HandOffConfig {
            config: "version: v1\nflags: {plugin: {passDeviceSpecs: true}}\n".to_owned(),
            ..shown("evil", 5)
        },
        HandOffConfig { key: "default".to_owned(), ..shown("evil", 5) },
        taken.clone(),
    ];
    let mut client = connected(&aggregator).await;
    let mut lines = Vec::new();
    for (number, shown) in hostile.iter().enumerate() {
        let name = format!("hostile-{number}");
        lines.push(report(&mut client, &name, shown).await);
        let reported = aggregator.expect_log(&format!(
            "device plugin configuration that the node requested node={name}"
        ));
        assert!(!reported.contains("passDeviceSpecs"), "{reported}");
    }
    // Other agents are not delayed.
    lines.push(report(&mut client, "good", &good).await);
    aggregator.expect_log("managed_keys=1");
    let mut expected = vec![
        ("default".to_owned(), OWN.to_owned()),
        (good.key.clone(), good.config.clone()),
        (taken.key.clone(), "mine".to_owned()),
    ];
    expected.sort();
    assert_eq!(fixture.keys(), expected);

    // A second aggregator with other requests removes nothing.
    let mut second = fixture.aggregator();
    let mut client = connected(&second).await;
    let other = shown("day", 2);
    lines.push(report(&mut client, "other", &other).await);
    second.expect_log("managed_keys=2");
    expected.push((other.key, other.config));
    expected.sort();
    assert_eq!(fixture.keys(), expected);
}

/// The hand-off of an agent for two GPUs with this many replicas.
fn shown(layout: &str, replicas: u32) -> HandOffConfig {
    let config = format!(
        "version: v1\nflags:\n  migStrategy: none\nsharing:\n  timeSlicing:\n    renameByDefault: false\n    \
         failRequestsGreaterThanOne: false\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {replicas}\n"
    );
    HandOffConfig { key: plugin_config::key(layout, &config), config }
}

async fn connected(aggregator: &Aggregator) -> FleetClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", aggregator.grpc)).unwrap();
    FleetClient::new(endpoint.connect().await.unwrap())
}

/// Reports this hand-off as a node.
async fn report(
    client: &mut FleetClient<Channel>,
    node: &str,
    shown: &HandOffConfig,
) -> AgentStream {
    let report = SharingStatus {
        mode: DeviceProvider::HandOff.into(),
        state: Reason::SharingPending.into(),
        hand_off: Some(shown.clone()),
        ..SharingStatus::default()
    };
    let all = parts(1);
    let all = all.iter().map(|(key, content)| (key.clone(), content.clone()));
    let all = all.chain([status::encode_sharing(&report)]).collect();
    let introduced = AgentStream::with_first_status(client, node, all);
    timeout(Duration::from_mins(1), introduced).await.unwrap()
}
