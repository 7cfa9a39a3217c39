//! The command line with nothing but a kubeconfig: the chart's aggregator in a pod, reached through a real API server and kubelet.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::Api;
use super::nodes::Nodes;
use super::objects::{TestNode, TokenKubeconfig};
use crate::image::Images;
use crate::manifests::chart;
use crate::time_limits::{Finish, Lines, until};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SERVICE: &str = "cli-octavo-aggregator";

/// Templates of the aggregator and of the access to it.
const TEMPLATES: [&str; 7] =
    ["access", "cli-access", "deployment", "follow", "readers", "service", "tls"];

/// The release `cli` in a namespace of its own; removed when dropped.
struct Release {
    api: &'static Api,
    namespace: String,
    manifests: String,
    /// A Node without an agent, which the aggregator shows.
    gpu_node: TestNode,
}

/// Result of a command.
#[derive(Debug)]
struct Answer {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Release {
    fn install() -> Self {
        let nodes = Nodes::shared();
        nodes.import("node-1", &Images::shared().archive("aggregator"));
        let api = nodes.api();
        let namespace = api.namespace();
        let gpu_node = api.node("gpu");
        api.kubectl(&[
            "label",
            "node",
            gpu_node.name(),
            "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count=8",
        ]);
        let chart = chart::path();
        let in_namespace = format!("--namespace={namespace}");
        let shown = TEMPLATES.map(|name| format!("--show-only=templates/aggregator/{name}.yaml"));
        let values = [
            "--set=aggregator.httpAuth=token-review,aggregator.followCluster=true",
            "--set=aggregator.nodeSelector.kubernetes\\.io/hostname=node-1",
        ];
        let mut arguments = vec!["template", "cli", chart.to_str().unwrap(), &in_namespace];
        arguments.extend(values);
        arguments.extend(shown.iter().map(String::as_str));
        let release = Self { manifests: chart::helm_output(&arguments), api, namespace, gpu_node };
        api.apply(&release.manifests);
        release.rolled_out();
        release
    }

    fn rolled_out(&self) {
        let deployment = format!("deployment/{SERVICE}");
        let wait = ["rollout", "status", "-n", &self.namespace, "--timeout=180s", &deployment];
        let waited = self.api.try_kubectl(&wait);
        let errors = String::from_utf8_lossy(&waited.stderr);
        let pods = ["describe", "pods", "-n", &self.namespace];
        assert!(waited.status.success(), "{errors}\n{}", self.api.kubectl(&pods));
    }

