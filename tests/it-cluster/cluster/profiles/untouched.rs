//! Profiles of users are never modified: not by installation, upgrade or removal.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{DASHBOARD, GPU, H200, HARDWARE, OLD, OLDER, QUEUES, Site, define, node, profile};
use crate::cluster::Api;
use crate::cluster::objects::TokenKubeconfig;
use crate::manifests::chart::{helm_output, path};

const NAMESPACE: &str = "octavo-system";
const ACCOUNT: &str = "system:serviceaccount:octavo-system:octavo-aggregator";
/// API paths of the objects, relative to the namespace.
const KINDS: [(&str, &str, &[&str]); 4] = [
    (
        "infrastructure.opendatahub.io/v1",
        "hardwareprofiles",
        &["typed", "untyped", "processors", "queued", "made"],
    ),
    ("dashboard.opendatahub.io/v1alpha1", "hardwareprofiles", &["older"]),
    ("dashboard.opendatahub.io/v1", "acceleratorprofiles", &["oldest"]),
    ("kueue.x-k8s.io/v1beta2", "localqueues", &["team"]),
];
/// Number of profiles among them.
const PROFILES: usize = 7;

/// One profile with our annotation, and others without: by a label of NVIDIA's, without devices, by a queue, of old
/// kinds.
fn objects(namespace: &str) -> [String; 7] {
    let typed = profile(namespace, "typed", ("octavo.dev/type", H200));
    let mut typed: Value = serde_json::from_str(&typed).unwrap();
    typed["metadata"]["annotations"]["octavo.dev/type"] = json!(H200);
    let product = ("nvidia.com/gpu.product", "NVIDIA-H200");
    let hardware = |name: &str, spec: Value| {
        json!({
            "apiVersion": "infrastructure.opendatahub.io/v1", "kind": "HardwareProfile",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        })
        .to_string()
    };
    let cpu =
        json!({"displayName": "CPU", "identifier": "cpu", "minCount": 1, "defaultCount": "500m"});
    let gpu = json!({"displayName": "GPU", "identifier": GPU, "minCount": 1, "defaultCount": 1});
    let queue = json!({"type": "Queue", "kueue": {"localQueueName": "team"}});
    let old = |version: &str, kind: &str, name: &str, more: Value| {
        let mut spec = json!({"displayName": name, "enabled": true});
        let more = more.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(more);
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": format!("{DASHBOARD}/{version}"), "kind": kind, "metadata": metadata, "spec": spec}).to_string()
    };
    let label = json!({"nodeSelector": {"octavo.dev/type": H200}, "identifiers": [gpu]});
    [
        typed.to_string(),
        profile(namespace, "untyped", product),
        hardware("processors", json!({"identifiers": [cpu]})),
        hardware("queued", json!({"identifiers": [gpu], "scheduling": queue})),
        old("v1alpha1", "HardwareProfile", "older", label),
        old("v1", "AcceleratorProfile", "oldest", json!({"identifier": GPU})),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": namespace}, "spec": {"clusterQueue": "all"},
        })
        .to_string(),
    ]
}

/// The API server's response for each object and for the definition of each kind.
fn bytes(api: &Api, namespace: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut take = |path: String| {
        let text = api.kubectl(&["get", "--raw", &path]);
        assert!(text.contains("\"managedFields\":"), "{text}");
        assert!(text.contains("\"resourceVersion\":"), "{text}");
        all.insert(path, text);
    };
    for (group, plural, names) in KINDS {
        for name in names {
            take(format!("/apis/{group}/namespaces/{namespace}/{plural}/{name}"));
        }
        let (group, _) = group.split_once('/').unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        take(format!("{definitions}/{plural}.{group}"));
    }
    all
}

/// Runs helm on the release.
fn helm(api: &Api, verb: &str, more: &[&str]) {
    let kubeconfig = ["--kubeconfig", api.kubeconfig().to_str().unwrap()];
    let release = [verb, "octavo", "--namespace", NAMESPACE];
    helm_output(&[&release[..], &kubeconfig, more].concat());
}

