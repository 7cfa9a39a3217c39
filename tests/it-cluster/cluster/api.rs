//! An API server with its etcd, on its own loopback address.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use serde_json::Value;

use super::kubectl::Kubectl;
use super::objects::{TestNode, TokenKubeconfig};
use super::supervisor::{Supervisor, command, directory, programs, script, setting};
use crate::time_limits::{eventually, until};

/// Counts names that must be unique in this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

pub(super) fn number() -> u32 {
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// An API server with its programs; stopped when dropped, and when this process ends for any reason.
pub(crate) struct Api {
    directory: PathBuf,
    url: String,
    ca: PathBuf,
    kubectl: Kubectl,
    supervisor: Mutex<Supervisor>,
}

impl Api {
    /// The API server shared by all tests of this process: etcd, kube-apiserver, controller-manager, scheduler. Started
    /// by the first call.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Api> = OnceLock::new();
        SHARED.get_or_init(|| Self::launch(true, ""))
    }

    /// An API server for one test: etcd and kube-apiserver only, without service accounts and a scheduler.
    pub(crate) fn fresh() -> Self {
        Self::launch(false, "")
    }

    /// An API server for one test without this feature gate.
    pub(crate) fn without_gate(gate: &str) -> Self {
        Self::launch(false, &format!("--feature-gates={gate}=false"))
    }

    fn launch(all: bool, flags: &str) -> Self {
        let mut names = vec!["etcd", "kube-apiserver", "kubectl"];
        if all {
            names.extend(["kube-controller-manager", "kube-scheduler"]);
        }
        let programs = programs(&names);
        let number = number();
        let process = std::process::id();
        let directory = directory();
        // Its own address, so that its ports stay free while it is stopped.
        let [_, _, high, low] = process.to_be_bytes();
        let host = u8::try_from(201 + number % 50).unwrap();
        let address = Ipv4Addr::new(127, host, high, low.max(1));
        let [port, etcd, peer, controllers, scheduler] = ports(address);
        let supervisor = Supervisor::start(
            command(&directory, &programs, false)
                .arg(setting("CLUSTER_PARTS", if all { "all" } else { "api" }))
                .arg(setting("CLUSTER_ADDR", address.to_string()))
                .arg(setting("CLUSTER_PORT", port.to_string()))
                .arg(setting("CLUSTER_ETCD_PORT", etcd.to_string()))
                .arg(setting("CLUSTER_ETCD_PEER_PORT", peer.to_string()))
                .arg(setting("CLUSTER_CONTROLLER_MANAGER_PORT", controllers.to_string()))
                .arg(setting("CLUSTER_SCHEDULER_PORT", scheduler.to_string()))
                .arg(setting("APISERVER_FLAGS", flags))
                .arg(script("supervise.sh")),
        );
        let url = format!("https://{address}:{port}");
        Self::new(directory, url, &programs, supervisor)
    }

    /// A running cluster.
    pub(super) fn new(
        directory: PathBuf,
        url: String,
        programs: &Path,
        supervisor: Supervisor,
    ) -> Self {
        let kubectl = Kubectl {
            program: programs.join("kubectl"),
            kubeconfig: directory.join("pki/admin.kubeconfig"),
            cache: directory.join("kubectl"),
        };
        Self {
            ca: directory.join("pki/ca.crt"),
            directory,
            url,
            kubectl,
            supervisor: Mutex::new(supervisor),
        }
    }

    /// Kubeconfig of an administrator.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubectl.kubeconfig
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The certificate authority of its certificate.
    pub(crate) fn ca(&self) -> &Path {
        &self.ca
    }

    /// Runs kubectl as an administrator and returns its output.
    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl.run(arguments)
    }

    /// Runs kubectl as an administrator; it may fail.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl.attempt(arguments)
    }

    /// Waits until all custom resource definitions are served.
    #[track_caller]
    pub(crate) fn await_definitions(&self) {
        // kubectl fails on a definition that another test created just now, and that has no status yet.
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"];
        eventually("the definitions", || self.try_kubectl(&wait).status.success());
    }

    /// The output of a running pod, once it has printed something.
    #[track_caller]
    pub(crate) fn output_of(&self, namespace: &str, pod: &str) -> String {
        let read = || self.kubectl(&["logs", "-n", namespace, pod]).trim_end().to_owned();
        until("output of the pod", read, |output| !output.is_empty())
    }

    /// Configures a command for kubectl and this cluster; programs in `first` take precedence.
    pub(crate) fn equip<'a>(&self, command: &'a mut Command, first: &Path) -> &'a mut Command {
        self.kubectl.equip(command, first)
    }

    /// Applies objects.
    #[track_caller]
    pub(crate) fn apply(&self, yaml: &str) {
        self.kubectl.feed(&["apply", "--server-side", "-f", "-"], yaml);
    }

    /// Creates an object and returns the server's version of it.
    #[track_caller]
    pub(crate) fn create(&self, object: &Value) -> Value {
        let arguments = ["create", "-f", "-", "-o", "json"];
        serde_json::from_str(&self.kubectl.feed(&arguments, &object.to_string())).unwrap()
    }

    /// An administrator's client. Must be called within a runtime, which owns its connections.
    pub(crate) fn client(&self) -> kube::Client {
        // Nothing waits if a file contains all credentials.
        let connecting = pin!(octavo_kube::client::connect(
            Some(self.kubeconfig()),
            octavo_kube::client::Program::Agent
        ));
        match connecting.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(client) => client.unwrap(),
            Poll::Pending => panic!("reading a kubeconfig waits for something"),
        }
    }

    /// A ready Node object without a machine; deleted when dropped.
    #[track_caller]
    pub(crate) fn node(&self, prefix: &str) -> TestNode {
        TestNode::new(&self.kubectl, format!("{prefix}-{}", number()))
    }

    /// A new namespace.
    #[track_caller]
    pub(crate) fn namespace(&self) -> String {
        let name = format!("test-{}", number());
        self.kubectl(&["create", "namespace", &name]);
        name
    }

    /// Waits until a namespace has the default service account. Requires controllers.
    #[track_caller]
    pub(crate) fn await_account(&self, namespace: &str) {
        let wait = ["wait", "-n", namespace, "--for=create", "--timeout=120s"];
        self.kubectl(&[&wait[..], &["serviceaccount/default"]].concat());
        self.kubectl(&[&wait[..], &["configmap/kube-root-ca.crt"]].concat());
    }

    /// A token of a service account, bound to a pod and thereby to its node.
    #[track_caller]
    pub(crate) fn token(
        &self,
        namespace: &str,
        account: &str,
        pod: &str,
        audiences: &[&str],
    ) -> String {
        let mut arguments = vec!["create", "token", account, "--namespace", namespace];
        arguments.extend(["--bound-object-kind", "Pod", "--bound-object-name", pod]);
        for audience in audiences {
            arguments.extend(["--audience", audience]);
        }
        self.kubectl(&arguments).trim_end().to_owned()
    }

    /// A kubeconfig with this token.
    pub(crate) fn kubeconfig_with_token(&self, token: &str) -> TokenKubeconfig {
        TokenKubeconfig::new(&self.url, &self.ca, token)
    }

    /// All requests answered so far according to the audit log, including those of the test; requires a running server.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let path = self.directory.join("log/audit.log");
        let read = || {
            // A request is logged when it is answered: the log is complete when it contains a later request.
            let mark = format!("/readyz?until={}", number());
            let requested = self.try_kubectl(&["get", "--raw", &mark]).status.success();
            let text = fs::read_to_string(&path).unwrap();
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            let events: Vec<Value> =
                whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let is_whole = !requested || events.iter().any(|event| event["requestURI"] == mark);
            is_whole.then_some(events)
        };
        until("a request in the audit log", read, Option::is_some).unwrap()
    }

    /// Kills the API server; etcd continues.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.order("stop");
    }

    /// Restarts it at the same address and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(&mut self) {
        self.order("start");
    }

    /// Replaces the CA and the certificates in the same files and restarts the server. Tokens stay valid.
    #[track_caller]
    pub(crate) fn rotate_ca(&mut self) {
        self.order("rotate");
    }

    /// Sends a command to the supervisor.
    #[track_caller]
    pub(super) fn order(&self, line: &str) {
        // A failed command of one test must not fail the next one.
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        supervisor.order(line);
    }

    /// Resident memory of the API server in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let pid = self.pid("kube-apiserver");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
        kibibytes.unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Process id of one of its programs.
    pub(super) fn pid(&self, program: &str) -> u32 {
        let path = self.directory.join(format!("run/{program}.pid"));
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }

    /// Directory of all its files.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Process id of its supervisor.
    pub(super) fn supervisor(&self) -> u32 {
        self.supervisor.lock().unwrap().id()
    }
}

/// Ports of an unused address.
fn ports<const N: usize>(address: Ipv4Addr) -> [u16; N] {
    // All at the same time, or they might be equal.
    let listeners = [(); N].map(|()| TcpListener::bind((address, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
