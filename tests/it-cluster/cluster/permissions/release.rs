//! A release with another name and namespace, installed by helm: its policies apply to its own account.

use std::fs;

use serde_json::{Value, json};

use super::cluster::Verdict::{Allowed, DeniedByPolicy};
use super::cluster::{ApiRequest, PermissionCluster, event, node};
use super::rows::{OTHER, OWN, labels};
use crate::manifests::chart::{helm_output, path};
use crate::time_limits::Finish;

const NAMESPACE: &str = "accelerators";
const ACCOUNT: &str = "fleet-octavo-agent";

/// Output of helm for the release.
fn helm(cluster: &PermissionCluster, verb: &str, more: &[&str]) -> String {
    let kubeconfig = cluster.kubeconfig();
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let release = [verb, "fleet", "--namespace", NAMESPACE];
    helm_output(&[&release[..], &kubeconfig, more].concat())
}

/// Certificate with key, and its CA.
fn certificate(cluster: &PermissionCluster) -> (Value, Value) {
    let data = |what: &str| {
        let arguments = ["get", what, "--namespace", NAMESPACE, "--output=json"];
        let object: Value = serde_json::from_str(&cluster.kubectl(&arguments)).unwrap();
        object["data"].clone()
    };
    (data("secret/fleet-octavo-aggregator-tls"), data("configmap/fleet-octavo-aggregator-ca"))
}

/// Creates a pod of the release's `DaemonSet` on a node and returns its token.
fn agent_on(cluster: &PermissionCluster, node: &str) -> String {
    let of = format!("daemonset/{ACCOUNT}");
    let arguments = ["get", &of, "--namespace", NAMESPACE, "--output=json"];
    let owner: Value = serde_json::from_str(&cluster.kubectl(&arguments)).unwrap();
    let mut spec = owner["spec"]["template"]["spec"].clone();
    assert_eq!(spec["serviceAccountName"], ACCOUNT);
    spec["nodeName"] = json!(node);
    cluster.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": node, "namespace": NAMESPACE},
    }));
    cluster.token_in(NAMESPACE, ACCOUNT, node)
}

#[tokio::test]
async fn policies_of_renamed_release_restrict_its_own_agents() {
    let cluster = PermissionCluster::bare();
    let admin = cluster.admin();
    cluster.runtime_class();
    for name in ["node-a", "node-b"] {
        let request = ApiRequest::post("/api/v1/nodes", node(name));
        admin.expect(name, &request, Allowed).await;
    }
    let chart = path();
    let chart = chart.to_str().unwrap();
    let reported = helm(&cluster, "install", &[chart, "--create-namespace"]);
    assert!(
        reported.contains("rollout status daemonset --selector=app.kubernetes.io/instance=fleet"),
        "{reported}"
    );
    let standard = "pod-security.kubernetes.io/enforce=restricted";
    assert!(reported.contains(standard), "{reported}");
    let agent = cluster.bearer(&agent_on(&cluster, "node-a")).await;
    let count = json!({"octavo.dev/count": "8"});
    let other = DeniedByPolicy("the agent on node node-a is not allowed to change node node-b");
    agent.expect_eventually(&labels(OTHER, &count), other).await;
    let others = event("default", "node-b");
    agent.expect_eventually(&others, DeniedByPolicy("only on its own node")).await;
    agent.expect("its own node", &labels(OWN, &count), Allowed).await;
    let foreign = labels(OWN, &json!({"person": "2"}));
    let refused = DeniedByPolicy("not allowed to make this change to these labels");
    agent.expect("a user's label", &foreign, refused).await;
    agent.expect("an event", &event("default", "node-a"), Allowed).await;

    certificate_is_reused_until_names_change(&cluster, chart);
    release_leaves_nothing_behind(&cluster);
}

fn certificate_is_reused_until_names_change(cluster: &PermissionCluster, chart: &str) {
    let first = certificate(cluster);
    let for_ = |names: &str| format!("aggregator.tls.names={names}");
    helm(cluster, "upgrade", &[chart, "--set=tier=applier"]);
    assert_eq!(certificate(cluster), first, "an upgrade creates a new certificate");
    let names = for_("{octavo.example.com}");
    helm(cluster, "upgrade", &[chart, "--set", &names]);
    let second = certificate(cluster);
    assert_ne!(second.0, first.0);
    assert_ne!(second.1, first.1);
    helm(cluster, "rollback", &["1"]);
    // Any pair is fine as long as key and CA match.
    let directory = tempfile::tempdir().unwrap();
    let (pair, trusted) = certificate(cluster);
    let certificate = pair["tls.crt"].as_str().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("tls.b64", certificate);
    write("ca.crt", trusted["ca.crt"].as_str().unwrap());
    let verify = "base64 -d tls.b64 > tls.crt && openssl verify -CAfile ca.crt -verify_hostname fleet-octavo-aggregator.accelerators.svc tls.crt";
    let verified = std::process::Command::new("sh")
        .args(["-c", verify])
        .current_dir(directory.path())
        .finish();
    assert!(verified.status.success(), "{verified:?}");
}

fn release_leaves_nothing_behind(cluster: &PermissionCluster) {
    helm(cluster, "uninstall", &[]);
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,secrets,configmaps,services,deployments,daemonsets,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let arguments = ["get", kinds, "--all-namespaces", "--output=name"];
    let left = cluster.kubectl(&arguments);
    let left: Vec<&str> = left.lines().filter(|name| name.contains("fleet")).collect();
    assert_eq!(left, Vec::<&str>::new());
}
