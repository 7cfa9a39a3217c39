//! The agent and the aggregator in a real cluster, from the manifests that people apply: what they say, and what they leave behind.

mod drain;
mod site;

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};

use site::{A100, ACCOUNT, H100, NAMESPACE, Site, figure};

const HALVES: [&str; 2] = ["3g.40gb"; 2];
const SMALL: [&str; 7] = ["1g.10gb"; 7];

/// One story, for each part begins where the one before has ended, and there is one cluster.
#[tokio::test]
async fn from_a_label_to_a_partitioned_node_and_back_to_nothing() {
    let site = Site::new();
    agents_label_their_nodes(&site);
    a_label_leads_to_geometry(&site).await;
    thread::scope(|scope| {
        // Pods that come and go are no reason to write either.
        let pods = scope.spawn(|| pods_land_where_their_type_is(&site));
        nothing_is_written_when_nothing_changes(&site);
        pods.join().unwrap();
    });
    drain::what_is_in_the_way_goes_and_nothing_else(&site).await;
    a_deleted_agent_leaves_nothing_half_done(&site);
    cleanup_leaves_nothing_of_ours(&site);
}

/// What of a Node is ours: labels and annotations.
fn ours(node: &Value) -> BTreeMap<String, String> {
    let metadata = &node["metadata"];
    let maps = [&metadata["labels"], &metadata["annotations"]];
    let all = maps.into_iter().filter_map(Value::as_object).flatten();
    all.filter(|(key, _)| key.contains("octavo.dev"))
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

/// Whether a Node says that it has this layout.
fn is_applied(node: &Value, layout: &str) -> bool {
    let ours = ours(node);
    let status = ours.get("octavo.dev/status");
    let status: Option<Value> = status.map(|text| serde_json::from_str(text).unwrap());
    let state = ours.get("octavo.dev/layout-state").map(String::as_str);
    state == Some("applied") && status.is_some_and(|status| status["layout"] == layout)
}

fn agents_label_their_nodes(site: &Site) {
    for (node, of, count) in [
        (A100, "nvidia-a100-80gb", "2"),
        (H100, "nvidia-h100-80gb", "1"),
    ] {
        let node = site.node(node, |node| {
            ours(node).get("octavo.dev/type").map(String::as_str) == Some(of)
        });
        let ours = ours(&node);
        assert_eq!(ours["octavo.dev/count"], count, "{ours:?}");
        assert_eq!(ours[&format!("type.octavo.dev/{of}")], count, "{ours:?}");
        assert!(!ours.contains_key("octavo.dev/layout-state"), "{ours:?}");
    }
}

async fn a_label_leads_to_geometry(site: &Site) {
    let api = site.api();
    let began = Instant::now();
    api.kubectl(&["label", "node", A100, "octavo.dev/layout=halves"]);
    site.until("geometry", || {
        (0..2).all(|gpu| site.geometry(gpu) == HALVES)
    });
    let geometry = began.elapsed();
    let state = "--for=jsonpath={.metadata.labels.octavo\\.dev/layout-state}=applied";
    api.kubectl(&["wait", "node", A100, state, "--timeout=120s"]);
    let label = began.elapsed();
    let seen = site.readers.node(A100, |node| {
        node["layout"]["name"] == "halves" && node["layout"]["state"] == "applied"
    });
    let seen = seen.await;
    figure(&format!(
        "from the label to geometry: {geometry:?}, to the state label: {label:?}, to the aggregator: {:?}",
        began.elapsed()
    ));
    assert_eq!(seen["labels"]["octavo.dev/layout-state"], "applied");
    assert_eq!(seen["layout"]["devices"].as_array().unwrap().len(), 2);

    let node = site.node(A100, |node| is_applied(node, "halves"));
    let status: Value = serde_json::from_str(&ours(&node)["octavo.dev/status"]).unwrap();
    assert_eq!(status["chosenBy"], "octavo.dev/layout", "{status}");
    assert_eq!(status["devices"][1]["geometry"], "3g.40gb,3g.40gb");
    site.until("the event LayoutApplied", || {
        let described = api.kubectl(&["describe", "node", A100]);
        described.contains("LayoutApplied")
    });
    // The other node was not asked for anything.
    let nodes = site.readers.nodes().await;
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    assert_eq!(nodes[1]["layout"]["name"], Value::Null, "{nodes:?}");
}

/// Requests of the agents that would change something, of those that the server heard from `since` on.
fn writes(log: &[Value], since: Timestamp) -> Vec<&Value> {
    let of_agents = log.iter().filter(|event| {
        let verb = event["verb"].as_str().unwrap();
        event["user"]["username"] == ACCOUNT && !["get", "list", "watch"].contains(&verb)
    });
    of_agents.filter(|event| heard(event) >= since).collect()
}

/// When the server heard a request, by its own clock.
fn heard(event: &Value) -> Timestamp {
    let time = event["requestReceivedTimestamp"].as_str().unwrap();
    time.parse().unwrap()
}

/// Not of the last line: that may be of a watch, which was heard long before it was answered.
fn last_heard(log: &[Value]) -> Timestamp {
    log.iter().map(heard).max().unwrap()
}

fn nothing_is_written_when_nothing_changes(site: &Site) {
    let api = site.api();
    let log = api.audit();
    let since = last_heard(&log);
    for verb in ["patch", "create"] {
        let one = writes(&log, Timestamp::MIN)
            .into_iter()
            .find(|event| event["verb"] == verb);
        assert!(one.is_some(), "a {verb} is not seen in the log");
    }
    // Two minutes are what this is about. The server counts them.
    for _ in 0..2 {
        let nothing = ["wait", "--for=create", "configmap/never", "--timeout=61s"];
        assert!(!api.try_kubectl(&nothing).status.success());
    }
    let log = api.audit();
    let until = last_heard(&log);
    let idle = until.duration_since(since).as_secs();
    assert!(idle >= 120, "only {idle} s");
    let others = log.iter().filter(|event| heard(event) >= since).count();
    let agents = writes(&log, since);
    assert!(agents.is_empty(), "{agents:#?}");
    figure(&format!(
        "idle for {idle} s: {others} requests, no write of an agent"
    ));
    // And one that is made now would have been found.
    let began = Instant::now();
    api.kubectl(&["label", "node", H100, "octavo.dev/layout=small"]);
    site.node(H100, |node| is_applied(node, "small"));
    figure(&format!(
        "{H100}: from the label to applied: {:?}",
        began.elapsed()
    ));
    assert!(!writes(&api.audit(), until).is_empty());
}

/// A pod that asks for a node by labels, and runs when it has one.
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

/// Nodes for which one of these expressions is true.
fn any(expressions: &[Value]) -> Value {
    let terms = expressions
        .iter()
        .map(|expression| json!({"matchExpressions": [expression]}));
    let terms: Vec<Value> = terms.collect();
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn pods_land_where_their_type_is(site: &Site) {
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
    // Two that take either, and not where the other one is: so both types were really accepted.
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
        site.get(&pod)["spec"]["nodeName"]
            .as_str()
            .unwrap()
            .to_owned()
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
    let left = [
        "wait",
        "--for=condition=PodScheduled=false",
        "--timeout=180s",
    ];
    let pod = ["-n", &namespace, "pod", "nowhere"];
    api.kubectl(&[&left[..], &pod].concat());
    let pod = site.get(&pod);
    assert_eq!(pod["status"]["phase"], "Pending");
    let reason = pod["status"]["conditions"][0]["message"].as_str().unwrap();
    let expected = "2 node(s) didn't match Pod's node affinity/selector";
    assert!(reason.contains(expected), "{reason}");
    api.kubectl(&["delete", "namespace", &namespace, "--wait=false"]);
}

fn a_deleted_agent_leaves_nothing_half_done(site: &Site) {
    let api = site.api();
    let pod = site.pod(A100);
    // About a second each, so that there is a middle to delete the pod in.
    site.machine
        .faults("[{call: nvmlDeviceCreateGpuInstance*, slow_factor: 20}]");
    let change = ["label", "node", A100, "--overwrite"];
    api.kubectl(&[&change[..], &["octavo.dev/layout=small"]].concat());
    site.until("half of the partitions", || {
        (0..2).any(|gpu| (1..7).contains(&site.geometry(gpu).len()) && site.geometry(gpu) != HALVES)
    });
    let began = Instant::now();
    // Or the next pod would go on before anybody has looked at what this one leaves.
    api.kubectl(&["label", "node", A100, "nvidia.com/gpu.present-"]);
    let it = ["-n", NAMESPACE, "pod", &pod];
    api.kubectl(&[&["delete", "--wait=false"], &it[..]].concat());
    // It ends by itself, and is not killed when its time is over.
    let ended = "--for=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=0";
    api.kubectl(&[&["wait", ended, "--timeout=120s"], &it[..]].concat());
    let left = [site.geometry(0), site.geometry(1)];
    figure(&format!(
        "deleted within an apply: gone after {:?}, {left:?}",
        began.elapsed()
    ));
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

fn cleanup_leaves_nothing_of_ours(site: &Site) {
    let api = site.api();
    let daemon = ["-n", NAMESPACE, "daemonset", "octavo-agent"];
    let pod = site.get(&daemon)["spec"]["template"]["spec"].clone();
    let before = [A100, H100].map(|node| ours(&site.get(&["node", node])));
    api.kubectl(&[&["delete", "--cascade=foreground"], &daemon[..]].concat());
    let after = [A100, H100].map(|node| ours(&site.get(&["node", node])));
    assert_eq!(before, after);
    for node in [A100, H100] {
        clean_up(site, node, pod.clone());
        // Which layout a node shall have is a person's to say, and to take back.
        let left: Vec<String> = ours(&site.get(&["node", node])).into_keys().collect();
        assert_eq!(left, ["octavo.dev/layout"]);
        api.kubectl(&["label", "node", node, "octavo.dev/layout-"]);
        let node = site.get(&["node", node]);
        let metadata = node["metadata"].to_string();
        assert!(!metadata.contains("octavo"), "{metadata}");
        assert_eq!(node["spec"]["taints"], Value::Null);
        // Nor of what is written for others to read; this one is what the test itself has put there.
        let labels = node["metadata"]["labels"].as_object().unwrap().keys();
        let left: Vec<&String> = labels.filter(|key| key.contains("nvidia")).collect();
        assert_eq!(left, ["nvidia.com/gpu.present"]);
    }
    site.uninstall();
    let kinds = "namespaces,clusterroles,clusterrolebindings,roles,rolebindings,\
        validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = api.kubectl(&["get", "-A", "-o", "name", kinds]);
    assert!(left.contains("clusterrole"), "{left}");
    assert!(!left.contains("octavo"), "{left}");
}

/// Runs the agent once more on a node, as docs/permissions.md says, so that it takes away what agents have written.
fn clean_up(site: &Site, node: &str, mut spec: Value) {
    spec["nodeName"] = json!(node);
    spec["restartPolicy"] = json!("Never");
    let agent = spec["containers"][0].as_object_mut().unwrap();
    let arguments = agent["args"].as_array_mut().unwrap();
    arguments.push(json!("--cleanup"));
    agent.retain(|field, _| !field.ends_with("Probe"));
    let name = format!("cleanup-{node}");
    let api = site.api();
    api.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    }));
    site.until("the cleanup's end", || {
        let pod = site.get(&["pod", "-n", NAMESPACE, &name]);
        let phase = &pod["status"]["phase"];
        let log = || api.kubectl(&["logs", "-n", NAMESPACE, &name]);
        assert_ne!(phase, "Failed", "{}", log());
        phase == "Succeeded"
    });
}
