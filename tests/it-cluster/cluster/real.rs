//! Life cycle in a real cluster with our images and chart, following the documentation: installation, layouts,
//! draining, upgrade, downgrade and removal without leftovers.

mod demand;
mod documents;
mod drain;
mod service;
mod sharing;
mod site;
mod try_commands;

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::nodes::Nodes;
use crate::fleet_api::Answer;
use site::{A100, ACCOUNT, H100, NAMESPACE, NEXT, Site, VERSION, figure, values_with_layouts};

const HALVES: [&str; 2] = ["3g.40gb"; 2];
const SMALL: [&str; 7] = ["1g.10gb"; 7];

/// One test, because each step continues from the previous one and there is one cluster.
#[tokio::test]
async fn fleet_is_installed_partitioned_upgraded_and_uninstalled() {
    let _alone = Nodes::alone().await;
    let site = Site::new();
    site.reader.run_block("get-started/install.md", "install", A100);
    agents_label_their_nodes(&site);
    measure_time_to_labels(&site);
    only_readers_with_a_token_see_the_fleet(&site).await;
    site.reader.run_block("get-started/install.md", "partition", A100);
    label_changes_geometry(&site).await;
    thread::scope(|scope| {
        // Pods that start and end cause no writes either.
        let pods = scope.spawn(|| pods_are_placed_by_type(&site));
        nothing_is_written_when_nothing_changes(&site);
        pods.join().unwrap();
    });
    site.reader.set_values(&values_with_layouts(VERSION));
    site.reader.run_block("get-started/install.md", "drain", A100);
    drain::only_blockers_are_evicted(&site).await;
    upgrade_and_downgrade_change_nothing(&site);
    deleted_agent_leaves_no_partial_change(&site);
    uninstall_leaves_nothing(&site);
}

