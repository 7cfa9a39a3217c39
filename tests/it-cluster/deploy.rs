//! A real API server accepts the manifests in `deploy`, and kubectl renders them.

mod documents;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cluster::Api;
use crate::manifests::list::{self, List};
use crate::manifests::privileges::objects;
use crate::manifests::{chart, compare, deploy, names};

/// Every kustomization below `deploy`.
fn kustomizations(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            kustomizations(&path, found);
        } else if path.ends_with("kustomization.yaml") {
            let name = directory.strip_prefix(deploy()).unwrap();
            found.insert(name.to_str().unwrap().to_owned());
        }
    }
}

fn path(kustomization: &str) -> String {
    deploy().join(kustomization).to_str().unwrap().to_owned()
}

#[test]
fn manifests_request_exactly_the_listed_privileges() {
    let api = Api::shared();
    let list = List::read();
    let mut found = BTreeSet::new();
    kustomizations(&deploy(), &mut found);
    assert_eq!(found, names(list::FOLDERS), "each kustomization has its list");
    compare(&list, list::FOLDERS, |requested| api.kubectl(&["kustomize", &path(requested.name)]));
}

#[test]
fn openshift_overlay_lets_pods_reach_dns() {
    let rendered = Api::shared().kubectl(&["kustomize", &path("overlays/openshift")]);
    let mut policies = objects(&rendered);
    policies.retain(|one| one["kind"] == "NetworkPolicy");
    assert_eq!(policies.len(), 2);
    for policy in policies {
        let ports = &policy["spec"]["egress"][0]["ports"];
        for protocol in ["UDP", "TCP"] {
            for port in [53, 5353] {
                let port = json!({"port": port, "protocol": protocol});
                assert!(ports.as_array().unwrap().contains(&port), "{ports}");
            }
        }
    }
}

/// Definitions of foreign kinds that the chart can render.
fn definitions() -> PathBuf {
    chart::tools().join("crds")
}

/// Applies a kustomization without warnings and returns the result for each object.
fn apply(api: &Api, kustomization: &str) -> String {
    let output = api.try_kubectl(&["apply", "-k", &path(kustomization)]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{kustomization}: {errors}");
    assert_eq!(errors, "", "{kustomization}: a warning");
    String::from_utf8(output.stdout).unwrap()
}

/// Creates the pod of a controller's template.
fn pod(api: &Api, of: &str, namespace: &str) -> Result<(), String> {
    let owner = api.kubectl(&["get", of, "--namespace=octavo-system", "--output=json"]);
    let owner: Value = serde_json::from_str(&owner).unwrap();
    let mut spec = owner["spec"]["template"]["spec"].clone();
    if namespace != "octavo-system" {
        spec["serviceAccountName"] = json!("default");
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"generateName": "octavo-", "namespace": namespace},
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pod.json");
    fs::write(&file, pod.to_string()).unwrap();
    let output = api.try_kubectl(&["create", "-f", file.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        assert_eq!(errors, "", "{of}: a warning");
        return Ok(());
    }
    Err(errors)
}

#[test]
fn api_server_accepts_manifests_without_warning_in_restricted_namespaces() {
    let api = Api::fresh();
    api.apply("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}");
    let agent = "daemonset/octavo-agent";
    for tier in ["tiers/reporter", "tiers/reader", "tiers/applier"] {
        apply(&api, tier);
        // A second apply changes nothing, or tools that reapply manifests would write continuously.
        for line in apply(&api, tier).lines() {
            assert!(line.ends_with(" unchanged"), "{tier}: {line}");
        }
        assert_eq!(pod(&api, agent, "octavo-system"), Ok(()), "{tier}");
        assert_eq!(pod(&api, "deployment/octavo-aggregator", "octavo-system"), Ok(()), "{tier}");
    }
    for option in ["options/drain", "options/nodefeature"] {
        apply(&api, option);
    }
    whatever_is_chosen_is_taken(&api);
    // The applier tier is effectively root and is rejected where the restricted standard is enforced, which shows that
    // the server enforces it.
    api.apply(
        "{apiVersion: v1, kind: Namespace, metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}}",
    );
    api.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: strict}}",
    );
    let refused = pod(&api, agent, "strict").unwrap_err();
    for violation in ["violates PodSecurity \"restricted", "SYS_ADMIN", "hostPath", "runAsUser=0"] {
        assert!(refused.contains(violation), "{violation}: {refused}");
    }
}

/// With the definitions of foreign kinds.
fn whatever_is_chosen_is_taken(api: &Api) {
    let definitions = definitions();
    api.kubectl(&["create", "-f", definitions.to_str().unwrap()]);
    api.await_definitions();
    // The namespace of NVIDIA's device plugin, which exists before.
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: gpu-operator}}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rendered.yaml");
    for name in chart::all_values() {
        fs::write(&file, chart::render(&chart::values(&name))).unwrap();
        let file = file.to_str().unwrap();
        let taken = ["apply", "--dry-run=server", "-f", file];
        let output = api.try_kubectl(&taken);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && errors.is_empty(), "{name}: {errors}");
    }
}
