//! A snapshots cluster: its objects, their changes, and the reports while the server is unavailable.

use std::sync::Arc;

use octavo_fleet::cluster::{Amounts, Phase, PodKey, Readiness};
use octavo_kube::client::{Program, connect};
use octavo_kube::cluster::{ClusterWatcher, WatchedCluster};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Api;
use super::objects::TokenKubeconfig;
use crate::time_limits::TIME_LIMIT;

/// The snapshots state, once it satisfies `wanted`.
pub(super) async fn await_cluster(
    snapshots: &mut watch::Receiver<Arc<WatchedCluster>>,
    what: &str,
    wanted: impl Fn(&WatchedCluster) -> bool,
) -> Arc<WatchedCluster> {
    let found = timeout(TIME_LIMIT, snapshots.wait_for(|all| wanted(all))).await;
    let found = found.map(|found| Arc::clone(&found.unwrap()));
    found.unwrap_or_else(|_| panic!("{what}: {:#?}", snapshots.borrow().error))
}

fn key(namespace: &str, name: &str) -> PodKey {
    PodKey { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn pod(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "serviceAccountName": "runner", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "one", "image": "test.invalid/none:1", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// An account without permissions, and its kubeconfig.
fn runner(api: &Api, namespace: &str, node: &str) -> TokenKubeconfig {
    api.kubectl(&["create", "serviceaccount", "runner", "-n", namespace]);
    api.create(&pod(namespace, "one", &json!({"nodeName": node})));
    api.kubeconfig_with_token(&api.token(namespace, "runner", "one", &[]))
}

fn allow(api: &Api, namespace: &str) {
    let what = ["--verb=list,watch", "--resource=nodes,pods"];
    api.kubectl(&[&["create", "clusterrole", "follow"], &what[..]].concat());
    let whom = format!("--serviceaccount={namespace}:runner");
    let binding = ["create", "clusterrolebinding", "follow", &whom];
    api.kubectl(&[&binding[..], &["--clusterrole=follow"]].concat());
}

#[tokio::test]
async fn refused_or_broken_cluster_watches_are_reported_until_they_recover() {
    let mut api = Api::fresh();
    let node = api.node("followed");
    let namespace = api.namespace();
    let bearer = runner(&api, &namespace, node.name());
    let client = connect(Some(&bearer.path()), Program::Aggregator).await.unwrap();
    let watcher = ClusterWatcher::new(client);
    let mut snapshots = watcher.subscribe();
    tokio::spawn(watcher.run());

    let is_refused = |all: &WatchedCluster| {
        let reported = all.error.as_deref().unwrap_or_default();
        reported.contains("403 Forbidden")
            && reported.contains("nodes")
            && reported.contains("pods")
    };
    let refused =
        await_cluster(&mut snapshots, "an unauthorized client is rejected", is_refused).await;
    assert_eq!(refused.current_at, None);
    allow(&api, &namespace);
    let is_received = |all: &WatchedCluster| all.error.is_none() && all.current_at.is_some();
    let all =
        await_cluster(&mut snapshots, "an authorized client receives data", is_received).await;
    let one = &all.snapshot.pods()[&key(&namespace, "one")];
    assert_eq!((one.phase, one.holding_node()), (Phase::Bound, Some(node.name())));
    assert_eq!(one.requirements.amounts, Amounts::default().with("nvidia.com/gpu", 2));
    assert_eq!(all.snapshot.nodes[node.name()].readiness, Readiness::Ready);
    assert_eq!(all.snapshot.nodes[node.name()].allocatable.get("cpu"), 64_000);

    changes_are_observed(&api, &mut snapshots, (&namespace, node.name())).await;
    idle_watch_is_reported_as_alive(&mut snapshots).await;

    let before = Arc::clone(&snapshots.borrow());
    api.stop();
    let is_cut_off = |all: &WatchedCluster| all.error.is_some();
    let away = await_cluster(&mut snapshots, "the API server is unavailable", is_cut_off).await;
    assert!(away.error.as_ref().unwrap().contains("cannot watch "));
    assert_eq!(away.snapshot, before.snapshot, "the last snapshot is lost");
    api.start();
    let late = pod(&namespace, "late", &json!({}));
    api.create(&late);
    let is_back = |all: &WatchedCluster| {
        all.error.is_none() && all.snapshot.pods().contains_key(&key(&namespace, "late"))
    };
    let back = await_cluster(&mut snapshots, "it is back", is_back).await;
    assert!(back.current_at > before.current_at);
}

async fn changes_are_observed(
    api: &Api,
    snapshots: &mut watch::Receiver<Arc<WatchedCluster>>,
    (namespace, node): (&str, &str),
) {
    api.kubectl(&["label", "node", node, "pool=training"]);
    api.kubectl(&["taint", "node", node, "gpu=mig:NoSchedule"]);
    api.kubectl(&["cordon", node]);
    await_cluster(snapshots, "the node changes", |all| {
        let node = &all.snapshot.nodes[node];
        node.label("pool") == Some("training") && node.is_cordoned && node.taints.len() == 1
    })
    .await;
    api.create(&pod(namespace, "waits", &json!({"nodeSelector": {"pool": "training"}})));
    let gates = json!({"schedulingGates": [{"name": "test.invalid/quota"}]});
    api.create(&pod(namespace, "gated", &gates));
    let ends = json!({"nodeName": node, "activeDeadlineSeconds": 600});
    api.create(&pod(namespace, "ends", &ends));
    let all = await_cluster(snapshots, "pods come", |all| all.snapshot.pods().len() == 4).await;
    let of = |name| &all.snapshot.pods()[&key(namespace, name)];
    assert!(of("waits").is_pending() && of("waits").requirements.selector["pool"] == "training");
    assert_eq!((of("gated").phase, of("gated").until), (Phase::Gated, None));
    assert!(of("ends").until.unwrap() > 1_767_225_600, "{:?}", of("ends"));
    let done = json!({"status": {"phase": "Succeeded"}}).to_string();
    let patch = ["patch", "pod", "ends", "-n", namespace, "--type=merge"];
    api.kubectl(&[&patch[..], &["--subresource=status", "-p", &done]].concat());
    let now = ["-n", namespace, "--grace-period=0", "--force"];
    api.kubectl(&[&["delete", "pod", "waits"], &now[..]].concat());
    let other = api.node("other");
    let name = other.name().to_owned();
    let is_other = |all: &WatchedCluster| {
        all.snapshot.pods().len() == 2 && all.snapshot.nodes.contains_key(&name)
    };
    await_cluster(snapshots, "what ended or was deleted is gone", is_other).await;
    drop(other);
    let is_gone = |all: &WatchedCluster| !all.snapshot.nodes.contains_key(&name);
    await_cluster(snapshots, "a node is deleted", is_gone).await;
}

/// Nothing changes here: there is no controller and no kubelet.
async fn idle_watch_is_reported_as_alive(snapshots: &mut watch::Receiver<Arc<WatchedCluster>>) {
    let before = Arc::clone(&snapshots.borrow());
    let is_newer = |all: &WatchedCluster| all.current_at > before.current_at;
    let after = await_cluster(snapshots, "a quiet cluster is not an old one", is_newer).await;
    assert!(after.error.is_none() && after.snapshot == before.snapshot);
}
