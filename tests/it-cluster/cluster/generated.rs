//! Generated manifests on a real API server with the definitions of Kueue, Karpenter, OpenShift and Argo CD, and with
//! Kubernetes' own admission.

mod access;
mod machine_pools;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::Api;
use super::objects::TestNode;
use crate::process::Aggregator;
use crate::time_limits::{Finish, eventually, until};

/// Kueue's own definitions; the files name their source.
const DEFINITIONS: [&str; 5] = [
    include_str!("../../fixtures/crds/topologies.yaml"),
    include_str!("../../fixtures/crds/resourceflavors.yaml"),
    include_str!("../../fixtures/crds/clusterqueues.yaml"),
    include_str!("../../fixtures/crds/localqueues.yaml"),
    include_str!("../../fixtures/crds/workloadpriorityclasses.yaml"),
];
const GPU: &str = "nvidia.com/gpu";
const SMALL: &str = "nvidia.com/mig-1g.10gb";
const LARGE: &str = "nvidia.com/mig-3g.40gb";
const H100: (&str, &str) = ("nvidia-h100-80gb", "exclusive");
const TEAMS: [&str; 2] = ["team-a", "team-b"];
/// Flags of queues and quotas.
const QUEUE_FLAGS: [&str; 2] = ["--namespace=team-a,team-b", "--priorities=high,low"];

/// A cluster with nodes of different layouts, the aggregator that watches it, and a directory for files.
struct Site<'a> {
    api: &'a Api,
    // Nodes are deleted when they are dropped.
    nodes: Vec<TestNode>,
    aggregator: Aggregator,
    directory: tempfile::TempDir,
}

impl<'a> Site<'a> {
    fn new(api: &'a Api) -> Self {
        let config = format!("--kubeconfig={}", api.kubeconfig().display());
        let aggregator = Aggregator::start(&["--plaintext", "--follow-cluster", &config]);
        let directory = tempfile::tempdir().unwrap();
        let mut site = Self { api, nodes: Vec::new(), aggregator, directory };
        // Nodes that exist at the start are expected to report, and no agent runs on these.
        eventually("the end of the start", || {
            let list = site.run("nodes", &["-o=json"]);
            list.status.success() && !text(&list.stdout).contains("\"starting\"")
        });
        let mig = ("nvidia-a100-80gb", "mig");
        for (kind, instance_type, units, layout) in [
            (H100, "p5.48xlarge", json!({GPU: "8"}), None),
            (H100, "p5.48xlarge", json!({GPU: "8"}), None),
            (mig, "p4de.24xlarge", json!({SMALL: "14"}), Some("small")),
            (mig, "p4de.24xlarge", json!({SMALL: "2", LARGE: "2"}), Some("large")),
            (("nvidia-t4-16gb", "time-slicing"), "g4dn.xlarge", json!({GPU: "3"}), None),
            // No EC2 instance has this device.
            (("amd-mi300x-192gb", "partitioned"), "x.metal", json!({"amd.com/gpu": "64"}), None),
            (
                ("aws-inferentia2-32gb", "exclusive"),
                "inf2.48xlarge",
                json!({"aws.amazon.com/neuron": "12"}),
                None,
            ),
        ] {
            let mut more = json!({"node.kubernetes.io/instance-type": instance_type});
            if let Some(layout) = layout {
                more["octavo.dev/layout"] = json!(layout);
            }
            site.node(kind, &units, more);
        }
        for team in TEAMS {
            api.kubectl(&["create", "namespace", team]);
        }
        site
    }

    fn node(&mut self, (kind, sharing): (&str, &str), units: &Value, mut labels: Value) {
        let node = self.api.node("generated");
        self.patch(
            node.name(),
            &["--subresource=status"],
            &json!({"status": {"capacity": units, "allocatable": units}}),
        );
        let taint = json!({"key": GPU, "value": "present", "effect": "NoSchedule"});
        labels["octavo.dev/type"] = json!(kind);
        labels["octavo.dev/sharing"] = json!(sharing);
        labels["topology.kubernetes.io/zone"] = json!("zone-a");
        self.patch(
            node.name(),
            &[],
            &json!({"metadata": {"labels": labels}, "spec": {"taints": [taint]}}),
        );
        self.nodes.push(node);
    }

