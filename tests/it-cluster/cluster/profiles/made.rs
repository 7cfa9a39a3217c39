//! Profiles created from nodes with the permissions of the requester, and the placement of their workloads.

use serde_json::{Value, json};

use super::{GPU, H200, HARDWARE, Site, T4, define, node, words};
use crate::cluster::Api;
use crate::cluster::objects::TestNode;
use crate::time_limits::until;

pub(super) fn object(api: &Api, namespace: &str, name: &str) -> Option<Value> {
    let arguments = [
        "get",
        "hardwareprofiles.infrastructure.opendatahub.io",
        name,
        "-n",
        namespace,
        "-o",
        "json",
        "--show-managed-fields",
    ];
    let output = api.try_kubectl(&arguments);
    serde_json::from_slice(&output.stdout).ok()
}

fn profile_records_requester_without_node_names(made: &Value, nodes: &[TestNode]) {
    let annotations = &made["metadata"]["annotations"];
    assert_eq!(annotations["opendatahub.io/display-name"], "Premium GPU");
    assert_eq!(annotations["octavo.dev/type"], H200);
    assert_eq!(annotations["octavo.dev/reason"], "team vision");
    assert!(annotations["octavo.dev/created-by"].as_str().is_some_and(|who| !who.is_empty()));
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "octavo-profiles");
    // Every user may read it, so it names no node.
    assert!(nodes.iter().all(|node| !made.to_string().contains(node.name())));
}

fn foreign_profiles_are_not_modified(site: &Site<'_>, namespace: &str) {
    let api = site.api;
    let other = super::profile(namespace, T4, ("octavo.dev/type", T4));
    api.apply(&other);
    let before = object(api, namespace, T4);
    let over = ["create", "--type", T4, "-n", namespace];
    let (_, reported) = site.run(&over, 1);
    assert!(reported.contains("created by kubectl; it is not changed"), "{reported}");
    assert!(reported.contains("- spec.identifiers[0].defaultCount: 2"), "{reported}");
    assert_eq!(object(api, namespace, T4), before);
}

#[tokio::test]
async fn profile_is_drafted_from_nodes_created_and_overwrites_no_other() {
    let api = Api::fresh();
    let nodes = [node(&api, H200), node(&api, T4)];
    let site = Site::new(&api);
    let path = format!("/api/v1/profile-draft?type={H200}");
    site.until(&path, |draft| draft["kind"] == "ProfileDraft").await;

    // Without the kind there is a draft, but it cannot be created.
    let of_type = ["create", "--type", H200];
    let (printed, shown) = site.run(&[&of_type[..], &["--dry-run"]].concat(), 0);
    assert!(printed.contains("octavo.dev/type: nvidia-h200-141gb"), "{printed}");
    assert!(shown.contains("was not created"), "{shown}");
    let (_, reported) = site.run(&of_type, 1);
    assert!(reported.contains("no namespace for the profile"), "{reported}");
    let namespace = api.namespace();
    let here = [
        &of_type[..],
        &["-n", &namespace, "--display-name", "Premium GPU", "--reason", "team vision"],
    ]
    .concat();
    let (_, reported) = site.run(&here, 1);
    assert!(reported.contains("this cluster has no HardwareProfile resource"), "{reported}");

    define(&api, HARDWARE);
    let (reported, _) = site.run(&[&here[..], &["--dry-run=server"]].concat(), 0);
    assert!(reported.contains("can be created"), "{reported}");
    assert_eq!(object(&api, &namespace, H200), None);
    let (reported, _) = site.run(&here, 0);
    assert_eq!(reported, format!("profile {namespace}/{H200} created\n"));
    let made = object(&api, &namespace, H200).unwrap();
    profile_records_requester_without_node_names(&made, &nodes);
    let profile = site.profile(H200, |one| one["available"] == 8).await;
    assert_eq!(words(&profile), [] as [&str; 0]);
    assert_eq!(profile["reason"], "team vision");
    // A repeated creation changes nothing.
    site.run(&here, 0);
    assert_eq!(object(&api, &namespace, H200), Some(made));

    foreign_profiles_are_not_modified(&site, &namespace);
    let both = format!("{},{}", nodes[0].name(), nodes[1].name());
    let (_, reported) = site.run(&["create", "--from-nodes", &both], 1);
    assert!(reported.contains("these nodes have 2 types"), "{reported}");
}

/// The pod that the webhook creates for a workload with this profile: requests and limits are the default counts,
/// selector and tolerations those of the profile. Source: workbenches-operator, `/workbenches-hardware-profile`.
pub(super) fn pod(profile: &Value, namespace: &str, name: &str) -> Value {
    let counts = profile["spec"]["identifiers"].as_array().unwrap().iter();
    let counts: serde_json::Map<String, Value> = counts
        .map(|one| {
            let count = &one["defaultCount"];
            let count = count.as_str().map_or_else(|| count.to_string(), ToOwned::to_owned);
            (one["identifier"].as_str().unwrap().to_owned(), json!(count))
        })
        .collect();
    let scheduling = &profile["spec"]["scheduling"]["node"];
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": scheduling["nodeSelector"], "tolerations": scheduling["tolerations"],
            "containers": [{
                "name": "main", "image": "test.invalid/none:1",
                "resources": {"requests": counts, "limits": counts},
            }],
        },
    })
}

#[tokio::test]
async fn req_009_workloads_of_created_profile_run_only_on_nodes_of_its_type() {
    let api = Api::shared();
    let (h200, _t4) = (node(api, H200), node(api, T4));
    define(api, HARDWARE);
    let namespace = api.namespace();
    api.await_account(&namespace);
    let site = Site::new(api);
    let create = [
        "create",
        "--from-nodes",
        h200.name(),
        "--name",
        "premium",
        "-n",
        &namespace,
        "--resource",
        GPU,
    ];
    let path = format!("/api/v1/profile-draft?nodes={}&resource={GPU}", h200.name());
    site.until(&path, |draft| draft["kind"] == "ProfileDraft").await;
    site.run(&create, 0);
    let path = format!("{namespace}/premium");
    let profile = site.profile(&path, |one| one["available"] == 8).await;
    assert_eq!(profile["type"], H200);
    let made = object(api, &namespace, "premium").unwrap();
    for number in 0..9 {
        api.create(&pod(&made, &namespace, &format!("work-{number}")));
    }
    // The scheduler places as many as reported available, and no pod on the other type.
    let placed = || -> Vec<Value> {
        let pods = api.kubectl(&["get", "pods", "-n", &namespace, "-o", "json"]);
        let pods: Value = serde_json::from_str(&pods).unwrap();
        pods["items"].as_array().unwrap().clone()
    };
    let refused = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|one| one["type"] == "PodScheduled" && one["reason"] == "Unschedulable")
    };
    let settled = |pod: &&Value| pod["spec"]["nodeName"].is_string() || refused(pod);
    let pods = until("nine pods that are scheduled or refused", placed, |pods| {
        pods.iter().filter(settled).count() == 9
    });
    let on: Vec<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    assert_eq!(on, [h200.name(); 8]);
    let profile = site.profile(&path, |one| one["available"] == 0).await;
    assert_eq!(words(&profile), [] as [&str; 0]);
}
