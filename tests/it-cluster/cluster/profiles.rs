//! Hardware profiles of a real API server with the real definition: discovered, watched, checked and created; and pods
//! of a profile, placed by the real scheduler.

mod created;
mod made;
mod placed;
mod several;
mod untouched;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::Api;
use super::objects::TestNode;
use crate::fleet_api::Api as Readers;
use crate::process::Aggregator;
use crate::time_limits::{Finish, until_async};

/// `OpenDataHub`'s own definition; the file names its source.
const HARDWARE: &str = include_str!("../../fixtures/crds/hardwareprofiles.yaml");
/// Definitions of its dashboard and of Kueue.
const OLD: &str = include_str!("../../fixtures/crds/dashboard-hardwareprofiles.yaml");
const OLDER: &str = include_str!("../../fixtures/crds/acceleratorprofiles.yaml");
const QUEUES: &str = include_str!("../../fixtures/crds/localqueues.yaml");
const DASHBOARD: &str = "dashboard.opendatahub.io";
const H200: &str = "nvidia-h200-141gb";
const T4: &str = "nvidia-t4-16gb";
const GPU: &str = "octavo.test/profile-gpu";

/// An aggregator that watches a cluster.
struct Site<'a> {
    api: &'a Api,
    aggregator: Aggregator,
    readers: Readers,
}

impl<'a> Site<'a> {
    fn new(api: &'a Api) -> Self {
        Self::with(api, api.kubeconfig(), &["--follow-cluster"])
    }

    /// With these arguments and this kubeconfig.
    fn with(api: &'a Api, kubeconfig: &Path, arguments: &[&str]) -> Self {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let aggregator = Aggregator::start(&[&["--plaintext", &kubeconfig], arguments].concat());
        Self { api, readers: Readers::at(aggregator.http), aggregator }
    }

    /// The document at `path` when it satisfies `wanted`.
    async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let read = async || self.readers.get(path).await.json();
        until_async(path, read, wanted).await
    }

    /// The profile, once it satisfies `wanted`.
    async fn profile(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until(&format!("/api/v1/profiles/{name}"), |one| {
            one["kind"] == "Profile" && wanted(one)
        })
        .await
    }

    fn octavo(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_octavo"))
            .arg("profiles")
            .args(arguments)
            .env("OCTAVO_SERVER", format!("http://{}", self.aggregator.http))
            .env("KUBECONFIG", self.api.kubeconfig())
            .stdin(Stdio::null())
            .finish()
    }

    /// Runs a command that must exit with `code`, and returns its output and notes.
    #[track_caller]
    fn run(&self, arguments: &[&str], code: i32) -> (String, String) {
        let output = self.octavo(arguments);
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{err}");
        (out, err)
    }
}

/// A node with eight devices of a type, and their taint.
fn node(api: &Api, type_name: &str) -> TestNode {
    let node = api.node("profiles");
    let label = format!("octavo.dev/type={type_name}");
    api.kubectl(&["label", "node", node.name(), &label]);
    let all = json!({"cpu": "64", "memory": "512Gi", "pods": "500", GPU: "8"});
    let patch = json!({"status": {"capacity": all, "allocatable": all}}).to_string();
    api.kubectl(&[
        "patch",
        "node",
        node.name(),
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ]);
    api.kubectl(&["taint", "node", node.name(), "octavo.test/profiles=true:NoSchedule"]);
    node
}

fn define(api: &Api, definition: &str) {
    api.apply(definition);
    api.await_definitions();
}

/// The definition of a kind with only this version.
fn only(definition: &str, version: &str) -> String {
    let mut definition: Value = serde_saphyr::from_str(definition).unwrap();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.retain(|one| one["name"] == version);
    assert_eq!(versions.len(), 1, "{version}");
    versions[0]["storage"] = json!(true);
    definition.to_string()
}

/// A profile of two devices on nodes with this label.
fn profile(namespace: &str, name: &str, label: (&str, &str)) -> String {
    let (key, value) = label;
    json!({
        "apiVersion": "infrastructure.opendatahub.io/v1", "kind": "HardwareProfile",
        "metadata": {
            "name": name, "namespace": namespace,
            "annotations": {"opendatahub.io/display-name": "Large", "other.example/kept": "as it is"},
        },
        "spec": {
            "identifiers": [{"displayName": "GPU", "identifier": GPU, "minCount": 1, "maxCount": 8, "defaultCount": 2}],
            "scheduling": {"type": "Node", "node": {
                "nodeSelector": {key: value},
                "tolerations": [{"key": "octavo.test/profiles", "operator": "Exists", "effect": "NoSchedule"}],
            }},
        },
    })
    .to_string()
}

fn words(profile: &Value) -> Vec<&str> {
    let findings = profile["findings"].as_array().unwrap();
    findings.iter().map(|one| one["finding"].as_str().unwrap()).collect()
}

/// A change of a profile by its owner that introduces an issue.
async fn change_by_owner_is_checked(site: &Site<'_>, namespace: &str) {
    site.api.apply(&profile(namespace, "large", ("nvidia.com/gpu.product", "NVIDIA-H200")));
    let changed = site.profile("large", |one| !words(one).is_empty()).await;
    assert_eq!(words(&changed), ["nothing-selected", "changing-label"]);
    assert_eq!(changed["available"], 0);
    let (found, _) = site.run(&["check"], 3);
    assert!(found.contains("select by octavo.dev/type"), "{found}");
    let (shown, _) = site.run(&["show", "large", "--namespace", namespace], 0);
    assert!(shown.contains("nvidia.com/gpu.product=NVIDIA-H200"), "{shown}");
}

