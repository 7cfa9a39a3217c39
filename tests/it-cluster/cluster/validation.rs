//! `octavo validate` on a real kubelet. Only the devices are simulated: the device plugin gives each container a driver
//! that knows the allocated devices, as NVIDIA's container runtime does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use octavo_kubelet::proto::device_plugin::{ContainerAllocateResponse, DeviceSpec, Mount};
use serde_json::{Value, json};

use super::nodes::{Nodes, open_to_all};
use super::plugin::{Device, Plugin};
use crate::image::Images;
use crate::machine::Machine;
use crate::node::Node;
use crate::support;
use crate::time_limits::{Finish, until};

const NODE: &str = "node-2";
const GPU: &str = "nvidia.com/gpu";
const HALF: &str = "nvidia.com/mig-3g.40gb";
const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");
/// One of the directories in which a driver is searched.
const DRIVER: &str = "/run/nvidia/driver/usr/lib64";
const INSTANCES: &str = "mig: enabled, instances: [{profile: 3g.40gb, start: 0}]";
/// Labels of the node that the command compares.
const COMPARED: [&str; 3] =
    ["type.octavo.dev/", "octavo.dev/memory-mib", "nvidia.com/mig-3g.40gb.memory"];

/// The node with images, labels, and a namespace.
struct Site {
    nodes: &'static Nodes,
    namespace: String,
    labels: BTreeMap<String, String>,
}

/// A container's view: a machine with the devices that it may use.
fn view(nodes: &Nodes, name: &str, gpus: &str) -> Machine {
    let machines = nodes.api().directory().join("machines");
    fs::create_dir_all(&machines).unwrap();
    let machine = Machine::at(&machines, name, &format!("machine: {name}\ngpus:\n- {{{gpus}}}\n"));
    open_to_all(machine.path());
    machine
}

/// The UUID of the GPU or of its only partition.
fn uuid(machine: &Machine) -> String {
    let world = machine.world();
    let gpu = &world.gpus[0];
    let parts = gpu.mig.iter().flat_map(|mig| &mig.instances).flat_map(|one| &one.compute);
    parts.map(|part| part.uuid.clone()).next().unwrap_or_else(|| gpu.uuid.clone())
}

/// The container's edits for an allocation: the variable, the device files, and the driver.
fn injected(machine: &Path, ids: &[String]) -> ContainerAllocateResponse {
    let file = |name: &str| DeviceSpec {
        container_path: format!("/dev/{name}"),
        host_path: "/dev/null".to_owned(),
        permissions: "rw".to_owned(),
    };
    let envs = [
        ("NVIDIA_VISIBLE_DEVICES".to_owned(), ids.join(",")),
        ("OCTAVO_SYS_ROOT".to_owned(), format!("{DRIVER}/sys")),
        // A driver that hangs blocks the container until it is killed.
        ("OCTAVO_CALL_DEADLINE".to_owned(), "1h".to_owned()),
    ];
    ContainerAllocateResponse {
        envs: envs.into(),
        devices: vec![file("nvidia0"), file("nvidiactl")],
        mounts: vec![Mount {
            container_path: DRIVER.to_owned(),
            host_path: machine.display().to_string(),
            read_only: false,
        }],
        ..ContainerAllocateResponse::default()
    }
}

impl Site {
    fn new() -> Self {
        let nodes = Nodes::shared();
        let api = nodes.api();
        nodes.import(NODE, &Images::shared().archive("agent"));
        let namespace = api.namespace();
        let enforced = "pod-security.kubernetes.io/enforce=restricted";
        api.kubectl(&["label", "namespace", &namespace, enforced]);
        api.await_account(&namespace);
        let site = Self { nodes, namespace, labels: labels() };
        let mut arguments = vec!["label", "node", NODE, "--overwrite"];
        let labels: Vec<String> =
            site.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        arguments.extend(labels.iter().map(String::as_str));
        api.kubectl(&arguments);
        site
    }

    /// Advertises one device of a resource, whose container sees this machine.
    fn offer(&self, resource: &str, seen: &Machine) -> Plugin {
        let (path, id) = (seen.path().to_owned(), uuid(seen));
        let device = vec![Device { id, gpu: 0 }];
        let plugin = Plugin::offer_with(
            &self.nodes.kubelet(NODE),
            resource,
            (seen.store(), move |_: &_| device.clone()),
            move |ids| injected(&path, ids),
        );
        self.await_allocatable(resource, 1);
        plugin
    }

