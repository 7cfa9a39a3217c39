//! Annotations of pods with their accelerator types: the real aggregator on a real API server. Node reports are
//! generated.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Identity, Inventory, PciIds};
use octavo_model::resource::ShareId;
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::protocol::Parts;
use octavo_stream::status;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::transport::Endpoint;

use super::Api;
use crate::agent_stream::{AgentStream, delta};
use crate::process::Aggregator;

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
const TYPE: &str = "accelerator.opendatahub.io/type";
pub(super) const A100: &str = "nvidia-a100-80gb";
const NAMESPACE: &str = "team-a";
/// Logged when this aggregator becomes the leader.
const HOLDS: &str = "this process is the leader";

/// An API server with a namespace, and an aggregator that receives reports about pods.
struct AnnotationFixture {
    api: Api,
}

impl AnnotationFixture {
    fn new() -> Self {
        let api = Api::fresh();
        for namespace in [NAMESPACE, "octavo-system"] {
            api.kubectl(&["create", "namespace", namespace]);
        }
        api.kubectl(&["create", "serviceaccount", "default", "-n", NAMESPACE]);
        Self { api }
    }

    /// Creates a pod on a node and returns its UID.
    fn pod(&self, name: &str, node: &str) -> String {
        let pod = self.api.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {"person": "1"}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "test.invalid/train:1"}]},
        }));
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn get(&self, pod: &str) -> Value {
        let get = ["get", "pod", pod, "-n", NAMESPACE, "-o", "json"];
        serde_json::from_str(&self.api.kubectl(&get)).unwrap()
    }

    /// Waits until the pod has this type.
    #[track_caller]
    fn await_type(&self, pod: &str, kind: &str) {
        let path = TYPE.replace('.', "\\.");
        let condition = format!("--for=jsonpath={{.metadata.annotations.{path}}}={kind}");
        let wait = ["wait", "pod", pod, "-n", NAMESPACE, "--timeout=120s"];
        self.api.kubectl(&[&wait[..], &[&condition]].concat());
    }

    fn aggregator(&self) -> Aggregator {
        let kubeconfig = format!("--kubeconfig={}", self.api.kubeconfig().display());
        Aggregator::start(&["--plaintext", "--annotate-pods", "--log-level=debug", &kubeconfig])
    }

    /// Number of answered requests for pods with this verb.
    fn requested(&self, verb: &str) -> usize {
        let log = self.api.audit();
        let of = |event: &&Value| {
            let agent = event["userAgent"].as_str().unwrap_or_default();
            event["verb"] == verb
                && event["objectRef"]["resource"] == "pods"
                && event["stage"] == "ResponseComplete"
                && !agent.starts_with("kubectl")
        };
        log.iter().filter(of).count()
    }

    fn transitions(&self) -> String {
        let path = "-o=jsonpath={.spec.leaseTransitions}";
        let get = ["get", "lease", "octavo-aggregator", "-n", "octavo-system"];
        self.api.kubectl(&[&get[..], &[path]].concat())
    }
}

/// The report of a node: an A100 with these pods, each with the prefix of its UID if known.
pub(super) fn reported(namespace: &str, pods: &[(&str, Option<&str>)]) -> Parts {
    let pci = PciAddress::new(0, 7, 0, 0).unwrap();
    let ids = PciIds {
        vendor: 0x10de,
        device: 0x20b5,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: None,
    };
    let mut device = Device::new(pci, ids);
    device.condition = Condition::Working;
    device.identity = Identity::Known { type_name: A100.parse().unwrap(), sku: None };
    let inventory = Inventory { devices: vec![device], ..Inventory::default() };
    let tenants = pods.iter().map(|(pod, uid)| Tenant {
        namespace: Some(namespace.to_owned()),
        pod: Some((*pod).to_owned()),
        uid: uid.map(|uid| uid.chars().take(8).collect()),
        container: Some("main".to_owned()),
        ids: vec![ShareId::whole(GPU)],
        ..Tenant::default()
    });
    let unit =
        UnitUsage { uuid: GPU.to_owned(), tenants: tenants.collect(), ..UnitUsage::default() };
    let usage = Usage {
        devices: vec![DeviceUsage {
            pci,
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![unit],
        }],
        missing: Vec::new(),
        ..Usage::default()
    };
    let parts = status::encode(&inventory, &LabelSet::default(), None);
    let parts = parts.iter().map(|(key, content)| (key.clone(), content.clone()));
    parts.chain([status::encode_usage(&usage)]).collect()
}

/// Reports these parts as a node, on a stream that stays open.
pub(super) async fn report(aggregator: &Aggregator, node: &str, parts: Parts) -> AgentStream {
    let endpoint = Endpoint::from_shared(format!("http://{}", aggregator.grpc)).unwrap();
    let mut client = FleetClient::new(endpoint.connect().await.unwrap());
    let introduced = AgentStream::with_first_status(&mut client, node, parts);
    timeout(Duration::from_mins(2), introduced).await.unwrap()
}

