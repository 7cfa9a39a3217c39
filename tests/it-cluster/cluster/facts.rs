//! Properties of the cluster that every test relies on.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::Api;
use crate::time_limits::{Finish, Lines};

/// Set in a test process that another one kills; also the prefix of its output lines.
const VICTIM: &str = "OCTAVO_TEST_CLUSTER_VICTIM";

/// A pod that needs no controller; on `node` if given.
fn pod(namespace: &str, account: &str, node: Option<&str>) -> String {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": account, "namespace": namespace},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": namespace},
        "spec": {
            "nodeName": node, "serviceAccountName": account["metadata"]["name"], "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "one", "image": "test.invalid/none:1"}],
        },
    });
    format!("{account}\n---\n{pod}\n")
}

fn reported(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn shared_api_server_answers_kubectl_and_client() {
    let api = Api::shared();
    assert_eq!(api.kubectl(&["get", "--raw", "/readyz"]), "ok");
    let version = api.client().apiserver_version().await.unwrap();
    assert_eq!(version.major, "1");
    assert!(api.url().starts_with("https://127."));
}

#[test]
fn pod_is_scheduled_on_node_object_without_kubelet() {
    let api = Api::shared();
    let namespace = api.namespace();
    let node = api.node("scheduled");
    let label = format!("test={}", node.name());
    api.kubectl(&["label", "node", node.name(), &label]);
    api.kubectl(&["create", "serviceaccount", "runner", "-n", &namespace]);
    api.apply(
        &json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": namespace},
            "spec": {
                "nodeSelector": {"test": node.name()}, "serviceAccountName": "runner",
                "containers": [{"name": "one", "image": "test.invalid/none:1"}],
            },
        })
        .to_string(),
    );
    let scheduled = ["wait", "-n", &namespace, "pod/one", "--timeout=120s"];
    api.kubectl(&[&scheduled[..], &["--for=condition=PodScheduled"]].concat());
    let place = ["get", "pod", "one", "-n", &namespace];
    let place = api.kubectl(&[&place[..], &["-o=jsonpath={.spec.nodeName}"]].concat());
    assert_eq!(place, node.name());
}

#[test]
fn test_node_is_ready_untainted_and_deleted_on_drop() {
    let api = Api::shared();
    let node = api.node("brief");
    let name = node.name().to_owned();
    let format =
        "-o=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}{.spec.taints[*].key}";
    assert_eq!(api.kubectl(&["get", "node", &name, format]), "True");
    assert_ne!(api.node("brief").name(), name);
    drop(node);
    let output = api.try_kubectl(&["get", "node", &name]);
    assert!(reported(&output).contains("NotFound"), "{}", reported(&output));
}

#[test]
fn octavo_token_identifies_its_node_and_grants_no_access() {
    let api = Api::shared();
    let node = api.node("claims");
    let namespace = api.namespace();
    api.apply(&pod(&namespace, "agent", Some(node.name())));
    let token = api.token(&namespace, "agent", "one", &["octavo"]);
    let review = |audiences: &[&str]| {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences},
        });
        api.create(&review)["status"].take()
    };
    let good = review(&["octavo"]);
    assert_eq!(good["authenticated"], true, "{good}");
    assert_eq!(good["audiences"], json!(["octavo"]));
    let claim = &good["user"]["extra"]["authentication.kubernetes.io/node-name"];
    assert_eq!(*claim, json!([node.name()]));
    assert_eq!(good["user"]["username"], format!("system:serviceaccount:{namespace}:agent"));
    assert_ne!(review(&["somebody-else"])["authenticated"], true);
    assert_ne!(review(&[])["authenticated"], true);

    let bearer = api.kubeconfig_with_token(&token);
    let whoami = |bearer: &super::objects::TokenKubeconfig| {
        let path = bearer.path();
        let path = path.to_str().unwrap();
        api.try_kubectl(&["--kubeconfig", path, "auth", "whoami"])
    };
    let refused = whoami(&bearer);
    assert!(!refused.status.success());
    assert!(
        reported(&refused).contains("Unauthorized") || reported(&refused).contains("logged in"),
        "{}",
        reported(&refused)
    );
    bearer.set_token(&api.token(&namespace, "agent", "one", &[]));
    let known = whoami(&bearer);
    assert!(
        reported(&known).contains(":agent") && reported(&known).contains(node.name()),
        "{}",
        reported(&known)
    );
}

#[test]
fn audit_log_records_user_change_and_user_agent() {
    let api = Api::shared();
    let node = api.node("audited");
    api.kubectl(&["label", "node", node.name(), "a=b"]);
    let events = api.audit();
    let write = events
        .iter()
        .find(|event| {
            event["verb"] == "patch"
                && event["objectRef"]["name"] == node.name()
                && event["objectRef"]["subresource"].is_null()
                && event["requestURI"].as_str().unwrap().contains("kubectl-label")
        })
        .unwrap_or_else(|| panic!("the event is not among {} events", events.len()));
    assert_eq!(write["user"]["username"], "admin");
    assert_eq!(write["objectRef"]["resource"], "nodes");
    assert_eq!(write["responseStatus"]["code"], 200);
    assert_eq!(write["stage"], "ResponseComplete");
    assert!(write["userAgent"].as_str().unwrap().starts_with("kubectl/"));
}