/// The aggregator as started by the chart, with the permissions of its account, except for the certificate.
fn installed<'a>(api: &'a Api, pod: &str) -> (Site<'a>, TokenKubeconfig) {
    let get = ["get", "deployment", "octavo-aggregator", "-n", NAMESPACE];
    let deployment = api.kubectl(&[&get[..], &["-o", "json"]].concat());
    let deployment: Value = serde_json::from_str(&deployment).unwrap();
    let spec = &deployment["spec"]["template"]["spec"];
    // Created by a controller in a real cluster.
    api.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }));
    let token = api.token(NAMESPACE, "octavo-aggregator", pod, &[]);
    let bearer = api.kubeconfig_with_token(&token);
    let arguments = spec["containers"][0]["args"].as_array().unwrap().iter();
    let arguments: Vec<&str> = arguments
        .map(|argument| argument.as_str().unwrap())
        .filter(|argument| !argument.starts_with("--tls-"))
        .collect();
    for requested in ["--follow-cluster", "--annotate-pods"] {
        assert!(arguments.contains(&requested), "{arguments:?}");
    }
    let mut site = Site::with(api, &bearer.path(), &arguments);
    site.aggregator.expect_log("this process is the leader");
    (site, bearer)
}

/// Requests every document about profiles, once all of them are known.
async fn request_all_documents(site: &Site<'_>, namespace: &str) {
    let list = site
        .until("/api/v1/profiles", |list| {
            let known = list["items"].as_array().map(Vec::len);
            list.get("notice").is_none() && known == Some(PROFILES)
        })
        .await;
    let found = list["items"].as_array().unwrap().iter();
    let found: usize = found.map(|one| one["findings"].as_array().unwrap().len()).sum();
    assert!(found >= 4, "{list:#}");
    for path in ["/api/hardware-profiles", "/api/v1/availability", "/profiles"] {
        assert_eq!(site.readers.status(path).await, 200, "{path}");
    }
    for name in ["typed", "untyped", "processors", "queued", "made"] {
        let path = format!("/api/v1/profiles/{namespace}/{name}");
        assert_eq!(site.readers.status(&path).await, 200, "{path}");
    }
    site.run(&["list"], 0);
    site.run(&["check"], 3);
    let again = ["create", "--type", H200, "--name", "made", "--resource", GPU];
    let tried = ["-n", namespace, "--dry-run=server"];
    site.run(&[&again[..], &tried].concat(), 0);
}

/// Requests of the aggregator's account for such objects, by verb.
fn requested(api: &Api) -> BTreeMap<String, usize> {
    let log = api.audit();
    let of = log.iter().filter(|event| {
        let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
        event["user"]["username"] == ACCOUNT && KINDS.iter().any(|(_, kind, _)| *kind == resource)
    });
    of.fold(BTreeMap::new(), |mut verbs, event| {
        *verbs.entry(event["verb"].as_str().unwrap().to_owned()).or_default() += 1;
        verbs
    })
}

#[tokio::test]
async fn ac_011_profiles_are_byte_identical_after_upgrade_and_removal() {
    let api = Api::fresh();
    let _node = node(&api, H200);
    let namespace = api.namespace();
    for definition in [HARDWARE, OLD, OLDER, QUEUES] {
        define(&api, definition);
    }
    for object in objects(&namespace) {
        api.apply(&object);
    }
    // A profile that a user created with Octavo belongs to the user.
    let site = Site::new(&api);
    let draft = format!("/api/v1/profile-draft?type={H200}&resource={GPU}");
    site.until(&draft, |draft| draft["kind"] == "ProfileDraft").await;
    let create = ["create", "--type", H200, "--name", "made", "--resource", GPU];
    site.run(&[&create[..], &["-n", &namespace]].concat(), 0);
    drop(site);
    let before = bytes(&api, &namespace);
    assert_eq!(before.len(), 12);

    let chart = path();
    let chart = chart.to_str().unwrap();
    // Readers here have no tokens.
    let switched_on =
        "--set=aggregator.followCluster=true,aggregator.annotatePods=true,aggregator.httpAuth=none";
    let install = [chart, "--create-namespace", "--set=tier=reader", switched_on];
    helm(&api, "install", &install);
    let (mut site, _token) = installed(&api, "first");
    request_all_documents(&site, &namespace).await;
    assert_eq!(bytes(&api, &namespace), before);

    let more = "--set=tier=applier,aggregator.podDisruptionBudget.enabled=true,networkPolicy.enabled=true,\
                aggregator.extraArgs={--log-level=debug}";
    helm(&api, "upgrade", &[chart, switched_on, more]);
    // The old one stops before the new one starts, as in the Deployment's strategy.
    site.aggregator.kill();
    let (mut site, _token) = installed(&api, "second");
    request_all_documents(&site, &namespace).await;
    assert_eq!(bytes(&api, &namespace), before);

    helm(&api, "uninstall", &[]);
    site.aggregator.kill();
    assert_eq!(bytes(&api, &namespace), before);
    let requested = requested(&api);
    let verbs: Vec<&str> = requested.keys().map(String::as_str).collect();
    assert_eq!(verbs, ["list", "watch"], "{requested:?}");
}