    #[track_caller]
    fn await_allocatable(&self, resource: &str, count: usize) {
        let resource = resource.replace('.', "\\.");
        let allocatable = format!("--for=jsonpath={{.status.allocatable.{resource}}}={count}");
        self.nodes.api().kubectl(&["wait", "node", NODE, &allocatable, "--timeout=300s"]);
    }

    /// Ends the plugins, so that the node offers nothing.
    fn withdraw(&self, plugins: Vec<Plugin>) {
        drop(plugins);
        self.await_allocatable(GPU, 0);
        self.await_allocatable(HALF, 0);
    }

    fn command(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let image = format!("octavo/agent:{}", env!("CARGO_PKG_VERSION"));
        let mut command = Command::new(OCTAVO);
        command
            .args(["validate", "--namespace", &self.namespace, "--image", &image])
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null());
        command
    }

    /// Validates the node, which must exit with `code`. Returns the results by resource, and the messages.
    #[track_caller]
    fn validate(&self, arguments: &[&str], code: i32) -> (BTreeMap<String, Value>, String) {
        self.validate_as(self.nodes.api().kubeconfig(), arguments, code)
    }

    #[track_caller]
    fn validate_as(
        &self,
        kubeconfig: &Path,
        arguments: &[&str],
        code: i32,
    ) -> (BTreeMap<String, Value>, String) {
        let arguments = [&["-o", "json", "--timeout", "5m"], arguments].concat();
        let output = self.command(kubeconfig, &arguments).finish();
        let [out, notes] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{notes}");
        assert_eq!(self.pods(), [""; 0], "left behind");
        let document: Value = serde_json::from_str(&out).unwrap_or_default();
        let all = document["validations"].as_array().cloned().unwrap_or_default();
        let by_resource = all
            .into_iter()
            .map(|one| (one["resource"].as_str().unwrap_or_default().to_owned(), one));
        (by_resource.collect(), notes)
    }

    /// Names of all pods in the namespace that belong to validations.
    fn pods(&self) -> Vec<String> {
        let ours = "--selector=app.kubernetes.io/name=octavo-validate";
        let names = ["get", "pods", "-n", &self.namespace, ours, "-o", "name"];
        let names = self.nodes.api().kubectl(&names);
        names.lines().map(str::to_owned).collect()
    }

    /// Starts a validation, and waits until its pod runs. The driver of the container must hang.
    fn start_hanging(&self) -> (Child, String) {
        let api = self.nodes.api();
        let mut command = self.command(api.kubeconfig(), &[NODE, "--timeout", "10m"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let pod = until("a pod", || self.pods(), |pods| pods.len() == 1).remove(0);
        let running = "--for=jsonpath={.status.phase}=Running";
        api.kubectl(&["wait", "-n", &self.namespace, &pod, running, "--timeout=300s"]);
        (child, pod)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let api = self.nodes.api();
        let mut arguments = vec!["label".to_owned(), "node".to_owned(), NODE.to_owned()];
        arguments.extend(self.labels.keys().map(|key| format!("{key}-")));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let _panic_was_reported = api.try_kubectl(&arguments);
        let delete = ["delete", "namespace", &self.namespace, "--wait=false"];
        let _panic_was_reported = api.try_kubectl(&delete);
    }
}

/// The labels of a machine with a whole GPU and a partitioned one, as the agent computes them.
fn labels() -> BTreeMap<String, String> {
    let gpus = format!("- {{board: A100_80GB}}\n- {{board: A100_80GB, {INSTANCES}}}\n");
    let machine = Node::new(&gpus);
    let output = machine.run_read_only(&["labels", "-o", "json", "--mig-strategy=mixed"]);
    assert!(output.status.success(), "{output:?}");
    let labels: BTreeMap<String, String> = serde_json::from_slice(&output.stdout).unwrap();
    let labels: BTreeMap<String, String> = labels
        .into_iter()
        .filter(|(key, _)| COMPARED.iter().any(|prefix| key.starts_with(prefix)))
        .collect();
    assert_eq!(labels.len(), 3, "{labels:?}");
    labels
}

/// The evidence of a step.
#[track_caller]
fn evidence(validation: &Value, step: &str) -> (String, String) {
    let steps = validation["steps"].as_array().unwrap();
    let found =
        steps.iter().find(|one| one["step"] == step).unwrap_or_else(|| panic!("{validation:#}"));
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("verdict"), text("evidence"))
}

