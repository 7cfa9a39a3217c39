//! Migration of a cluster with the GPU Operator: from the labels of today to policies that are complete. The operator's objects are
//! real, with its own resource definition; the machines are simulated.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::Api;
use super::agent::Rig;
use crate::process::Aggregator;
use crate::time_limits::{Finish, until};

/// The operator's own definition; the file names its source.
const DEFINITION: &str = include_str!("../../fixtures/crds/clusterpolicies.yaml");
const CONFIG_MAPS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: mig-parted-config, namespace: operators}
data:
  config.yaml: |
    version: v1
    mig-configs:
      all-1g.10gb:
      - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
      all-balanced:
      - {device-filter: ["0x20B210DE"], devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
      - {device-filter: ["0x233010DE"], devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 1}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plugin-config, namespace: operators}
data:
  whole: "version: v1"
  pairs: |
    version: v1
    sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}}
  notebooks: |
    version: v1
    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"#;
const CLUSTER_POLICY: &str = r"
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec:
  operator: {defaultRuntime: containerd}
  daemonsets: {}
  dcgm: {}
  dcgmExporter: {}
  driver: {}
  gfd: {}
  nodeStatusExporter: {}
  toolkit: {}
  mig: {strategy: mixed}
  migManager: {config: {name: mig-parted-config}}
  devicePlugin: {config: {name: plugin-config, default: whole}}
";
/// Scenario, labels that select the configuration, and labels in which GPU Feature Discovery differs because of time-slicing.
const MACHINES: [(&str, &[&str], &[&str]); 3] = [
    (
        "- board: A100_80GB\n  count: 2\n  mig: enabled\n  instances:\n  - {profile: 1g.10gb, start: 0}\n  \
         - {profile: 1g.10gb, start: 1}\n  - {profile: 1g.10gb, start: 2}\n  - {profile: 1g.10gb, start: 3}\n  \
         - {profile: 1g.10gb, start: 4}\n  - {profile: 1g.10gb, start: 5}\n  - {profile: 1g.10gb, start: 6}\n",
        &["nvidia.com/mig.config=all-1g.10gb", "nvidia.com/mig.config.state=success"],
        &[],
    ),
    (
        "- board: A100_80GB\n  count: 2\n  mig: enabled\n  instances:\n  - {profile: 3g.40gb, start: 4}\n  \
         - {profile: 2g.20gb, start: 0}\n  - {profile: 1g.10gb, start: 2}\n  - {profile: 1g.10gb, start: 3}\n",
        &[
            "nvidia.com/mig.config=all-balanced",
            "nvidia.com/mig.config.state=success",
            "nvidia.com/device-plugin.config=pairs",
        ],
        &["nvidia.com/mig-1g.10gb.replicas=2"],
    ),
    (
        "- board: H100_80GB_SXM\n  count: 2\n",
        &["nvidia.com/device-plugin.config=notebooks"],
        &["nvidia.com/gpu.replicas=4"],
    ),
];

fn migrate(api: &Api, directory: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["migrate", "gpu-operator", "--kubeconfig"])
        .arg(api.kubeconfig())
        .arg("--output-dir")
        .arg(directory)
        .args(more)
        .env_remove("OCTAVO_SERVER")
        .env_remove("OCTAVO_NAMESPACE")
        .finish()
}

fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}

/// Labels a node as the operator, its administrator and GPU Feature Discovery do.
fn label(rig: &Rig<'_>, selected: &[&str], shared: &[&str]) {
    let found = rig.machine.run_read_only(&["labels", "--mig-strategy=mixed"]);
    let found = String::from_utf8(found.stdout).unwrap();
    let found: Vec<&str> = found.lines().filter(|line| line.starts_with("nvidia.com/")).collect();
    assert!(found.iter().any(|line| line.starts_with("nvidia.com/gpu.product=")), "{found:?}");
    for labels in [&found[..], &["nvidia.com/gpu.present=true"], selected, shared] {
        if !labels.is_empty() {
            rig.label(labels);
        }
    }
}

/// Creates the operator's objects.
fn install(api: &Api) {
    api.apply(DEFINITION);
    let own = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/chart/octavo/files/acceleratorpolicies.yaml");
    api.apply(&fs::read_to_string(own).unwrap());
    api.await_definitions();
    for namespace in ["operators", "octavo-system"] {
        api.kubectl(&["create", "namespace", namespace]);
    }
    api.apply(CONFIG_MAPS);
    api.apply(CLUSTER_POLICY);
    let status = r#"{"status": {"state": "ready", "namespace": "operators"}}"#;
    api.kubectl(&[
        "patch",
        "clusterpolicy",
        "cluster-policy",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ]);
}

/// Requests of `octavo` that are not reads.
fn writes(api: &Api) -> Vec<Value> {
    let mut all = api.audit();
    all.retain(|event| {
        let agent = event["userAgent"].as_str().unwrap_or_default();
        agent.starts_with("octavo/") && !matches!(event["verb"].as_str(), Some("get" | "list"))
    });
    all
}

#[test]
fn p5_cluster_of_the_gpu_operator_is_migrated_without_a_change() {
    let api = Api::fresh();
    install(&api);
    let rigs = MACHINES.map(|(gpus, selected, shared)| {
        let rig = Rig::new(&api, gpus);
        label(&rig, selected, shared);
        rig
    });
    let geometry = || rigs.each_ref().map(|rig| [0, 1].map(|gpu| rig.machine.geometry(gpu)));
    let before = geometry();

    let directory = tempfile::tempdir().unwrap();
    let first = migrate(&api, directory.path(), &[]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first));
    assert_eq!(text(&first).matches("no change").count(), 3, "{}", text(&first));

    let layouts = directory.path().join("layouts.yaml");
    let layouts = format!("--layouts={}", layouts.display());
    let config = format!("--kubeconfig={}", api.kubeconfig().display());
    let aggregator =
        Aggregator::start(&["--plaintext", "--follow-cluster", "--policies", &layouts, &config]);
    let to = format!("--aggregator=http://{}", aggregator.grpc);
    let agents = rigs.each_ref().map(|rig| {
        rig.start(&[
            "--mig-strategy=mixed",
            "--sharing=off",
            &layouts,
            "--aggregator-plaintext",
            &to,
        ])
    });
    let server = format!("--server=http://{}", aggregator.http);
    let planned = until(
        "the plans of all nodes",
        || migrate(&api, directory.path(), &[&server, "--check"]),
        |output| output.status.code() == Some(0),
    );
    let planned = text(&planned);
    assert!(planned.contains("CHANGES IN PLAN"), "{planned}");
    assert_eq!(planned.matches("no change").count(), 3, "{planned}");
    assert_eq!(writes(&api), Vec::<Value>::new());

    let policies = directory.path().join("policies.yaml");
    api.kubectl(&["apply", "--server-side", "-f", policies.to_str().unwrap()]);
    let complete = "--for=jsonpath={.status.state}=Complete";
    api.kubectl(&["wait", "acceleratorpolicies", "--all", complete, "--timeout=300s"]);
    for (rig, layout) in rigs.iter().zip(["all-1g.10gb", "all-balanced-pairs", "notebooks"]) {
        let status = rig.status();
        assert_eq!((&status["layout"], &status["state"]), (&layout.into(), &"applied".into()));
    }
    assert_eq!(geometry(), before);
    drop(agents);
}

#[test]
fn p5_cluster_without_the_gpu_operator_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let output = migrate(Api::shared(), directory.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("the GPU Operator is not installed"), "{}", text(&output));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
