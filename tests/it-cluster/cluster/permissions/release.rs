//! A release of another name in another namespace, installed by helm: its policies are about its own account.

use std::fs;

use serde_json::{Value, json};

use super::place::Verdict::{Done, Refused};
use super::place::{Ask, Place, event, node};
use super::rows::{OTHER, OWN, labels};
use crate::manifests::chart::{helm_says, path};
use crate::time_limits::Finish;

const NAMESPACE: &str = "accelerators";
const ACCOUNT: &str = "fleet-octavo-agent";

/// What helm says of the release.
fn helm(place: &Place, verb: &str, more: &[&str]) -> String {
    let kubeconfig = place.kubeconfig();
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let release = [verb, "fleet", "--namespace", NAMESPACE];
    helm_says(&[&release[..], &kubeconfig, more].concat())
}

/// Certificate and key, and who vouches for them.
fn certificate(place: &Place) -> (Value, Value) {
    let data = |what: &str| {
        let arguments = ["get", what, "--namespace", NAMESPACE, "--output=json"];
        let object: Value = serde_json::from_str(&place.kubectl(&arguments)).unwrap();
        object["data"].clone()
    };
    (data("secret/fleet-octavo-aggregator-tls"), data("configmap/fleet-octavo-aggregator-ca"))
}

/// A pod of the release's agents on a node, as the `DaemonSet` would make it; its token.
fn agent_on(place: &Place, node: &str) -> String {
    let of = format!("daemonset/{ACCOUNT}");
    let arguments = ["get", &of, "--namespace", NAMESPACE, "--output=json"];
    let owner: Value = serde_json::from_str(&place.kubectl(&arguments)).unwrap();
    let mut spec = owner["spec"]["template"]["spec"].clone();
    assert_eq!(spec["serviceAccountName"], ACCOUNT);
    spec["nodeName"] = json!(node);
    place.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": node, "namespace": NAMESPACE},
    }));
    place.token_in(NAMESPACE, ACCOUNT, node)
}

#[tokio::test]
async fn policies_of_renamed_release_restrict_its_own_agents() {
    let place = Place::bare();
    let admin = place.admin();
    place.runtime_class();
    for name in ["node-a", "node-b"] {
        let ask = Ask::post("/api/v1/nodes", node(name));
        admin.expects(name, &ask, Done).await;
    }
    let chart = path();
    let chart = chart.to_str().unwrap();
    let reported = helm(&place, "install", &[chart, "--create-namespace"]);
    assert!(
        reported.contains("rollout status daemonset --selector=app.kubernetes.io/instance=fleet"),
        "{reported}"
    );
    let standard = "pod-security.kubernetes.io/enforce=restricted";
    assert!(reported.contains(standard), "{reported}");
    let agent = place.bearer(&agent_on(&place, "node-a")).await;
    let count = json!({"octavo.dev/count": "8"});
    let other = Refused("the agent on node node-a is not allowed to change node node-b");
    agent.expects_soon(&labels(OTHER, &count), other).await;
    let others = event("default", "node-b");
    agent.expects_soon(&others, Refused("only on its own node")).await;
    agent.expects("its own node", &labels(OWN, &count), Done).await;
    let foreign = labels(OWN, &json!({"person": "2"}));
    let refused = Refused("not allowed to make this change to these labels");
    agent.expects("a person's label", &foreign, refused).await;
    agent.expects("an event", &event("default", "node-a"), Done).await;

    a_certificate_is_reused_until_its_names_change(&place, chart);
    nothing_of_a_release_is_left(&place);
}

fn a_certificate_is_reused_until_its_names_change(place: &Place, chart: &str) {
    let first = certificate(place);
    let for_ = |names: &str| format!("aggregator.tls.names={names}");
    helm(place, "upgrade", &[chart, "--set=tier=applier"]);
    assert_eq!(certificate(place), first, "an upgrade makes none");
    let names = for_("{octavo.example.com}");
    helm(place, "upgrade", &[chart, "--set", &names]);
    let second = certificate(place);
    assert_ne!(second.0, first.0);
    assert_ne!(second.1, first.1);
    helm(place, "rollback", &["1"]);
    // Which one it is then does not matter; that key and trust go together does.
    let directory = tempfile::tempdir().unwrap();
    let (pair, trusted) = certificate(place);
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

fn nothing_of_a_release_is_left(place: &Place) {
    helm(place, "uninstall", &[]);
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,secrets,configmaps,services,deployments,daemonsets,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let arguments = ["get", kinds, "--all-namespaces", "--output=name"];
    let left = place.kubectl(&arguments);
    let left: Vec<&str> = left.lines().filter(|name| name.contains("fleet")).collect();
    assert_eq!(left, Vec::<&str>::new());
}
