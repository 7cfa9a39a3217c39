//! Pending pods of three profiles get their instances through a policy: real scheduler and kubelet, no manual step.

use std::path::Path;

use serde_json::{Value, json};

use super::super::nodes::{Nodes, root};
use super::sharing::{INSTALL, SHELL};
use super::site::{A100, H100, Site, VERSION, figure, values_with_layouts};

/// Values of an administrator who lets a policy change instances.
fn demand() -> Value {
    let mut values = values_with_layouts(VERSION);
    values["tier"] = json!("applier");
    values["aggregator"] = json!({"followCluster": true, "policies": {"enabled": true}});
    let agent = values["agent"].as_object_mut().unwrap();
    agent.insert("sharing".to_owned(), json!({"mode": "embedded", "withholdAfter": "1s"}));
    agent.insert("usage".to_owned(), json!({"interval": "1s", "hostPID": true}));
    agent.insert("drain".to_owned(), json!({"allowPolicies": true}));
    values
}

/// A policy for the H100 that carries out proposals, with further settings.
fn policy(settings: &Value) -> String {
    let mut policy = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "AcceleratorPolicy", "metadata": {"name": "demand"},
        "spec": {
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": H100}},
            "demand": {"mode": "Act", "hold": "1s", "changesPerHour": 60},
        },
    });
    let demand = policy["spec"]["demand"].as_object_mut().unwrap();
    demand.extend(settings.as_object().unwrap().clone());
    policy.to_string()
}

/// A pod with an instance that prints its UUID and keeps running.
fn pod(namespace: &str, name: &str, profile: &str) -> Value {
    let resource = format!("nvidia.com/mig-{profile}");
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": SHELL, "imagePullPolicy": "Never",
                "args": ["-c", "echo $NVIDIA_VISIBLE_DEVICES; exec sleep 100000"],
                "resources": {"limits": {resource: "1"}},
            }],
        },
    })
}

#[tokio::test]
async fn m21_pending_pods_of_three_profiles_run_on_instances_that_a_policy_creates() {
    let _alone = Nodes::alone().await;
    let site = Site::new();
    let api = site.api();
    site.reader.set_values(&demand());
    site.reader.run_commands(INSTALL, H100);
    let tools = ["/bin/sh", "/bin/sleep"].map(|path| (Path::new(path), path));
    for node in [A100, H100] {
        site.image(node, SHELL, root(&tools).path(), &["/bin/sh"]);
    }
    api.apply(&policy(&json!({})));

    let namespace = api.namespace();
    api.await_account(&namespace);
    let run = |name: &str, profile: &str| {
        api.create(&pod(&namespace, name, profile));
    };
    let await_pods = || {
        let all =
            ["wait", "pod", "--all", "--for=condition=Ready", "--timeout=180s", "-n", &namespace];
        let waited = api.try_kubectl(&all);
        let described = || {
            let pods = api.kubectl(&["describe", "pods", "-n", &namespace]);
            pods + &api.kubectl(&["get", "acceleratorpolicies", "-o", "yaml"])
        };
        assert!(waited.status.success(), "{}", described());
    };
    for (name, profile) in [("small", "1g.10gb"), ("medium", "2g.20gb"), ("large", "3g.40gb")] {
        run(name, profile);
    }
    await_pods();
    // The idle instance of the large pod makes room for another profile, beside the others.
    let uuid = |name: &str| api.output_of(&namespace, name);
    let in_use = ["small", "medium"].map(uuid);
    api.kubectl(&["delete", "pod", "large", "-n", &namespace]);
    run("second", "2g.20gb");
    await_pods();
    let world = site.other.world();
    let instances = world.gpus[0].mig.iter().flat_map(|mig| &mig.instances);
    let existing: Vec<&str> =
        instances.flat_map(|one| &one.compute).map(|one| one.uuid.as_str()).collect();
    for uuid in in_use.iter().chain([&uuid("second")]) {
        assert!(existing.contains(&uuid.as_str()), "{uuid}: {existing:?}");
    }

    let selector = "--field-selector=involvedObject.name=demand";
    let events = || api.kubectl(&["get", "events", selector, "-o=jsonpath={.items[*].message}"]);
    site.until("events", || {
        let events = events();
        events.contains(&format!("{namespace}/second: create")) && events.contains("destroy idle")
    });
    figure(&events());
    api.kubectl(&["delete", "pods", "--all", "-n", &namespace]);
    gpu_is_reserved(&site, &namespace);
    api.kubectl(&["delete", "pods", "--all", "-n", &namespace]);
    running_pod_makes_room(&site, &namespace);
    api.kubectl(&["delete", "namespace", &namespace, "--timeout=120s"]);
    api.kubectl(&["delete", "acceleratorpolicy", "demand", "--timeout=120s"]);
    site.reader.run_block("operations/upgrade.md", "uninstall", H100);
    site.is_restored();
}

