//! Pods on the nodes of the test cluster: they run, reach the API server, and run our images.

use std::path::Path;

use serde_json::{Value, json};

use super::nodes::{Nodes, root};
use crate::image::Images;

/// A pod on one node with this container.
fn pod(namespace: &str, name: &str, node: &str, container: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node}, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": true},
            "containers": [container],
        },
    })
}

/// Runs a container in a pod until it ends and returns its log.
fn log(node: &str, container: &Value) -> String {
    let api = Nodes::shared().api();
    let namespace = api.namespace();
    api.await_account(&namespace);
    api.apply(&pod(&namespace, "one", node, container).to_string());
    let done = "--for=jsonpath={.status.phase}=Succeeded";
    let waited = api.try_kubectl(&["wait", "-n", &namespace, "pod/one", done, "--timeout=300s"]);
    let log = api.kubectl(&["logs", "-n", &namespace, "one"]);
    assert!(
        waited.status.success(),
        "{log}\n{}",
        api.kubectl(&["describe", "-n", &namespace, "pod/one"])
    );
    log
}

/// Runs a script in a pod and returns its log.
fn run(node: &str, script: &str) -> String {
    let tools = ["/bin/sh", "/bin/cat", "/usr/bin/curl"].map(|path| (Path::new(path), path));
    let name = "test.invalid/shell:1";
    Nodes::shared().image(node, name, root(&tools).path(), &["/bin/sh"]);
    log(
        node,
        &json!({
            "name": "one", "image": name, "imagePullPolicy": "Never", "args": ["-c", script],
            "securityContext": {"runAsUser": 65532, "runAsGroup": 65532},
        }),
    )
}

#[test]
fn two_nodes_with_kubelets_are_ready() {
    let nodes = Nodes::shared();
    for node in ["node-1", "node-2"] {
        let ready = ["wait", "--for=condition=Ready", "--timeout=300s"];
        let api = nodes.api();
        api.kubectl(&[&ready[..], &[&format!("node/{node}")]].concat());
        let runtime = "-o=jsonpath={.status.nodeInfo.containerRuntimeVersion}";
        let runtime = api.kubectl(&["get", "node", node, runtime]);
        assert!(runtime.starts_with("containerd://"), "{runtime}");
        assert!(nodes.kubelet(node).join("device-plugins/kubelet.sock").exists());
    }
}

#[test]
fn pod_runs_and_its_log_is_readable() {
    assert_eq!(run("node-2", "echo hello from a pod"), "hello from a pod\n");
}

#[test]
fn pod_with_own_network_reaches_api_server_with_its_token() {
    let script = "
        cd /var/run/secrets/kubernetes.io/serviceaccount
        curl -sS --cacert ca.crt -H \"Authorization: Bearer $(cat token)\" -H 'Content-Type: application/json' \
          -d '{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"SelfSubjectReview\"}' \
          https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer: Value = serde_json::from_str(&run("node-1", script)).unwrap();
    let user = &answer["status"]["userInfo"];
    let node = &user["extra"]["authentication.kubernetes.io/node-name"];
    assert_eq!(*node, json!(["node-1"]), "{answer}");
}

#[test]
fn images_run_in_pods_under_names_from_the_manifests() {
    let version = env!("CARGO_PKG_VERSION");
    let images = Images::shared();
    // The user is defined only in the image: kubelet accepts it as non-root, and programs are found by name.
    for (node, image, command, reported) in [
        ("node-1", "agent", json!(null), "octavo-agent"),
        ("node-1", "agent", json!(["octavo"]), "octavo"),
        ("node-2", "aggregator", json!(null), "octavo-aggregator"),
    ] {
        Nodes::shared().import(node, &images.archive(image));
        let container = json!({
            "name": "one", "image": format!("octavo/{image}:{version}"), "imagePullPolicy": "Never",
            "command": command, "args": ["--version"],
            "securityContext": {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        });
        assert_eq!(log(node, &container), format!("{reported} {version}\n"));
    }
}