#[test]
fn fresh_api_server_keeps_data_across_restart_and_is_removed_on_drop() {
    let mut api = Api::fresh();
    let other = Api::fresh();
    let node = api.node("kept");
    let output = other.try_kubectl(&["get", "node", node.name()]);
    assert!(reported(&output).contains("NotFound"), "{}", reported(&output));
    assert!(api.memory() > 50 << 20, "{} bytes", api.memory());
    api.stop();
    let output = api.try_kubectl(&["get", "nodes"]);
    assert!(reported(&output).contains("refused"), "{}", reported(&output));
    let before = api.audit().len();
    api.start();
    api.kubectl(&["get", "node", node.name()]);
    assert!(api.audit().len() > before, "the audit log continues");
    let pids = [api.pid("etcd"), api.pid("kube-apiserver")];
    let directory = api.directory().to_owned();
    drop(node);
    drop(api);
    assert!(!directory.exists());
    for pid in pids {
        assert!(!process_exists(pid), "{pid} is still there");
    }
    other.kubectl(&["get", "nodes"]);
}

#[test]
fn rotated_ca_keeps_names_and_tokens_valid() {
    let mut api = Api::fresh();
    let node = api.node("rotated");
    let namespace = api.namespace();
    api.apply(&pod(&namespace, "agent", Some(node.name())));
    let bearer = api.kubeconfig_with_token(&api.token(&namespace, "agent", "one", &[]));
    let old = std::fs::read_to_string(api.ca()).unwrap();
    api.rotate_ca();
    assert_ne!(std::fs::read_to_string(api.ca()).unwrap(), old);
    api.kubectl(&["get", "node", node.name()]);
    let path = bearer.path();
    let who = api.kubectl(&["--kubeconfig", path.to_str().unwrap(), "auth", "whoami"]);
    assert!(who.contains(":agent"), "{who}");
    // A client that trusts only the old CA rejects the server.
    let stale = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(stale.path(), old).unwrap();
    let curl =
        Command::new("curl").args(["-sS", "--cacert"]).arg(stale.path()).arg(api.url()).finish();
    assert_eq!(curl.status.code(), Some(60), "{}", reported(&curl));
}

#[test]
fn killed_test_process_leaves_no_process_or_file() {
    if std::env::var_os(VICTIM).is_some() {
        let api = Api::fresh();
        let pids = ["etcd", "kube-apiserver"].map(|name| api.pid(name));
        let (directory, supervisor) = (api.directory().display(), api.supervisor());
        let mut out = std::io::stdout();
        writeln!(out, "\n{VICTIM} {directory} {supervisor}").unwrap();
        writeln!(out, "{VICTIM} {} {}", pids[0], pids[1]).unwrap();
        // Runs until it is killed: its standard input stays open and empty.
        let _never = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let name = "cluster::facts::killed_test_process_leaves_no_process_or_file";
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = Lines::of(victim.stdout.take().unwrap());
    let mut reported = || {
        let line = lines.find_line(VICTIM);
        let words: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
        words
    };
    let (first, pids) = (reported(), reported());
    let [directory, supervisor] = [&first[0], &first[1]];
    assert!(std::path::Path::new(directory).exists());
    for pid in &pids {
        assert!(process_exists(pid.parse().unwrap()), "process {pid} does not exist");
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    for pid in pids.iter().chain([supervisor]) {
        await_end(pid.parse().unwrap());
    }
    assert!(!std::path::Path::new(directory).exists());
}

#[test]
fn programs_of_killed_supervisor_exit() {
    let api = Api::fresh();
    let pids = ["etcd", "kube-apiserver"].map(|name| api.pid(name));
    let supervisor = Pid::from_raw(i32::try_from(api.supervisor()).unwrap());
    kill(supervisor, Signal::SIGKILL).unwrap();
    for pid in pids {
        await_end(pid);
    }
    std::fs::remove_dir_all(api.directory()).unwrap();
}

/// True if a process exists and is not a zombie.
fn process_exists(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}

/// Returns when a process has ended or is a zombie.
fn await_end(pid: u32) {
    for _second in 0..120 {
        if !process_exists(pid) {
            return;
        }
        // Ends with the process, or after a second.
        Command::new("timeout")
            .args(["1", "tail", "-s", "0.05", "-f", "/dev/null"])
            .arg(format!("--pid={pid}"))
            .status()
            .unwrap();
    }
    panic!("{pid} is still there");
}
