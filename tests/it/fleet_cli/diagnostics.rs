//! `octavo doctor NODE` and `octavo support-bundle` with a real aggregator and an API server of canned answers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use octavo_node::doctor::{Check, CheckResult, Diagnosis};
use serde_json::{Value, json};

use super::{Fleet, reported};
use crate::time_limits::{Finish, exit_status};

/// Token of the kubeconfig's user.
const USER_TOKEN: &str = "kubeconfig-user-token";

/// A log with secrets, and with the names of a node, a pod, a namespace and a user.
const LOG: &str = "2026-11-26T00:00:00Z WARN blocked node=a100 pod=\"train-7\" namespace=\"team-vision\" user=\"eve@example.com\"\n\
                   2026-11-26T00:00:01Z INFO request Authorization: Bearer log-bearer-token\n\
                   2026-11-26T00:00:02Z INFO process HF_TOKEN=log-hf-token python train.py --api-key log-api-key\n";

/// An API server, and a kubeconfig for it.
struct ApiServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    directory: tempfile::TempDir,
}

impl ApiServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&requests);
        // The thread ends with the test process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _client_may_close = answer(stream, &seen);
            }
        });
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {"token": USER_TOKEN}}],
        });
        fs::write(directory.path().join("config"), kubeconfig.to_string()).unwrap();
        Self { address, requests, directory }
    }

    fn kubeconfig(&self) -> String {
        self.directory.path().join("config").display().to_string()
    }
}

fn answer(mut stream: TcpStream, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut head = String::new();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        head.push_str(&line);
        head.push('\n');
    }
    assert!(head.contains(&format!("Bearer {USER_TOKEN}")), "{head}");
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, body) = body(&path);
    seen.lock().unwrap().push(path);
    let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn body(path: &str) -> (&'static str, String) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pods = "/api/v1/namespaces/octavo-system/pods";
    let found = match path {
        "/api/v1/services" => {
            json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {}, "items": []})
        }
        "/api/v1/nodes/a100" => json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {"name": "a100", "labels": {"kubernetes.io/hostname": "a100"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": "8"},
            },
        }),
        _ if path == pods => {
            let agents =
                [pod("octavo-agent-a", "agent", "a100"), pod("octavo-agent-h", "agent", "h100")];
            let mut items: Vec<Value> = agents.into_iter().collect();
            items.push(pod("octavo-aggregator-0", "aggregator", "cpu-1"));
            if query.contains("spec.nodeName%3Da100") {
                items.truncate(1);
            }
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        }
        _ if path.starts_with(pods) && path.ends_with("/log") => return ("200 OK", LOG.to_owned()),
        _ => {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "Forbidden", "message": format!("{path} is forbidden"), "code": 403,
            });
            return ("403 Forbidden", status.to_string());
        }
    };
    ("200 OK", found.to_string())
}

fn pod(name: &str, component: &str, node: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "octavo-system", "name": name,
            "labels": {"app.kubernetes.io/component": component},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": component, "image": "octavo/agent:0.1.0",
                "env": [{"name": "PASSWORD", "value": "pod-env-password"}]}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": component, "image": "", "imageID": "", "ready": true, "restartCount": 1}],
        },
    })
}

#[test]
fn doctor_diagnoses_a_node_of_the_fleet() {
    let fleet = Fleet::new();
    let server = ApiServer::start();
    let output = fleet.run(&["doctor", "a100", "--kubeconfig", &server.kubeconfig()]);
    let (text, notes) = (reported(&output.stdout), reported(&output.stderr));
    for line in [
        "Node: a100, ok\n",
        "\nNode status: Ready, SchedulingDisabled\n",
        "\nAgent pod: octavo-system/octavo-agent-a, Running, ready, 1 restart\n",
        "device-plugin",
        "Unknown: ",
        " findings: 0 failing, ",
    ] {
        assert!(text.contains(line), "{line}: {text}{notes}");
    }
    let command = "kubectl exec -n octavo-system octavo-agent-a -c agent -- octavo doctor --proc-root /host/proc";
    assert!(notes.contains(command), "{notes}");

    let output = fleet.run(&["doctor", "a100", "-o", "json", "--kubeconfig", &server.kubeconfig()]);
    let diagnosis: Diagnosis = serde_json::from_slice(&output.stdout).unwrap();
    let of = |check: Check| {
        let mut findings = diagnosis.findings.iter().filter(|finding| finding.check == check);
        findings.next().map(|finding| finding.verdict).unwrap()
    };
    // The Node has no resource of the GPU, so its device plugin is missing, or a DRA driver is used.
    assert_eq!(of(Check::DevicePlugin), CheckResult::Warning);
    assert_eq!(of(Check::NvidiaLibrary), CheckResult::Ok);
    assert_eq!(of(Check::NvidiaDeviceFiles), CheckResult::Unknown);
    for check in Check::ALL {
        assert!(diagnosis.findings.iter().any(|finding| finding.check == *check), "{check:?}");
    }
}

