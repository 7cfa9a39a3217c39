//! Octavo on the two real nodes, from the manifests that people apply: node-1 has two A100, node-2 an H100.
//!
//! What the manifests are changed in is all in [`AGENT`] and [`AGGREGATOR`]: there is no registry, no driver, no DNS and no service
//! address but that of the API, and the two nodes are one machine, so that `/var/lib/octavo` would be one folder.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::Api;
use super::super::nodes::{Nodes, root};
use crate::fleet::api::Api as Readers;
use crate::machine::Machine;

pub(super) const A100: &str = "node-1";
pub(super) const H100: &str = "node-2";
/// Whose writes are counted.
pub(super) const ACCOUNT: &str = "system:serviceaccount:octavo-system:octavo-agent";
pub(super) const NAMESPACE: &str = "octavo-system";
const NAME: &str = "octavo-aggregator.octavo-system.svc";
/// What lets agents evict pods.
const DRAIN: &str = "options/drain";
/// Longer than anything takes on a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_mins(3);

const LAYOUTS: &str = "
apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  halves: [{devices: all, mig: {3g.40gb: 2}}]
  small: [{devices: all, mig: {1g.10gb: 7}}]
  first-small: [{devices: 0, mig: {1g.10gb: 7}}]
  second-small: [{devices: 1, mig: {1g.10gb: 7}}]
";

const AGGREGATOR: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: octavo-aggregator, namespace: octavo-system}
spec:
  template:
    spec:
      containers:
      - {name: aggregator, image: test.invalid/octavo-aggregator:1, imagePullPolicy: Never}
";

const AGENT: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: octavo-agent, namespace: octavo-system}
spec:
  template:
    spec:
      hostAliases: [{ip: ADDRESS, hostnames: [octavo-aggregator.octavo-system.svc]}]
      containers:
      - name: agent
        image: test.invalid/octavo-agent:1
        imagePullPolicy: Never
        env:
        - {name: OCTAVO_NVML_LIBRARY, value: /simulated/libnvidia-ml.so.1}
        - {name: OCTAVO_SYS_ROOT, value: /simulated/sys}
        - {name: OCTAVO_DRAIN, value: affected}
        volumeMounts:
        - {name: simulated, mountPath: /simulated, subPathExpr: $(OCTAVO_NODE_NAME)}
        - {name: state, mountPath: /var/lib/octavo, subPathExpr: $(OCTAVO_NODE_NAME)}
      volumes:
      - {name: simulated, hostPath: {path: FOLDER/machines, type: Directory}}
      - {name: state, hostPath: {path: FOLDER/state, type: DirectoryOrCreate}}
";

/// The cluster with Octavo in it.
pub(super) struct Site {
    nodes: &'static Nodes,
    folder: PathBuf,
    pub(super) machine: Machine,
    _other: Machine,
    pub(super) readers: Readers,
}

impl Site {
    /// Installs the tier `applier`, and waits until everything of it is ready.
    pub(super) fn new() -> Self {
        let nodes = Nodes::shared();
        let folder = nodes.api().folder().join("octavo");
        let machines = folder.join("machines");
        for node in [A100, H100] {
            fs::create_dir_all(folder.join("state").join(node)).unwrap();
        }
        fs::create_dir_all(&machines).unwrap();
        let scenario = |name: &str, gpus: &str| {
            let text = format!("machine: {name}\nlatency: real\ngpus:\n- {gpus}\n");
            Machine::at(&machines, name, &text)
        };
        let machine = scenario(A100, "{board: A100_80GB, count: 2}");
        let other = scenario(H100, "{board: H100_80GB_SXM, mig: enabled}");
        images(nodes);
        let readers = aggregator(nodes.api(), &folder);
        let site = Self {
            nodes,
            folder,
            machine,
            _other: other,
            readers,
        };
        site.install_agents();
        site
    }