    /// Grants a role to a service account: a Role in the namespace, or a `ClusterRole` everywhere.
    fn bind(&self, kind: &str, role: &str, account: &str) {
        let mut metadata = json!({
            "name": format!("{}-{account}-{role}", self.namespace),
            "labels": {"app.kubernetes.io/instance": "cli"},
        });
        let binding = if kind == "Role" {
            metadata["namespace"] = json!(self.namespace);
            "RoleBinding"
        } else {
            "ClusterRoleBinding"
        };
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        });
        self.api.apply(&object.to_string());
    }

    /// The kubeconfig of a new user with a token and these roles.
    fn user(&self, name: &str, roles: &[(&str, &str)]) -> TokenKubeconfig {
        let of = ["-n", &self.namespace];
        self.api.kubectl(&[&["create", "serviceaccount", name], &of[..]].concat());
        for (kind, role) in roles {
            self.bind(kind, role, name);
        }
        let token = self.api.kubectl(&[&["create", "token", name], &of[..]].concat());
        self.api.kubeconfig_with_token(token.trim_end())
    }

    fn scale(&self, replicas: &str) {
        let deployment = format!("deployment/{SERVICE}");
        self.api.kubectl(&["scale", "-n", &self.namespace, &deployment, replicas]);
    }

    /// Changes the pods' port of the API.
    fn target_port(&self, port: &Value) {
        let patch = json!({"spec": {"ports": [{"port": 8443, "targetPort": port}]}}).to_string();
        self.api.kubectl(&["patch", "service", SERVICE, "-n", &self.namespace, "-p", &patch]);
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        for kind in ["clusterroles", "clusterrolebindings"] {
            let _gone = self.api.try_kubectl(&[
                "delete",
                kind,
                "--selector=app.kubernetes.io/instance=cli",
                "--wait=false",
            ]);
        }
        let _gone = self.api.try_kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

/// Runs `octavo` with a kubeconfig and nothing else.
fn octavo(kubeconfig: &Path, arguments: &[&str]) -> Answer {
    answer(command(arguments).arg("--kubeconfig").arg(kubeconfig))
}

fn answer(command: &mut Command) -> Answer {
    let output = command.finish();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer { code: output.status.code(), output: text(output.stdout), errors: text(output.stderr) }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(arguments).env_remove("KUBECONFIG").env_remove("OCTAVO_SERVER");
    command
}

impl Answer {
    #[track_caller]
    fn succeeds(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.output
    }

    /// Fails with these texts in the error.
    #[track_caller]
    fn fails(&self, texts: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        for text in texts {
            assert!(self.errors.contains(text), "{text:?}: {}", self.errors);
        }
    }
}

#[tokio::test]
async fn fleet_commands_need_only_a_kubeconfig() {
    let _alone = Nodes::alone().await;
    let release = Release::install();
    administrator_with_certificate(&release);
    users_with_tokens(&release);
    forbidden_steps_name_the_permission(&release);
    connection_errors_name_the_cause(&release);
    watch_survives_the_end_of_the_pod(&release);
}

/// A client certificate: the aggregator is found in all namespaces, and the reader's token is sent.
fn administrator_with_certificate(release: &Release) {
    let admin = release.api.kubeconfig();
    let gpu_node = release.gpu_node.name();
    let shown = until(
        "the node in the fleet",
        || octavo(admin, &["nodes"]),
        |answer| answer.code == Some(0) && answer.output.contains(gpu_node),
    );
    assert!(shown.output.contains("no-agent"), "{shown:?}");
    let by_environment = answer(command(&["nodes", "-o", "name"]).env("KUBECONFIG", admin));
    assert!(by_environment.succeeds().contains(gpu_node), "{by_environment:?}");
    let versions = octavo(admin, &["version", "-o", "json"]);
    let versions: Value = serde_json::from_str(versions.succeeds()).unwrap();
    let expected = json!({
        "apiVersion": "octavo.dev/v1", "kind": "Versions", "client": VERSION, "aggregator": VERSION, "agents": [],
    });
    assert_eq!(versions, expected);
    let by_server = octavo(admin, &["nodes", "--server=http://127.0.0.1:1"]);
    by_server.fails(&["cannot get http://127.0.0.1:1/", "connection refused"]);
    octavo(admin, &["nodes", "--context=elsewhere"])
        .fails(&["the kubeconfig has no context elsewhere; contexts: ", "try: name one of these"]);
    octavo(Path::new("/nowhere"), &["nodes"]).fails(&["cannot use the kubeconfig /nowhere"]);
    let nowhere = answer(command(&["nodes"]).env("HOME", "/nowhere"));
    nowhere.fails(&["no kubeconfig found", "try: name a kubeconfig with --kubeconfig"]);
    octavo(admin, &["nodes", "--octavo-namespace=default"]).fails(&[
        "no Service of an aggregator in the namespace default",
        "try: install Octavo in this cluster",
    ]);
}

/// Tokens identify their users to the aggregator, which is found only in the namespace that they name.
fn users_with_tokens(release: &Release) {
    let namespace = format!("--octavo-namespace={}", release.namespace);
    let cli = ("Role", "cli-octavo-cli");
    let viewer = release.user("viewer", &[cli, ("ClusterRole", "cli-octavo-viewer")]);
    let types = until(
        "the viewer's roles",
        || octavo(&viewer.path(), &["types", &namespace]),
        |answer| answer.code == Some(0),
    );
    assert!(types.output.contains("nvidia-h100-80gb"), "{types:?}");
    octavo(&viewer.path(), &["nodes", &namespace])
        .fails(&["you do not have the permission to list nodes.octavo.dev"]);
    let versions = octavo(&viewer.path(), &["version", &namespace]);
    assert!(versions.succeeds().contains(&format!("aggregator  {VERSION}")), "{versions:?}");
    assert!(versions.errors.contains("agents are not shown"), "{versions:?}");
    octavo(&viewer.path(), &["nodes"]).fails(&[
        "cannot search for the aggregator: list services in the namespace octavo-system",
        "403 Forbidden",
        "--octavo-namespace",
    ]);
    // Found by its labels alone, it does not receive the token.
    release.bind("ClusterRole", "view", "viewer");
    until(
        "permission to list services everywhere",
        || octavo(&viewer.path(), &["types"]),
        |answer| answer.errors.contains("is not sent to the namespace"),
    );
}

fn forbidden_steps_name_the_permission(release: &Release) {
    let namespace = format!("--octavo-namespace={}", release.namespace);
    let unprivileged = release.user("unprivileged", &[]);
    octavo(&unprivileged.path(), &["nodes", &namespace])
        .fails(&["cannot search for the aggregator: list services in the namespace test-", "403"]);
    let partial = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "partial", "namespace": release.namespace},
        "rules": [{"apiGroups": [""], "resources": ["services", "pods", "configmaps"], "verbs": ["get", "list"]}],
    });
    release.api.apply(&partial.to_string());
    let partial = release.user("partial", &[("Role", "partial")]);
    let refused = until(
        "the partial role",
        || octavo(&partial.path(), &["nodes", &namespace]),
        |answer| !answer.errors.contains("list services"),
    );
    refused.fails(&[
        "cannot forward a connection to the pod test-",
        "pods/portforward",
        "try: ask the cluster administrator for the Role octavo-cli",
    ]);
}