#[test]
fn f3_validation_proves_allocation_or_reports_the_reason_and_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _alone = runtime.block_on(Nodes::alone());
    let site = Site::new();
    whole_gpu_and_partition_pass(&site);
    wrong_containers_fail_with_the_reason(&site);
    node_without_free_units_is_skipped_with_its_holder(&site);
    interrupted_and_killed_runs_leave_nothing(&site);
    unusable_nodes_and_arguments_are_reported(&site);
}

fn whole_gpu_and_partition_pass(site: &Site) {
    let whole = view(site.nodes, "validate-whole", "board: A100_80GB");
    let part = view(site.nodes, "validate-part", &format!("board: A100_80GB, {INSTANCES}"));
    let plugins = vec![site.offer(GPU, &whole), site.offer(HALF, &part)];
    let pool = format!("-l=kubernetes.io/hostname={NODE}");
    let account = documented_account(site);
    let (results, notes) = site.validate_as(&account.path(), &[&pool], 0);
    assert_eq!(results.len(), 2, "{results:#?}");
    assert!(notes.contains(&format!("{NODE} {GPU}: passed")), "{notes}");
    for (resource, machine, memory) in [(GPU, &whole, "80 GiB"), (HALF, &part, "39.2 GiB")] {
        let validation = &results[resource];
        assert_eq!(validation["outcome"], "passed", "{validation:#}");
        let steps = validation["steps"].as_array().unwrap();
        assert!(steps.iter().all(|step| step["verdict"] == "ok"), "{validation:#}");
        assert_eq!(steps.len(), 7, "{validation:#}");
        let only = format!("only {} is visible", uuid(machine));
        assert_eq!(evidence(validation, "isolation").1, only);
        assert_eq!(evidence(validation, "memory").1, memory);
        assert_eq!(evidence(validation, "device-files").1, "/dev/nvidia0, /dev/nvidiactl");
        let kind = evidence(validation, "type").1;
        assert_eq!(kind.ends_with(", 3g.40gb"), resource == HALF, "{kind}");
    }
    site.withdraw(plugins);
}

/// A kubeconfig of an account with exactly the permissions in the documentation.
fn documented_account(site: &Site) -> super::objects::TokenKubeconfig {
    let api = site.nodes.api();
    let page = fs::read_to_string(support::root().join("docs/tasks/validate.md")).unwrap();
    let (_, yaml) = page.split_once("```yaml\n").unwrap();
    let (yaml, _) = yaml.split_once("```").unwrap();
    let namespace = &site.namespace;
    let user = "{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}";
    let account = format!("{{kind: ServiceAccount, name: default, namespace: {namespace}}}");
    assert!(yaml.contains(user), "{yaml}");
    api.apply(&yaml.replace(user, &account).replace("octavo-system", namespace));
    let token = api.kubectl(&["create", "token", "default", "-n", namespace]);
    api.kubeconfig_with_token(token.trim_end())
}

fn wrong_containers_fail_with_the_reason(site: &Site) {
    let two = view(site.nodes, "validate-two", "board: A100_80GB, count: 2");
    // A driver without a library.
    let none = view(site.nodes, "validate-none", &format!("board: A100_80GB, {INSTANCES}"));
    fs::remove_file(none.library()).unwrap();
    let plugins = vec![site.offer(GPU, &two), site.offer(HALF, &none)];
    let (results, _) = site.validate(&[NODE], 1);
    let (verdict, text) = evidence(&results[GPU], "isolation");
    assert_eq!(verdict, "failing");
    assert!(text.starts_with("1 unit was allocated, but the container sees GPU-"), "{text}");
    assert_eq!(evidence(&results[GPU], "memory").0, "ok");
    let (verdict, text) = evidence(&results[HALF], "type");
    assert_eq!(verdict, "failing");
    assert!(text.starts_with("NVML is not usable in the container: "), "{text}");
    assert_eq!(evidence(&results[HALF], "started").0, "ok");
    site.withdraw(plugins);
}