/// Our labels and annotations of a Node.
fn ours(node: &Value) -> BTreeMap<String, String> {
    let metadata = &node["metadata"];
    let maps = [&metadata["labels"], &metadata["annotations"]];
    let all = maps.into_iter().filter_map(Value::as_object).flatten();
    all.filter(|(key, _)| key.contains("octavo.dev"))
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

/// True if a Node reports this layout as applied.
fn is_applied(node: &Value, layout: &str) -> bool {
    let ours = ours(node);
    let status = ours.get("octavo.dev/status");
    let status: Option<Value> = status.map(|text| serde_json::from_str(text).unwrap());
    let state = ours.get("octavo.dev/layout-state").map(String::as_str);
    state == Some("applied") && status.is_some_and(|status| status["layout"] == layout)
}

fn agents_label_their_nodes(site: &Site) {
    for (node, of, count) in [(A100, "nvidia-a100-80gb", "2"), (H100, "nvidia-h100-80gb", "1")] {
        let node = site
            .node(node, |node| ours(node).get("octavo.dev/type").map(String::as_str) == Some(of));
        let ours = ours(&node);
        assert_eq!(ours["octavo.dev/count"], count, "{ours:?}");
        assert_eq!(ours[&format!("type.octavo.dev/{of}")], count, "{ours:?}");
        assert!(!ours.contains_key("octavo.dev/layout-state"), "{ours:?}");
    }
}

/// The chart's own test reads the API with a token. Without a token, or without a role, there is nothing to read.
async fn only_readers_with_a_token_see_the_fleet(site: &Site) {
    site.reader.run_block("get-started/install.md", "test", A100);
    let mut readers = site.readers();
    let both = |list: &Answer| list.json()["items"].as_array().is_some_and(|all| all.len() == 2);
    readers.until("/api/v1/nodes", both).await;
    let account = "octavo-agent";
    let other = site.api().kubectl(&["create", "token", account, "-n", NAMESPACE]);
    readers.headers = format!("Authorization: Bearer {}\r\n", other.trim());
    assert_eq!(readers.get("/api/v1/nodes").await.status, 403);
    readers.headers = String::new();
    for path in ["/", "/api/v1/nodes", "/metrics"] {
        assert_eq!(readers.get(path).await.status, 401, "{path}");
    }
}

/// Time from the scheduling of an agent's pod to its labels.
fn measure_time_to_labels(site: &Site) {
    let log = site.api().audit();
    for node in [A100, H100] {
        let pod = site.pod(node);
        let of = |event: &&Value, resource: &str, name: &str| {
            let object = &event["objectRef"];
            object["resource"] == resource && object["name"] == name
        };
        let bound = |event: &&Value| event["objectRef"]["subresource"] == "binding";
        let bound = log.iter().find(|event| of(event, "pods", &pod) && bound(event));
        let labeled =
            writes(&log, Timestamp::MIN).into_iter().find(|event| of(event, "nodes", node));
        let took = received(labeled.unwrap()).duration_since(received(bound.unwrap()));
        figure(&format!("{node}: from a pod that has a node to its labels: {took:#}"));
    }
}

async fn label_changes_geometry(site: &Site) {
    let api = site.api();
    assert!((0..2).all(|gpu| site.geometry(gpu) == HALVES));
    let readers = site.readers();
    let seen = readers.node(A100, |node| {
        node["layout"]["name"] == "halves" && node["layout"]["state"] == "applied"
    });
    let seen = seen.await;
    assert_eq!(seen["labels"]["octavo.dev/layout-state"], "applied");
    assert_eq!(seen["layout"]["devices"].as_array().unwrap().len(), 2);
    // The command line is part of the agent's image.
    let agent = format!("pod/{}", site.pod(A100));
    let inspected = api.kubectl(&["exec", "-n", NAMESPACE, &agent, "--", "octavo", "inspect"]);
    assert!(inspected.contains("GPU 0-1  nvidia-a100-80gb"), "{inspected}");

    let node = site.node(A100, |node| is_applied(node, "halves"));
    let status: Value = serde_json::from_str(&ours(&node)["octavo.dev/status"]).unwrap();
    assert_eq!(status["chosenBy"], "octavo.dev/layout", "{status}");
    assert_eq!(status["devices"][1]["geometry"], "3g.40gb,3g.40gb");
    site.until("the event LayoutApplied", || {
        let described = api.kubectl(&["describe", "node", A100]);
        described.contains("LayoutApplied")
    });
    // The other node has no desired layout.
    let nodes = readers.nodes().await;
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    assert_eq!(nodes[1]["layout"]["name"], Value::Null, "{nodes:?}");
}

/// Write requests of the agents that the server received since `since`.
fn writes(log: &[Value], since: Timestamp) -> Vec<&Value> {
    let of_agents = log.iter().filter(|event| {
        let verb = event["verb"].as_str().unwrap();
        event["user"]["username"] == ACCOUNT && !["get", "list", "watch"].contains(&verb)
    });
    of_agents.filter(|event| received(event) >= since).collect()
}

/// When the server received a request, by its own clock.
fn received(event: &Value) -> Timestamp {
    let time = event["requestReceivedTimestamp"].as_str().unwrap();
    time.parse().unwrap()
}

/// Not the last line: it may be a watch, which was received long before it was logged.
fn last_received(log: &[Value]) -> Timestamp {
    log.iter().map(received).max().unwrap()
}

fn nothing_is_written_when_nothing_changes(site: &Site) {
    let api = site.api();
    let log = api.audit();
    let since = last_received(&log);
    for verb in ["patch", "create"] {
        let one = writes(&log, Timestamp::MIN).into_iter().find(|event| event["verb"] == verb);
        assert!(one.is_some(), "a {verb} is not seen in the log");
    }
    // Two minutes without writes, counted by the server.
    for _ in 0..2 {
        let nothing = ["wait", "--for=create", "configmap/never", "--timeout=61s"];
        assert!(!api.try_kubectl(&nothing).status.success());
    }
    let log = api.audit();
    let until = last_received(&log);
    let idle = until.duration_since(since).as_secs();
    assert!(idle >= 120, "only {idle} s");
    let others = log.iter().filter(|event| received(event) >= since).count();
    let agents = writes(&log, since);
    assert!(agents.is_empty(), "{agents:#?}");
    figure(&format!("idle for {idle} s: {others} requests, no write of an agent"));
    // A write made now is detected.
    let began = Instant::now();
    api.kubectl(&["label", "node", H100, "octavo.dev/layout=small"]);
    site.node(H100, |node| is_applied(node, "small"));
    figure(&format!("{H100}: from the label to applied: {:?}", began.elapsed()));
    assert!(!writes(&api.audit(), until).is_empty());
}

/// A pod that selects nodes by labels and runs when it has one.
fn pod(namespace: &str, name: &str, how: &Value) -> String {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "one", "image": "test.invalid/pause:1", "imagePullPolicy": "Never"}],
    });
    let how = how.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(how);
    let metadata = json!({"name": name, "namespace": namespace, "labels": {"either": name.starts_with("either").to_string()}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()
}

/// Node affinity that matches any of these expressions.
fn any(expressions: &[Value]) -> Value {
    let terms = expressions.iter().map(|expression| json!({"matchExpressions": [expression]}));
    let terms: Vec<Value> = terms.collect();
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn pods_are_placed_by_type(site: &Site) {
    let api = site.api();
    let namespace = api.namespace();
    api.await_account(&namespace);
    let has =
        |of: &str| json!({"key": format!("type.octavo.dev/nvidia-{of}"), "operator": "Exists"});
    let is_in =
        |types: [&str; 2]| json!({"key": "octavo.dev/type", "operator": "In", "values": types});
    let a100 = json!({"nodeSelector": {"octavo.dev/type": "nvidia-a100-80gb"}});
    let h100 = json!({"nodeSelector": {"octavo.dev/type": "nvidia-h100-80gb"}});
    let exists = json!({"affinity": any(&[has("a100-80gb"), has("l40s-48gb")])});
    let either_in = json!({"affinity": any(&[is_in(["nvidia-h100-80gb", "nvidia-l40s-48gb"])])});
    let laid_out = json!({"nodeSelector": {"octavo.dev/layout-state": "applied"}});
    let nowhere = json!({"nodeSelector": {"octavo.dev/type": "nvidia-l40s-48gb"}});
    // Two pods that accept either type and avoid each other, so both types are used.
    let mut both = any(&[has("a100-80gb"), has("h100-80gb")]);
    both["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"either": "true"}}},
    ]});
    let both = json!({"affinity": both});
    let pods = [
        ("a100", &a100),
        ("h100", &h100),
        ("one-of-terms", &exists),
        ("one-of-values", &either_in),
        ("laid-out", &laid_out),
        ("either-1", &both),
        ("either-2", &both),
        ("nowhere", &nowhere),
    ];
    let all = pods.map(|(name, how)| pod(&namespace, name, how));
    api.apply(&all.join("\n---\n"));
    let on = |name: &str| {
        let ready = ["wait", "--for=condition=Ready", "--timeout=180s"];
        let pod = ["-n", &namespace, "pod", name];
        api.kubectl(&[&ready[..], &pod].concat());
        site.get(&pod)["spec"]["nodeName"].as_str().unwrap().to_owned()
    };
    for (name, node) in [
        ("a100", A100),
        ("h100", H100),
        ("one-of-terms", A100),
        ("one-of-values", H100),
        ("laid-out", A100),
    ] {
        assert_eq!(on(name), node, "{name}");
    }
    assert_ne!(on("either-1"), on("either-2"));
    let left = ["wait", "--for=condition=PodScheduled=false", "--timeout=180s"];
    let pod = ["-n", &namespace, "pod", "nowhere"];
    api.kubectl(&[&left[..], &pod].concat());
    let pod = site.get(&pod);
    assert_eq!(pod["status"]["phase"], "Pending");
    let reason = pod["status"]["conditions"][0]["message"].as_str().unwrap();
    let expected = "2 node(s) didn't match Pod's node affinity/selector";
    assert!(reason.contains(expected), "{reason}");
    api.kubectl(&["delete", "namespace", &namespace, "--wait=false"]);
}