/// Sends SIGTERM, as kubelet does.
fn terminate(aggregator: &Aggregator) {
    let pid = Pid::from_raw(i32::try_from(aggregator.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
}

#[tokio::test]
async fn req_010_type_of_a_pod_is_written_once_and_not_repeated_if_unchanged() {
    let fixture = AnnotationFixture::new();
    let mut first = fixture.aggregator();
    first.expect_log(HOLDS);
    let uid = fixture.pod("annotated", "n");
    fixture.pod("by-name-alone", "n");
    fixture.pod("elsewhere", "m");
    fixture.pod("another-uid", "n");
    fixture.pod("ended", "n");
    let ended = json!({"status": {"phase": "Succeeded"}}).to_string();
    let patch = ["patch", "pod", "ended", "-n", NAMESPACE];
    let patch = [&patch[..], &["--subresource=status", "-p", &ended]].concat();
    fixture.api.kubectl(&patch);
    let parts = reported(
        NAMESPACE,
        &[
            ("another-uid", Some("00000000")),
            ("elsewhere", None),
            ("ended", None),
            ("no-such-pod", None),
            ("by-name-alone", None),
            ("annotated", Some(&uid)),
        ],
    );
    let _line = report(&first, "n", parts.clone()).await;
    fixture.await_type("annotated", A100);
    fixture.await_type("by-name-alone", A100);
    let shown = fixture.get("annotated");
    let expected = json!({"person": "1", TYPE: A100, "octavo.dev/sharing": "exclusive"});
    assert_eq!(shown["metadata"]["annotations"], expected);
    terminate(&first);
    first.expect_log("Lease released");
    for pod in ["elsewhere", "another-uid", "ended"] {
        let annotations = &fixture.get(pod)["metadata"]["annotations"];
        assert_eq!(*annotations, json!({"person": "1"}), "{pod}");
    }
    assert_eq!(fixture.requested("patch"), 2);

    // A new process reads each pod once and writes nothing.
    let read = fixture.requested("get");
    let mut second = fixture.aggregator();
    second.expect_log(HOLDS);
    let _line = report(&second, "n", parts).await;
    let mut requested = 0;
    while fixture.requested("get") < read + 6 {
        requested += 1;
        assert!(requested < 1000, "no aggregator reads the pods");
    }
    assert_eq!(fixture.requested("patch"), 2);
    let version = |pod: &Value| pod["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&fixture.get("annotated")), version(&shown));
}

#[tokio::test]
async fn recreated_pod_gets_type_of_its_new_allocation() {
    let fixture = AnnotationFixture::new();
    let mut aggregator = fixture.aggregator();
    aggregator.expect_log(HOLDS);
    let uid = fixture.pod("train-0", "n");
    let before = reported(NAMESPACE, &[("train-0", Some(&uid))]);
    let mut line = report(&aggregator, "n", before.clone()).await;
    fixture.await_type("train-0", A100);
    let delete = ["delete", "pod", "train-0", "-n", NAMESPACE, "--force"];
    fixture.api.kubectl(&delete);
    let uid = fixture.pod("train-0", "n");
    let after = reported(NAMESPACE, &[("train-0", Some(&uid))]);
    line.send(&delta(2, &before, &after)).await.unwrap();
    fixture.await_type("train-0", A100);
}

#[tokio::test]
async fn one_of_two_aggregators_writes_and_the_other_takes_over() {
    let fixture = AnnotationFixture::new();
    let mut first = fixture.aggregator();
    first.expect_log(HOLDS);
    let mut second = fixture.aggregator();
    fixture.pod("early", "n");
    let parts = reported(NAMESPACE, &[("early", None)]);
    let mut other = report(&second, "n", parts.clone()).await;
    let _line = report(&first, "n", parts.clone()).await;
    fixture.await_type("early", A100);
    assert_eq!(fixture.transitions(), "0");
    first.kill();
    second.expect_log(HOLDS);
    assert_eq!(fixture.transitions(), "1");
    fixture.pod("late", "n");
    let more = reported(NAMESPACE, &[("early", None), ("late", None)]);
    other.send(&delta(2, &parts, &more)).await.unwrap();
    fixture.await_type("late", A100);
    // An aggregator that is not the leader requests no pods, and correct annotations are unchanged.
    second.expect_log("pod annotated");
    let lines = second.kill();
    let shown = |line: &&String| line.contains("pod annotated");
    assert_eq!(lines.iter().filter(shown).count(), 1, "{lines:#?}");
    assert_eq!(fixture.requested("patch"), 2);
}

#[tokio::test]
async fn writes_stop_during_api_server_outage_and_complete_afterwards() {
    let mut fixture = AnnotationFixture::new();
    let mut aggregator = fixture.aggregator();
    aggregator.expect_log(HOLDS);
    fixture.pod("late", "n");
    fixture.api.stop();
    let _line = report(&aggregator, "n", reported(NAMESPACE, &[("late", None)])).await;
    aggregator.expect_log("Lease lost; this process is no longer the leader");
    fixture.api.start();
    aggregator.expect_log(HOLDS);
    fixture.await_type("late", A100);
}