fn node_without_free_units_is_skipped_with_its_holder(site: &Site) {
    let api = site.nodes.api();
    let whole = view(site.nodes, "validate-held", "board: A100_80GB");
    let part = view(site.nodes, "validate-free", &format!("board: A100_80GB, {INSTANCES}"));
    let plugins = vec![site.offer(GPU, &whole), site.offer(HALF, &part)];
    let elsewhere = api.namespace();
    api.await_account(&elsewhere);
    let holder = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder", "namespace": elsewhere},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": NODE}, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "one", "image": "test.invalid/pause:1", "imagePullPolicy": "Never",
                "resources": {"limits": {GPU: "1"}},
            }],
        },
    });
    api.apply(&holder.to_string());
    let ready = "--for=condition=Ready";
    api.kubectl(&["wait", "-n", &elsewhere, "pod/holder", ready, "--timeout=300s"]);
    let (results, _) = site.validate(&[NODE], 0);
    assert_eq!(
        (&results[GPU]["outcome"], &results[HALF]["outcome"]),
        (&json!("skipped"), &json!("passed"))
    );
    let held = format!("0 of 1 are free; held by {elsewhere}/holder (1)");
    assert_eq!(evidence(&results[GPU], "free-units"), ("not-applicable".to_owned(), held));
    // If everything is skipped, nothing is proven.
    let (_, notes) = site.validate(&[NODE, "--resource", GPU], 1);
    assert!(notes.contains("no resource was validated"), "{notes}");
    api.kubectl(&["delete", "namespace", &elsewhere, "--timeout=120s"]);
    site.withdraw(plugins);
}

fn interrupted_and_killed_runs_leave_nothing(site: &Site) {
    let api = site.nodes.api();
    let whole = view(site.nodes, "validate-again", "board: A100_80GB");
    whole.faults("[{call: nvmlInit*, hang: forever}]");
    let plugins = vec![site.offer(GPU, &whole)];
    let (child, _) = site.start_hanging();
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(notes.contains("interrupted: the results are incomplete"), "{notes}");
    assert_eq!(site.pods(), [""; 0]);

    let (mut child, pod) = site.start_hanging();
    child.kill().unwrap();
    child.wait().unwrap();
    // The kubelet ends the pod at its deadline, and its unit is free again.
    let deadline = r#"{"spec":{"activeDeadlineSeconds":1}}"#;
    api.kubectl(&["patch", "-n", &site.namespace, &pod, "-p", deadline]);
    let failed = "--for=jsonpath={.status.reason}=DeadlineExceeded";
    api.kubectl(&["wait", "-n", &site.namespace, &pod, failed, "--timeout=300s"]);
    whole.faults("[]");
    let (results, notes) = site.validate(&[NODE, "--resource", GPU], 0);
    assert!(notes.contains("removed 1 pod of an earlier run"), "{notes}");
    assert_eq!(results[GPU]["outcome"], "passed");
    site.withdraw(plugins);
}

fn unusable_nodes_and_arguments_are_reported(site: &Site) {
    // The kubelet lists the units of a plugin that has ended for a few minutes.
    let (results, _) = site.validate(&[NODE, "--resource", GPU], 1);
    let (_, text) = evidence(&results[GPU], "free-units");
    assert_eq!(text, "0 of 1 units are allocatable");
    let (results, _) = site.validate(&[NODE, "--resource", "nvidia.com/gpu.shared"], 1);
    let (verdict, text) = evidence(&results["nvidia.com/gpu.shared"], "free-units");
    assert_eq!((verdict.as_str(), text.as_str()), ("failing", "the node does not offer it"));
    let (_, notes) = site.validate(&["no-such-node"], 1);
    assert!(notes.contains("the cluster has no node no-such-node"), "{notes}");
    let (_, notes) = site.validate(&["-l", "pool=none"], 1);
    assert!(notes.contains("no node matches the selector pool=none"), "{notes}");
    let (_, notes) = site.validate(&["-l", "a in ("], 1);
    assert!(notes.contains("cannot list nodes with the selector"), "{notes}");
}