#[tokio::test]
async fn req_002_profiles_are_discovered_with_their_kind_and_never_modified() {
    let api = Api::fresh();
    let _nodes = [node(&api, H200), node(&api, T4)];
    let site = Site::new(&api);
    let empty = site.until("/api/v1/profiles", |list| list.get("notice").is_none()).await;
    assert_eq!((&empty["source"], &empty["items"]), (&json!("nowhere"), &json!([])));
    let (_, notes) = site.run(&["list"], 0);
    assert!(notes.contains("the aggregator has no profiles"), "{notes}");

    define(&api, HARDWARE);
    let namespace = api.namespace();
    api.apply(&profile(&namespace, "large", ("octavo.dev/type", H200)));
    let objects =
        || api.kubectl(&["get", "hardwareprofiles", "-A", "-o", "json", "--show-managed-fields"]);
    let before = objects();
    let large = site.profile("large", |_| true).await;
    assert_eq!(words(&large), [] as [&str; 0]);
    assert_eq!(large["type"], H200);
    assert_eq!(large["available"], 4);
    assert_eq!(large["reach"]["nodes"], 1);
    assert_eq!(large["architecture"], "Hopper");
    assert_eq!(
        (&large["computeCapability"], &large["memoryBandwidthGBs"]),
        (&json!("9.0"), &json!(4800.0))
    );

    // The view of a user who selects a profile.
    let list =
        site.until("/api/hardware-profiles", |list| list["items"][0]["available"] == 4).await;
    let row = &list["items"][0];
    assert_eq!(row["name"], "large");
    assert_eq!(row["acceleratorType"], H200);
    assert_eq!((&row["memory"], &row["architecture"]), (&json!("141 GiB"), &json!("Hopper")));
    assert_eq!(objects(), before);

    change_by_owner_is_checked(&site, &namespace).await;
    api.kubectl(&["delete", "hardwareprofile", "large", "-n", &namespace]);
    site.until("/api/v1/profiles", |list| list["items"] == json!([])).await;
    let gone = site.readers.get("/api/v1/profiles/large").await;
    assert_eq!(gone.status, 404);
}

/// One profile of each old kind, and one that names a queue.
fn old_and_queued(namespace: &str) -> [Value; 3] {
    let old = json!({
        "apiVersion": format!("{DASHBOARD}/v1alpha"), "kind": "AcceleratorProfile",
        "metadata": {"name": "old", "namespace": namespace},
        "spec": {
            "displayName": "Old", "enabled": true, "identifier": GPU,
            "tolerations": [{"key": "octavo.test/profiles", "operator": "Exists"}],
        },
    });
    let older = json!({
        "apiVersion": format!("{DASHBOARD}/v1alpha1"), "kind": "HardwareProfile",
        "metadata": {"name": "older", "namespace": namespace},
        "spec": {
            "displayName": "Older", "enabled": false, "nodeSelector": {"octavo.dev/type": H200},
            "tolerations": [{"key": "octavo.test/profiles", "operator": "Exists"}],
        },
    });
    let queued = json!({
        "apiVersion": "infrastructure.opendatahub.io/v1", "kind": "HardwareProfile",
        "metadata": {"name": "queued", "namespace": namespace},
        "spec": {
            "identifiers": [{"displayName": "GPU", "identifier": GPU, "minCount": 1, "defaultCount": 1}],
            "scheduling": {"type": "Queue", "kueue": {"localQueueName": "team"}},
        },
    });
    [old, older, queued]
}

#[tokio::test]
async fn old_profile_kinds_are_read_in_any_version_and_queue_must_exist() {
    let api = Api::fresh();
    let _node = node(&api, H200);
    let namespace = api.namespace();
    define(&api, HARDWARE);
    define(&api, &only(OLDER, "v1alpha"));
    define(&api, OLD);
    for object in old_and_queued(&namespace) {
        api.create(&object);
    }
    let site = Site::new(&api);
    let old = site.profile("old", |one| one["available"] == 8).await;
    assert_eq!(old["objectKind"], "accelerator-profile");
    assert_eq!(words(&old), ["legacy-kind"]);
    let older = site.profile("older", |_| true).await;
    assert_eq!(words(&older), ["legacy-kind", "disabled"]);
    let picked = site.until("/api/hardware-profiles", |_| true).await;
    let names: Vec<&Value> =
        picked["items"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["old", "queued"]);

    let queued = site.profile("queued", |one| !words(one).is_empty()).await;
    assert_eq!(words(&queued), ["no-queue"]);
    assert_eq!(queued.get("available"), None);
    let message = queued["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("Kueue is not installed"), "{message}");
    // The version of Kueue before 0.15.
    define(&api, &only(QUEUES, "v1beta1"));
    let message =
        |one: &Value| one["findings"][0]["message"].as_str().unwrap_or_default().to_owned();
    site.profile("queued", |one| message(one).contains("no namespace has the LocalQueue")).await;
    api.create(&json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
        "metadata": {"name": "team", "namespace": namespace}, "spec": {"clusterQueue": "all"},
    }));
    site.profile("queued", |one| words(one).is_empty()).await;
}