    pub(super) fn api(&self) -> &'static Api {
        self.nodes.api()
    }

    fn install_agents(&self) {
        let api = self.api();
        // Some other program makes it in a real cluster. The driver is mounted here, so the usual runtime will do.
        api.apply("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: runc}");
        let layouts = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "octavo-layouts", "namespace": NAMESPACE},
            "data": {"layouts.yaml": LAYOUTS},
        });
        api.apply(&layouts.to_string());
        let address = address(api);
        let agent = AGENT
            .replace("ADDRESS", &address)
            .replace("FOLDER", self.folder.to_str().unwrap());
        api.kubectl(&["apply", "-k", &deploy(DRAIN)]);
        install(api, &self.folder, "tiers/applier", &[AGGREGATOR, &agent]);
        let present = "nvidia.com/gpu.present=true";
        api.kubectl(&["label", "node", A100, H100, present]);
        self.rolled_out("daemonset/octavo-agent");
    }

    /// Deletes all that was installed.
    pub(super) fn uninstall(&self) {
        let overlay = self.folder.join("overlay");
        for folder in [overlay.to_str().unwrap(), &deploy(DRAIN)] {
            let delete = ["delete", "-k", folder, "--ignore-not-found"];
            self.api().kubectl(&delete);
        }
    }

    /// Waits until all pods of a controller are ready.
    #[track_caller]
    pub(super) fn rolled_out(&self, what: &str) {
        rolled_out(self.api(), what);
    }

    /// What the API server has of something.
    #[track_caller]
    pub(super) fn get(&self, arguments: &[&str]) -> Value {
        let arguments = [&["get", "-o", "json", "--show-managed-fields"], arguments].concat();
        serde_json::from_str(&self.api().kubectl(&arguments)).unwrap()
    }

    /// The agent's pod on a node.
    #[track_caller]
    pub(super) fn pod(&self, node: &str) -> String {
        let on = format!("--field-selector=spec.nodeName={node}");
        let ours = "--selector=app.kubernetes.io/name=octavo-agent";
        let pods = self.get(&["pods", "-n", NAMESPACE, ours, &on]);
        assert_eq!(pods["items"].as_array().unwrap().len(), 1, "{pods}");
        pods["items"][0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The folder of a node's kubelet.
    pub(super) fn kubelet(&self, node: &str) -> PathBuf {
        self.nodes.kubelet(node)
    }

    /// Asks for a Node until it is as wanted, and gives it.
    #[track_caller]
    pub(super) fn node(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut node = Value::Null;
        self.until(&format!("{name} as wanted"), || {
            node = self.get(&["node", name]);
            wanted(&node)
        });
        node
    }

    /// Looks until something is so.
    #[track_caller]
    pub(super) fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !so() {
            let patient = began.elapsed() < PATIENCE;
            assert!(patient, "never: {what}\n{}", self.story());
            // Nothing tells when a simulated machine changes; it is looked at, at a pace that leaves the processor to others.
            thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Profiles that a GPU of node-1 really has, in their order, and whether each has its compute instance.
    pub(super) fn geometry(&self, gpu: usize) -> Vec<String> {
        let world = self.machine.world();
        let gpu = &world.gpus[gpu];
        let mut all: Vec<(u32, String)> = gpu
            .mig
            .iter()
            .flat_map(|mig| &mig.instances)
            .map(|one| {
                let profile = gpu.profiles.iter().find(|known| known.id == one.profile_id);
                let mark = if one.compute.is_empty() { "!" } else { "" };
                let name = format!("{}{mark}", profile.unwrap().name);
                (one.placement.start, name)
            })
            .collect();
        all.sort();
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// Whether something was begun on node-1 and neither finished nor brought back.
    pub(super) fn is_under_way(&self) -> bool {
        self.folder
            .join("state")
            .join(A100)
            .join("journal")
            .exists()
    }

    /// What there is to read when something went wrong.
    pub(super) fn story(&self) -> String {
        let ours = "--selector=app.kubernetes.io/name=octavo-agent";
        let say = |arguments: &[&str]| {
            let output = self.api().try_kubectl(arguments);
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        [
            say(&["describe", "node", A100]),
            say(&["describe", "pods", "-n", NAMESPACE, ours]),
            say(&["logs", "-n", NAMESPACE, ours, "--prefix", "--tail=60"]),
        ]
        .join("\n")
    }
}

/// Says a figure to whoever runs the tests with `--nocapture`.
#[expect(
    clippy::print_stderr,
    reason = "figures are to be seen, and nothing depends on them"
)]
pub(super) fn figure(text: &str) {
    eprintln!("{text}");
}

/// Makes images of our programs for both nodes.
fn images(nodes: &Nodes) {
    for (program, name) in [
        (env!("CARGO_BIN_EXE_octavo-agent"), "octavo-agent"),
        (env!("CARGO_BIN_EXE_octavo-aggregator"), "octavo-aggregator"),
    ] {
        let path = format!("/{name}");
        let root = root(&[(Path::new(program), &path)]);
        // What is for debuggers is nine parts in ten.
        let stripped = Command::new("strip").arg(root.path().join(name)).status();
        assert!(stripped.unwrap().success());
        for node in [A100, H100] {
            let image = format!("test.invalid/{name}:1");
            nodes.image(node, &image, root.path(), &[&path]);
        }
    }
}

/// A folder of `deploy`.
fn deploy(folder: &str) -> String {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    ours.join(folder).to_str().unwrap().to_owned()
}

/// Applies a folder of `deploy` with patches, as people do.
fn install(api: &Api, folder: &Path, kustomization: &str, patches: &[&str]) {
    let rendered = api.kubectl(&["kustomize", &deploy(kustomization)]);
    let overlay = folder.join("overlay");
    fs::create_dir_all(&overlay).unwrap();
    fs::write(overlay.join("rendered.yaml"), rendered).unwrap();
    let patches: Vec<Value> = patches.iter().map(|text| json!({"patch": text})).collect();
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["rendered.yaml"], "patches": patches,
    });
    fs::write(
        overlay.join("kustomization.yaml"),
        kustomization.to_string(),
    )
    .unwrap();
    api.kubectl(&["apply", "-k", overlay.to_str().unwrap()]);
}