fn connection_errors_name_the_cause(release: &Release) {
    let admin = release.api.kubeconfig();
    let ca = release.api.ca().to_str().unwrap();
    octavo(admin, &["nodes", "--certificate-authority", ca])
        .fails(&["it is signed by an unknown CA", "try: specify the CA certificate with"]);
    octavo(admin, &["nodes", "--tls-server-name=wrong.example"])
        .fails(&["certificate not valid for name \"wrong.example\"", "--tls-server-name"]);
    release.target_port(&json!(9));
    octavo(admin, &["nodes"])
        .fails(&["cannot connect to port 9 of the pod cli-octavo-aggregator-"]);
    release.target_port(&json!("https"));
    release.scale("--replicas=0");
    let unready = until(
        "no pod",
        || octavo(admin, &["nodes"]),
        |answer| answer.errors.contains("it has no pods at all"),
    );
    unready.fails(&["the Service test-", "has no ready pod", "try: check the aggregator with"]);
    release.scale("--replicas=1");
    release.rolled_out();
}

/// A running `octavo watch`; killed when dropped.
struct Watch {
    child: Child,
    changes: Lines,
    notes: Lines,
}

impl Watch {
    fn start(kubeconfig: PathBuf) -> Self {
        let mut command = command(&["watch", "-o", "json", "--kubeconfig"]);
        command.arg(kubeconfig).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let changes = Lines::of(child.stdout.take().unwrap());
        let notes = Lines::of(child.stderr.take().unwrap());
        Self { child, changes, notes }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}

fn watch_survives_the_end_of_the_pod(release: &Release) {
    let api = release.api;
    let gpu_node = release.gpu_node.name();
    let mut watch = Watch::start(api.kubeconfig().to_owned());
    watch.changes.find_line(gpu_node);
    let relabel = |count: &str| {
        api.kubectl(&[
            "label",
            "node",
            gpu_node,
            "--overwrite",
            &format!("nvidia.com/gpu.count={count}"),
        ]);
    };
    relabel("4");
    watch.changes.find_line("\"total\":4");
    api.kubectl(&["delete", "pods", "-n", &release.namespace, "--all", "--wait=false"]);
    watch.notes.find_line("note: ");
    release.rolled_out();
    relabel("2");
    watch.changes.find_line("\"total\":2");
}
