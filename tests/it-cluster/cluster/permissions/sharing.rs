//! What agents and aggregator may do in addition where devices are shared: the one `ConfigMap` of NVIDIA's plugin, one more label,
//! and events about pods.

use std::fs;

use serde_json::{Value, json};

use super::place::Verdict::{self, Done, NoRight, Refused};
use super::place::{Ask, Place, Who};
use super::rows::{OWN, labels};
use crate::manifests::chart::{helm_says, path};

const CONFIG_MAP: &str = "/api/v1/namespaces/gpu-operator/configmaps/plugin-config";
const LABEL: &str = "nvidia.com/device-plugin.config";

/// The tier `applier` with these options, as helm would have it.
pub(super) fn upgrade(place: &Place) {
    place.create(
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}),
    );
    let chart = path();
    let rendered = helm_says(&[
        "template",
        "octavo",
        chart.to_str().unwrap(),
        "--namespace=octavo-system",
        "--set=tier=applier,handOff.namespace=gpu-operator,handOff.configMap=plugin-config",
        "--set=agent.usage.podEvents=true,aggregator.tls.secretName=ours",
    ]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rendered.yaml");
    fs::write(&file, rendered).unwrap();
    place.kubectl(&["apply", "-f", file.to_str().unwrap()]);
}

/// An event about a pod, said in the name of a node.
pub(super) fn pod_event(namespace: &str, reason: &str, from: &str) -> Ask {
    about(namespace, "Pod", reason, from)
}

fn about(namespace: &str, kind: &str, reason: &str, from: &str) -> Ask {
    let body = json!({
        "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": reason, "message": "a test",
        "metadata": {"generateName": "train.", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": "train", "namespace": namespace},
        "reportingComponent": "octavo.dev/agent", "reportingInstance": from,
    });
    Ask::post(&format!("/api/v1/namespaces/{namespace}/events"), body)
}

fn config_map(namespace: &str, name: &str) -> (String, Value) {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
        "data": {"octavo-small-00000000": "version: v1"},
    });
    let all = format!("/api/v1/namespaces/{namespace}/configmaps");
    (all, object)
}

async fn expect(who: &Who, rows: &[(&str, Ask, Verdict)]) {
    for (what, ask, verdict) in rows {
        who.expects(what, ask, *verdict).await;
    }
}

#[tokio::test]
async fn sharing_adds_access_to_one_config_map_one_label_and_three_events() {
    let place = Place::new().await;
    let agent = place.agent("agent-a").await;
    let over = pod_event("octavo-system", "MemoryOverShare", "node-a");
    let before = [("before", Ask::get(CONFIG_MAP), NoRight), ("before", over.clone(), NoRight)];
    expect(&agent, &before).await;
    upgrade(&place);
    place.start_pod("deployment/octavo-aggregator", "aggregator", Some("node-a"));
    let token = place.token("octavo-aggregator", "aggregator", &[]);
    let aggregator = place.bearer(&token).await;
    the_aggregator_writes_one_config_map(&aggregator).await;
    agents_read_it_and_what_runs_beside_it(&agent).await;
    the_label_is_ours_where_its_value_is(&place, &agent).await;
    events_about_pods_have_three_reasons(&agent, over).await;
}

async fn the_aggregator_writes_one_config_map(aggregator: &Who) {
    let (all, ours) = config_map("gpu-operator", "plugin-config");
    let (_, other) = config_map("gpu-operator", "other");
    let (elsewhere, there) = config_map("kube-system", "plugin-config");
    // It does not exist yet: a server-side apply also creates it, by its name.
    aggregator.expects_soon(&Ask::apply(CONFIG_MAP, ours.clone()), Done).await;
    let rows = [
        ("it is made", Ask::apply(CONFIG_MAP, ours.clone()), Done),
        ("it is written again", Ask::apply(CONFIG_MAP, ours.clone()), Done),
        ("it is read", Ask::get(CONFIG_MAP), Done),
        ("made without a name", Ask::post(&all, ours), NoRight),
        ("another", Ask::apply(&format!("{all}/other"), other), NoRight),
        ("elsewhere", Ask::apply(&format!("{elsewhere}/plugin-config"), there), NoRight),
        ("all are listed", Ask::get(&all), NoRight),
        ("it is deleted", Ask::delete(CONFIG_MAP), NoRight),
    ];
    expect(aggregator, &rows).await;
}

async fn agents_read_it_and_what_runs_beside_it(agent: &Who) {
    let own = "/api/v1/namespaces/gpu-operator";
    let sets = "/apis/apps/v1/namespaces";
    let (all, ours) = config_map("gpu-operator", "plugin-config");
    agent.expects_soon(&Ask::get(CONFIG_MAP), Done).await;
    let list = |what: &str| Ask::get(&format!("{own}/{what}"));
    let rows = [
        ("it is read", Ask::get(CONFIG_MAP), Done),
        ("it is written", Ask::apply(CONFIG_MAP, ours), NoRight),
        ("all are listed", Ask::get(&all), NoRight),
        ("another", list("configmaps/other"), NoRight),
        ("pods beside it", list("pods"), Done),
        ("one of them", list("pods/one"), NoRight),
        ("secrets beside it", list("secrets"), NoRight),
        ("daemonsets beside it", Ask::get(&format!("{sets}/gpu-operator/daemonsets")), Done),
        ("daemonsets elsewhere", Ask::get(&format!("{sets}/kube-system/daemonsets")), NoRight),
        ("all pods", Ask::get("/api/v1/pods"), NoRight),
    ];
    expect(agent, &rows).await;
}

async fn the_label_is_ours_where_its_value_is(place: &Place, agent: &Who) {
    let set = |value: Option<&str>| labels(OWN, &json!({LABEL: value}));
    let refused = Refused("labels: nvidia.com/device-plugin.config");
    let admin = place.admin();
    agent.expects("a person's goes", &set(None), refused).await;
    let ours = set(Some("octavo-a-1"));
    agent.expects("a person's is ours", &ours, refused).await;
    admin.expects("nobody's", &set(None), Done).await;
    agent.expects_soon(&set(Some("octavo-a-1")), Done).await;
    let rows = [
        ("another's value", set(Some("mine")), refused),
        ("ours", set(Some("octavo-a-1")), Done),
        ("the next of ours", set(Some("octavo-b-2")), Done),
        ("ours goes", set(None), Done),
    ];
    expect(agent, &rows).await;
}

async fn events_about_pods_have_three_reasons(agent: &Who, over: Ask) {
    agent.expects_soon(&over, Done).await;
    let refused = Refused("on pods only about their device memory usage");
    let exhausted = pod_event("default", "MemoryNearlyExhausted", "node-a");
    let within = pod_event("kube-system", "MemoryWithinShare", "node-a");
    let rows = [
        ("in any namespace", exhausted, Done),
        ("and in any other", within, Done),
        ("another reason", pod_event("default", "Killing", "node-a"), refused),
        ("in the name of another node", pod_event("default", "MemoryOverShare", "node-b"), refused),
        ("about something else", about("default", "Secret", "MemoryOverShare", "node-a"), refused),
    ];
    expect(agent, &rows).await;
}