    fn patch(&self, name: &str, options: &[&str], patch: &Value) {
        let patch = patch.to_string();
        let all = ["patch", "node", name, "--type=merge", "-p", &patch];
        self.api.kubectl(&[&all[..], options].concat());
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(command.split(' '))
            .args(arguments)
            .env("OCTAVO_SERVER", format!("http://{}", self.aggregator.http))
            .finish()
    }

    fn generate(&self, target: &str, flags: &[&str]) -> Output {
        self.run(&format!("generate {target}"), flags)
    }

    /// Writes the files into a directory of this name, once the aggregator has read all nodes.
    fn written(&self, target: &str, name: &str, more: &[&str]) -> String {
        let directory = self.directory.path().join(name);
        let directory = directory.to_str().unwrap().to_owned();
        let flag = format!("--output-dir={directory}");
        let write = || self.generate(target, &[&[flag.as_str()], more].concat());
        until("all nodes", write, |output| {
            // The node with these devices is the last one.
            let files = text_of_files(Path::new(&directory));
            output.status.success()
                && !text(&output.stderr).contains("excluded")
                && ["aws.amazon.com/neuron", "aws-inferentia2"]
                    .iter()
                    .any(|one| files.contains(one))
        });
        directory
    }

    fn apply(&self, directory: &str, more: &[&str]) -> String {
        let all = ["apply", "--server-side", "--field-manager=test", "-f", directory];
        self.api.kubectl(&[&all[..], more].concat())
    }

