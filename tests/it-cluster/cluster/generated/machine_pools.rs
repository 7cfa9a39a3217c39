//! Node pools of Karpenter, machine sets of OpenShift, and the application of Argo CD.

use super::*;

/// Karpenter's own definitions; the files name their source.
const KARPENTER: [&str; 2] = [
    include_str!("../../../fixtures/crds/karpenter-nodepools.yaml"),
    include_str!("../../../fixtures/crds/karpenter-nodeoverlays.yaml"),
];
/// Definitions of OpenShift and Argo CD; the files name their source.
const OPENSHIFT: [&str; 4] = [
    include_str!("../../../fixtures/crds/openshift-machinesets.yaml"),
    include_str!("../../../fixtures/crds/openshift-machineautoscalers.yaml"),
    include_str!("../../../fixtures/crds/openshift-clusterautoscalers.yaml"),
    include_str!("../../../fixtures/crds/argocd-applications.yaml"),
];
const MACHINE_SET: &str = "machinesets.machine.openshift.io";
const MACHINES: &str = "openshift-machine-api";

#[test]
fn f1_karpenter_manifests_are_accepted_and_applied_once() {
    let api = Api::fresh();
    define(&api, &KARPENTER);
    let site = Site::new(&api);
    let directory = site.written("karpenter", "karpenter", &["--node-class=gpu"]);
    let accepted = site.apply(&directory, &["--dry-run=server"]);
    // Six node pools, and overlays for both layouts with partitions.
    assert_eq!(accepted.lines().count(), 8, "{accepted}");
    site.apply(&directory, &[]);
    let first = site.versions(&directory);
    site.apply(&directory, &[]);
    assert_eq!(site.versions(&directory), first);
    let pool = api.kubectl(&["get", "nodepool", "nvidia-h100-80gb", "-o", "json"]);
    let pool: Value = serde_json::from_str(&pool).unwrap();
    // The definition drops unknown fields, and adds its defaults.
    assert_eq!(pool["spec"]["template"]["spec"]["nodeClassRef"]["name"], "gpu");
    assert_eq!(pool["spec"]["disruption"]["consolidationPolicy"], "WhenEmpty");
    assert_eq!(pool["spec"]["limits"]["nvidia.com/gpu"], "16");
}

#[test]
fn f1_openshift_manifests_are_accepted_and_an_application_of_argo_cd_refers_to_them() {
    let api = Api::fresh();
    define(&api, &OPENSHIFT);
    let site = Site::new(&api);
    for namespace in [MACHINES, "argocd"] {
        api.kubectl(&["create", "namespace", namespace]);
    }
    let provider = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "AWSMachineProviderConfig",
        "ami": {"id": "ami-1"}, "instanceType": "m6i.xlarge", "subnet": {"id": "subnet-1"},
        "placement": {"availabilityZone": "zone-a", "region": "zone"},
    });
    let own = json!({"machine.openshift.io/cluster-api-machineset": "worker-a"});
    let worker = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
        "metadata": {"name": "worker-a", "namespace": MACHINES},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": own}, "spec": {"providerSpec": {"value": provider}}},
        },
    });
    api.apply(&worker.to_string());
    let existing = api.kubectl(&["get", MACHINE_SET, "--namespace", MACHINES, "-o", "yaml"]);
    let file = site.directory.path().join("machinesets.yaml");
    fs::write(&file, existing).unwrap();

    let flag = format!("--machine-sets={}", file.display());
    let directory = site.written("openshift", "openshift", &[&flag]);
    let accepted = site.apply(&directory, &["--dry-run=server"]);
    // Six machine sets with their autoscalers, and the autoscaler of the cluster.
    assert_eq!(accepted.lines().count(), 13, "{accepted}");
    site.apply(&directory, &[]);
    // The API server writes machine sets again without a change, so that their versions differ.
    let generations = || {
        let list = api.kubectl(&["get", "-f", &directory, "-o", "json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|one| one["metadata"]["generation"].clone()).collect::<Vec<_>>()
    };
    let first = generations();
    site.apply(&directory, &[]);
    assert_eq!(generations(), first);
    let set =
        ["get", MACHINE_SET, "--namespace", MACHINES, "nvidia-h100-80gb-zone-a", "-o", "json"];
    let set: Value = serde_json::from_str(&api.kubectl(&set)).unwrap();
    let created = &set["spec"]["template"]["spec"]["providerSpec"]["value"];
    let mut expected = provider;
    expected["instanceType"] = json!("p5.48xlarge");
    assert_eq!(*created, expected);

    let target = site.directory.path().join("argocd");
    let target = target.to_str().unwrap();
    let flags = ["--repo=https://git.example/fleet", "--path=deploy", "--output-dir", target];
    let written = site.generate("argocd", &flags);
    assert!(written.status.success(), "{}", text(&written.stderr));
    site.apply(target, &[]);
    let application = ["get", "application", "machine-pools", "--namespace=argocd", "-o", "json"];
    let application: Value = serde_json::from_str(&api.kubectl(&application)).unwrap();
    assert_eq!(application["spec"]["ignoreDifferences"][0]["jsonPointers"][0], "/spec/replicas");
    assert_eq!(application["spec"]["syncPolicy"]["automated"]["selfHeal"], true);
}