/// Installs the aggregator with a certificate for its name; a reader of it.
fn aggregator(api: &Api, folder: &Path) -> Readers {
    // No node is labelled yet, so no agent starts.
    install(api, folder, "tiers/applier", &[AGGREGATOR]);
    let pair = rcgen::generate_simple_self_signed([NAME.to_owned(), "localhost".to_owned()]);
    let pair = pair.unwrap();
    let certificate = folder.join("ca.crt");
    fs::write(&certificate, pair.cert.pem()).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "octavo-aggregator-tls", "namespace": NAMESPACE},
        "stringData": {"tls.crt": pair.cert.pem(), "tls.key": pair.signing_key.serialize_pem()},
    });
    let trusted = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "octavo-aggregator-ca", "namespace": NAMESPACE},
        "data": {"ca.crt": pair.cert.pem()},
    });
    api.apply(&format!("{secret}\n---\n{trusted}"));
    rolled_out(api, "deployment/octavo-aggregator");
    let address: SocketAddr = format!("{}:8443", address(api)).parse().unwrap();
    Readers::trusting(address, &certificate)
}

/// Where the aggregator's pod is.
fn address(api: &Api) -> String {
    let pods = ["get", "pods", "-n", NAMESPACE];
    let ours = "--selector=app.kubernetes.io/name=octavo-aggregator";
    let address = "-o=jsonpath={.items[0].status.podIP}";
    api.kubectl(&[&pods[..], &[ours, address]].concat())
}

#[track_caller]
fn rolled_out(api: &Api, what: &str) {
    let wait = ["rollout", "status", "-n", NAMESPACE, "--timeout=180s", what];
    let waited = api.try_kubectl(&wait);
    if !waited.status.success() {
        let all = api.try_kubectl(&["describe", "pods", "-n", NAMESPACE]);
        let logs = api.try_kubectl(&["logs", "-n", NAMESPACE, what, "--tail=60"]);
        let [waited, all, logs] =
            [waited.stderr, all.stdout, logs.stdout].map(|text| String::from_utf8(text).unwrap());
        panic!("{what}: {waited}\n{all}\n{logs}");
    }
}