    /// Resource version of each object of the files.
    fn versions(&self, directory: &str) -> Vec<(Value, Value)> {
        let list = self.api.kubectl(&["get", "-f", directory, "-o", "json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|one| {
                (one["metadata"]["name"].clone(), one["metadata"]["resourceVersion"].clone())
            })
            .collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn text_of_files(directory: &Path) -> String {
    let files = fs::read_dir(directory).into_iter().flatten();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

fn define(api: &Api, definitions: &[&str]) {
    for definition in definitions {
        api.apply(definition);
    }
    api.await_definitions();
}

#[test]
fn p3_kueue_manifests_are_accepted_in_both_versions_and_applied_once() {
    let api = Api::fresh();
    define(&api, &DEFINITIONS);
    let mut site = Site::new(&api);
    let before =
        site.written("kueue", "v1beta1", &[&QUEUE_FLAGS[..], &["--kueue-api=v1beta1"]].concat());
    let accepted = site.apply(&before, &["--dry-run=server"]);
    // One topology, six flavors, two cluster queues, four local queues and two classes.
    assert_eq!(accepted.lines().count(), 15, "{accepted}");

    let directory = site.written("kueue", "v1beta2", &QUEUE_FLAGS);
    let accepted = site.apply(&directory, &["--dry-run=server"]);
    assert_eq!(accepted.lines().count(), 15, "{accepted}");
    site.apply(&directory, &[]);
    let first = site.versions(&directory);
    site.apply(&directory, &[]);
    assert_eq!(site.versions(&directory), first);
    let queue = api.kubectl(&["get", "clusterqueue", "accelerators", "-o", "json"]);
    let queue: Value = serde_json::from_str(&queue).unwrap();
    let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array().unwrap().iter();
    let names: Vec<&str> = flavors.map(|flavor| flavor["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "amd-mi300x-192gb-partitioned",
            "aws-inferentia2-32gb",
            "nvidia-a100-80gb-mig-1g.10gb",
            "nvidia-a100-80gb-mig-1g.10gb-3g.40gb",
            "nvidia-h100-80gb",
        ]
    );

    // Unchanged nodes give the same files, and another node gives others.
    let flags = [&QUEUE_FLAGS[..], &["--output-dir", &directory, "--check"]].concat();
    let same = site.generate("kueue", &flags);
    assert_eq!((same.status.code(), text(&same.stdout)), (Some(0), String::new()));
    site.node(H100, &json!({GPU: "8"}), json!({}));
    let check = || site.generate("kueue", &flags);
    // A node without labels is excluded with a note at first, which all files have.
    let differs = format!("{directory}/cluster-queues.yaml differs\n");
    let other = until("the other queue", check, |output| text(&output.stdout) == differs);
    assert_eq!(other.status.code(), Some(3));
    fs::remove_file(format!("{directory}/topologies.yaml")).unwrap();
    let missing = text(&check().stdout);
    assert!(missing.contains("topologies.yaml is missing\n"), "{missing}");
}

#[test]
fn p3_applied_quotas_are_created_then_unchanged_and_conflicts_name_their_owner() {
    let api = Api::fresh();
    let site = Site::new(&api);
    // All nodes are known.
    let directory = site.written("quotas", "quotas", &QUEUE_FLAGS);
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let apply = |more: &[&str]| {
        let output = site.generate(
            "quotas",
            &[&QUEUE_FLAGS[..], &["--apply", kubeconfig.as_str()], more].concat(),
        );
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, created, notes) = apply(&[]);
    assert_eq!((code, created.lines().count()), (Some(0), 12), "{created}{notes}");
    assert!(created.lines().all(|line| line.ends_with(" created")), "{created}");
    assert!(created.contains("priorityclass.scheduling.k8s.io/high created\n"), "{created}");
    assert!(created.contains("limitrange/accelerators in team-a created\n"), "{created}");
    let first = site.versions(&directory);
    let (code, unchanged, _) = apply(&[]);
    assert_eq!((code, unchanged), (Some(0), created.replace(" created\n", " unchanged\n")));
    assert_eq!(site.versions(&directory), first);
    // Another client changes a field: the object stays, and the others are applied.
    api.kubectl(&["label", "priorityclass", "high", "team=a"]);
    let patch = r#"{"description": "important"}"#;
    let class = ["patch", "priorityclass", "high", "--type=merge", "-p", patch];
    api.kubectl(&[&class[..], &["--field-manager=somebody"]].concat());
    let limits = r#"[{"op": "replace", "path": "/spec/limits/0/max", "value": {"cpu": "1"}}]"#;
    let range = ["patch", "limitrange", "accelerators", "--namespace=team-a", "--type=json", "-p"];
    api.kubectl(&[&range[..], &[limits, "--field-manager=somebody"]].concat());
    let (code, applied, errors) = apply(&[]);
    assert_eq!((code, applied.lines().count()), (Some(1), 11), "{applied}{errors}");
    let named = "error: cannot apply limitrange/accelerators in team-a\n";
    assert!(errors.contains(named) && errors.contains("somebody"), "{errors}");
    assert!(errors.contains("--force-conflicts"), "{errors}");
    let (code, applied, errors) = apply(&["--force-conflicts"]);
    assert_eq!(code, Some(0), "{applied}{errors}");
    assert!(applied.contains("limitrange/accelerators in team-a configured\n"), "{applied}");
    let label =
        api.kubectl(&["get", "priorityclass", "high", "-o=jsonpath={.metadata.labels.team}"]);
    assert_eq!(label, "a");
}

#[test]
fn p3_quotas_are_accepted_and_give_no_container_a_device_by_default() {
    let api = Api::fresh();
    let site = Site::new(&api);
    let directory = site.written("quotas", "quotas", &QUEUE_FLAGS);
    let accepted = site.apply(&directory, &["--dry-run=server"]);
    // Two classes, and in each namespace four quotas and a limit range.
    assert_eq!(accepted.lines().count(), 12, "{accepted}");
    site.apply(&directory, &[]);
    let first = site.versions(&directory);
    site.apply(&directory, &[]);
    assert_eq!(site.versions(&directory), first);

    let pod = |limits: &Value| {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "team-a"},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "one", "image": "test.invalid/none:1", "resources": {"limits": limits}}],
            },
        });
        let file = site.directory.path().join("pod.json");
        fs::write(&file, pod.to_string()).unwrap();
        api.try_kubectl(&["create", "--dry-run=server", "-o=json", "-f", file.to_str().unwrap()])
    };
    api.kubectl(&["create", "serviceaccount", "default", "--namespace=team-a"]);
    let usual = pod(&json!({}));
    assert!(usual.status.success(), "{}", text(&usual.stderr));
    let usual: Value = serde_json::from_slice(&usual.stdout).unwrap();
    let limits = usual["spec"]["containers"][0]["resources"]["limits"].as_object().unwrap();
    assert!(!limits.is_empty() && limits.values().all(|count| count == "0"), "{limits:?}");
    assert!(pod(&json!({GPU: "8"})).status.success());
    let refused = pod(&json!({GPU: "9"}));
    assert!(text(&refused.stderr).contains("maximum nvidia.com/gpu usage per Container is 8"));
}