fn deleted_agent_leaves_no_partial_change(site: &Site) {
    let api = site.api();
    let pod = site.pod(A100);
    // About a second per instance, so that the pod can be deleted during the change.
    site.machine.faults("[{call: nvmlDeviceCreateGpuInstance*, slow_factor: 20}]");
    let change = ["label", "node", A100, "--overwrite"];
    api.kubectl(&[&change[..], &["octavo.dev/layout=small"]].concat());
    site.until("half of the partitions", || {
        (0..2).any(|gpu| (1..7).contains(&site.geometry(gpu).len()) && site.geometry(gpu) != HALVES)
    });
    let began = Instant::now();
    // Otherwise the next pod would continue before the state is checked.
    api.kubectl(&["label", "node", A100, "nvidia.com/gpu.present-"]);
    let it = ["-n", NAMESPACE, "pod", &pod];
    api.kubectl(&[&["delete", "--wait=false"], &it[..]].concat());
    // It exits by itself before its grace period ends.
    let ended = "--for=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=0";
    api.kubectl(&[&["wait", ended, "--timeout=120s"], &it[..]].concat());
    let left = [site.geometry(0), site.geometry(1)];
    figure(&format!("deleted within an apply: gone after {:?}, {left:?}", began.elapsed()));
    for geometry in &left {
        assert!(*geometry == HALVES || *geometry == SMALL, "{left:?}");
    }
    assert!(!site.is_under_way());

    site.machine.faults("[]");
    api.kubectl(&["label", "node", A100, "nvidia.com/gpu.present=true"]);
    site.node(A100, |node| is_applied(node, "small"));
    assert_eq!([site.geometry(0), site.geometry(1)], [SMALL, SMALL]);
    site.rolled_out("daemonset/octavo-agent");
}