/// A GPU is reserved for a pod that needs all of it: other pods get none of the instances that become idle.
fn gpu_is_reserved(site: &Site, namespace: &str) {
    let api = site.api();
    let create = |name: &str, profile: &str| {
        let mut pod = pod(namespace, name, profile);
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": H100});
        api.create(&pod);
    };
    let await_pod = |name: &str, condition: &str| {
        let pod = ["wait", "pod", name, "--timeout=180s", "-n", namespace];
        let waited =
            api.try_kubectl(&[&pod[..], &[&format!("--for=condition={condition}")]].concat());
        let described = || {
            let policies = api.kubectl(&["get", "acceleratorpolicies", "-o", "yaml"]);
            api.kubectl(&["describe", "pods", "-n", namespace]) + &policies
        };
        assert!(waited.status.success(), "{name} is not {condition}: {}", described());
    };
    create("first", "1g.10gb");
    create("second", "1g.10gb");
    await_pod("first", "Ready");
    await_pod("second", "Ready");
    api.apply(&policy(&json!({"reserveAfter": "1s"})));
    create("whole", "7g.80gb");
    site.until("reservation", || {
        let status = &site.get(&["acceleratorpolicy", "demand"])["status"]["changes"][0];
        status["reservedDevice"].is_string() && status["begun"].is_string()
    });
    // Only the instances in use are offered.
    let offered = |count: usize| {
        format!(r"--for=jsonpath={{.status.allocatable.nvidia\.com/mig-1g\.10gb}}={count}")
    };
    api.kubectl(&["wait", "node", H100, &offered(2), "--timeout=180s"]);
    api.kubectl(&["delete", "pod", "second", "-n", namespace]);
    api.kubectl(&["wait", "node", H100, &offered(1), "--timeout=180s"]);
    create("late", "1g.10gb");
    await_pod("late", "PodScheduled=false");
    api.kubectl(&["delete", "pod", "first", "-n", namespace]);
    await_pod("whole", "Ready");
    let late = site.get(&["pod", "late", "-n", namespace]);
    // The scheduler can place it between the end of the first pod and the next list of devices. The agent then rejects it.
    let message = late["status"]["message"].as_str().unwrap_or_default();
    assert!(late["status"]["phase"] == "Pending" || message.contains("withheld"), "{late}");
    let selector = "--field-selector=involvedObject.name=whole,reason=InstancesChanging";
    let events = api.kubectl(&[
        "get",
        "events",
        "-n",
        namespace,
        selector,
        "-o=jsonpath={.items[*].message}",
    ]);
    assert!(events.contains("no longer in use"), "{events}");
    figure(&events);
}

/// A pod that can run on another node is evicted for a pending pod that cannot.
fn running_pod_makes_room(site: &Site, namespace: &str) {
    let api = site.api();
    let mut template = pod(namespace, "web", "1g.10gb");
    template["metadata"] = json!({"labels": {"app": "web"}});
    let replica_set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    });
    api.create(&replica_set);
    let ready = "--for=jsonpath={.status.readyReplicas}=1";
    api.kubectl(&["wait", "replicaset", "web", ready, "--timeout=180s", "-n", namespace]);
    let web = || site.get(&["pods", "-n", namespace, "--selector=app=web"])["items"].clone();
    let first = web();
    assert_eq!(first[0]["spec"]["nodeName"], H100);
    api.kubectl(&["label", "node", A100, "octavo.dev/layout=first-small"]);
    let seven = r"--for=jsonpath={.status.allocatable.nvidia\.com/mig-1g\.10gb}=7";
    api.kubectl(&["wait", "node", A100, seven, "--timeout=180s"]);

    let mut whole = pod(namespace, "whole", "7g.80gb");
    whole["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": H100});
    api.create(&whole);
    let unschedulable = "--for=condition=PodScheduled=false";
    api.kubectl(&["wait", "pod", "whole", unschedulable, "--timeout=180s", "-n", namespace]);
    api.apply(&policy(&json!({"evictionsPerHour": 1})));
    let waited =
        ["wait", "pod", "whole", "--for=condition=Ready", "--timeout=180s", "-n", namespace];
    let waited = api.try_kubectl(&waited);
    let described = || {
        let pods = api.kubectl(&["describe", "pods", "-n", namespace]);
        let policies = api.kubectl(&["get", "acceleratorpolicies", "-o", "yaml"]);
        pods + &policies + &api.kubectl(&["describe", "node", H100])
    };
    assert!(waited.status.success(), "{}", described());
    api.kubectl(&["wait", "replicaset", "web", ready, "--timeout=180s", "-n", namespace]);
    site.until("the other pod", || web().as_array().is_some_and(|all| all.len() == 1));
    let second = web();
    assert_eq!(second[0]["spec"]["nodeName"], A100);
    let evicted = first[0]["metadata"]["name"].as_str().unwrap();
    let selector =
        format!("--field-selector=involvedObject.name={evicted},reason=InstancesChanging");
    let events = api.kubectl(&["get", "events", "-n", namespace, &selector]);
    assert!(events.contains("may be evicted, because a pending pod needs its place"), "{events}");
    let status = site.get(&["acceleratorpolicy", "demand"]);
    assert_eq!(status["status"]["failures"], Value::Null, "{status}");
    api.kubectl(&["label", "node", A100, "octavo.dev/layout-"]);
}