#[test]
fn doctor_without_a_cluster_names_the_command_that_finds_the_pod() {
    let fleet = Fleet::new();
    let output = fleet.run(&["doctor", "h100", "--verbose"]);
    let (text, notes) = (reported(&output.stdout), reported(&output.stderr));
    assert!(text.contains("Node status: unknown: not requested"), "{text}");
    assert!(text.contains("\nok  "), "{text}");
    assert!(notes.contains("--field-selector spec.nodeName=h100) -c agent -- octavo"), "{notes}");
    let missing = fleet.run(&["doctor", "nosuch"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(reported(&missing.stderr).contains("nosuch"));
}

/// Unpacks an archive; returns the texts by their paths below its directory.
fn unpacked(archive: &Path) -> BTreeMap<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(directory.path());
    let output = tar.finish();
    assert!(output.status.success(), "{}", reported(&output.stderr));
    let mut roots = fs::read_dir(directory.path()).unwrap();
    let root = roots.next().unwrap().unwrap().path();
    assert!(roots.next().is_none());
    let mut files = BTreeMap::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    files
}

/// Files of a bundle of the fleet.
const FILES: [&str; 19] = [
    "availability.json",
    "errors.txt",
    "logs/octavo-agent-a-agent-previous.log",
    "logs/octavo-agent-a-agent.log",
    "logs/octavo-agent-h-agent-previous.log",
    "logs/octavo-agent-h-agent.log",
    "logs/octavo-aggregator-0-aggregator-previous.log",
    "logs/octavo-aggregator-0-aggregator.log",
    "nodes.json",
    "nodes/a100/doctor.json",
    "nodes/a100/kubernetes.json",
    "nodes/a100/status.json",
    "nodes/h100/doctor.json",
    "nodes/h100/status.json",
    "pods.json",
    "profiles.json",
    "types.json",
    "usage-summary.json",
    "versions.json",
];

#[test]
fn support_bundle_has_status_diagnosis_and_logs_without_secrets() {
    let fleet = Fleet::new();
    let server = ApiServer::start();
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("bundle.tar.gz");
    let bundle = |more: &[&str]| {
        let mut command = fleet.octavo(&["support-bundle", "-f", archive.to_str().unwrap()]);
        let output = command.args(["--kubeconfig", &server.kubeconfig()]).args(more).finish();
        let printed = reported(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{printed}{}", reported(&output.stderr));
        (printed, reported(&output.stderr), unpacked(&archive))
    };
    let (printed, progress, files) = bundle(&[]);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, FILES, "{files:#?}");
    assert!(progress.contains("[1/2] node a100\n[2/2] node h100\n"), "{progress}");
    for name in &names {
        assert!(printed.contains(&format!("KiB  {name}\n")), "{name}: {printed}");
    }
    let all = format!("{files:?}");
    for secret in
        [USER_TOKEN, "log-bearer-token", "log-hf-token", "log-api-key", "pod-env-password"]
    {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
    let log = &files["logs/octavo-agent-a-agent.log"];
    assert!(
        log.contains("node=a100 pod=\"train-7\"") && log.contains("HF_TOKEN=[removed]"),
        "{log}"
    );
    let diagnosis: Diagnosis = serde_json::from_str(&files["nodes/a100/doctor.json"]).unwrap();
    assert!(!diagnosis.findings.is_empty());

    let (printed, _, files) = bundle(&["a100", "--redact"]);
    let all = format!("{files:?}{printed}");
    let private = [
        "a100\"",
        "=a100",
        "h100\"",
        "octavo-agent-a",
        "train-7",
        "team-vision",
        "eve@",
        "octavo-system",
    ];
    for name in private {
        assert!(!all.contains(name), "{name}: {all}");
    }
    let status: Value = serde_json::from_str(&files["nodes/node-1/status.json"]).unwrap();
    assert_eq!(status["name"], "node-1");
    let pods: Value = serde_json::from_str(&files["pods.json"]).unwrap();
    assert_eq!(pods[0]["node"], "node-1");
    assert!(files["logs/pod-1-agent.log"].contains("node=node-1 "), "{files:#?}");
    assert!(!files.contains_key("nodes/node-2/status.json"));
    assert!(!server.requests.lock().unwrap().iter().any(|path| path.contains("secrets")));
    assert!(server.address.ip().is_loopback());
}

#[test]
fn support_bundle_of_this_node_needs_no_aggregator() {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("here.tar.gz");
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(["support-bundle", "--here", "--from", "tests/golden/cli/machines/a100.json"]);
    command.arg("--state-dir").arg(directory.path()).arg("-f").arg(&archive);
    let output = command.finish();
    assert_eq!(output.status.code(), Some(0), "{}", reported(&output.stderr));
    let files = unpacked(&archive);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["doctor.json", "history.json", "inventory.json", "versions.json"]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn interrupted_support_bundle_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["support-bundle", "--server", &url, "-f", "bundle.tar.gz"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The command waits for an answer now.
    let _connection = listener.accept().unwrap();
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(exit_status(&mut child).code(), Some(1));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