/// UUIDs of the partitions on node-1: recreated ones would differ.
fn partitions(site: &Site) -> Vec<String> {
    let world = site.machine.world();
    let instances = world.gpus.iter().flat_map(|gpu| &gpu.mig).flat_map(|mig| &mig.instances);
    let all = instances.flat_map(|instance| &instance.compute);
    all.map(|one| one.uuid.clone()).collect()
}

/// The images of running agents and aggregator.
fn running(site: &Site) -> Vec<String> {
    let ours = "--selector=app.kubernetes.io/part-of=octavo";
    let pods = site.get(&["pods", "-n", NAMESPACE, ours]);
    let pods = pods["items"].as_array().unwrap().iter();
    let mut images: Vec<String> = pods
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned())
        .collect();
    images.sort();
    images
}

fn upgrade_and_downgrade_change_nothing(site: &Site) {
    let of = |version: &str| {
        ["agent", "agent", "aggregator"].map(|image| format!("octavo/{image}:{version}"))
    };
    assert_eq!(running(site), of(VERSION));
    let since = last_received(&site.api().audit());
    let before = (partitions(site), [A100, H100].map(|node| ours(&site.get(&["node", node]))));
    assert_eq!(before.0.len(), 4);
    site.reader.set_values(&values_with_layouts(NEXT));
    site.reader.run_block("operations/upgrade.md", "upgrade", A100);
    assert_eq!(running(site), of(NEXT));
    site.reader.run_block("operations/upgrade.md", "rollback", A100);
    assert_eq!(running(site), of(VERSION));
    site.reader.set_values(&values_with_layouts(VERSION));
    let after = (partitions(site), [A100, H100].map(|node| ours(&site.get(&["node", node]))));
    assert_eq!(after, before);
    // Nothing was removed and restored meanwhile either.
    let log = site.api().audit();
    let nodes = writes(&log, since).into_iter();
    let nodes: Vec<&Value> =
        nodes.filter(|event| event["objectRef"]["resource"] == "nodes").collect();
    assert!(nodes.is_empty(), "{nodes:#?}");
}

fn uninstall_leaves_nothing(site: &Site) {
    let api = site.api();
    site.reader.run_block("operations/upgrade.md", "uninstall", A100);
    for node in [A100, H100] {
        // A user sets and removes the desired layout of a node.
        api.kubectl(&["label", "node", node, "octavo.dev/layout-"]);
        // The field managers are removed as well.
        let metadata = site.get(&["node", node])["metadata"].to_string();
        assert!(!metadata.contains("octavo"), "{metadata}");
    }
    site.is_restored();
    let kinds = "namespaces,clusterroles,clusterrolebindings,roles,rolebindings,priorityclasses,\
        validatingadmissionpolicies,validatingadmissionpolicybindings,daemonsets,deployments,services";
    let left = api.kubectl(&["get", "-A", "-o", "name", kinds]);
    assert!(left.contains("clusterrole"), "{left}");
    assert!(!left.contains("octavo"), "{left}");
}
