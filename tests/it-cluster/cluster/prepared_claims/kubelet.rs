//! Claims of pods on a real kubelet: registration, failures, restarts, updates of the agent, and health.
//!
//! The runtime of these nodes ignores CDI, so the pods get no device.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::rig::{Claim, ClaimRig, ONE};
use crate::cluster::nodes::{Nodes, root};
use crate::process::Program;
use crate::sweep::tally::Lcg;
use crate::sweep::{KillPoint, KillTiming};
use crate::time_limits::{eventually, until};

const NODE: &str = "node-1";
const IMAGE: &str = "test.invalid/claims:1";
const REGISTERED: &str = "the kubelet registered the DRA driver";

/// The node, and a simulated machine whose agent serves its kubelet.
struct KubeletRig {
    rig: ClaimRig,
}

/// Other tests use this Node too.
impl Drop for KubeletRig {
    fn drop(&mut self) {
        self.rig.api.try_kubectl(&["annotate", "node", NODE, "octavo.dev/status-"]);
    }
}

impl KubeletRig {
    fn new(nodes: &'static Nodes, gpus: &str) -> Self {
        let rig = ClaimRig::with_kubelet(nodes, NODE, gpus);
        let tools = ["/bin/sleep"].map(|path| (Path::new(path), path));
        nodes.image(NODE, IMAGE, root(&tools).path(), &["/bin/sleep", "1d"]);
        rig.api.await_account(rig.namespace());
        Self { rig }
    }

    /// The agent once the kubelet has registered it.
    fn start(&self) -> Program {
        let mut agent = self.rig.start(&[]);
        agent.expect_log(REGISTERED);
        agent
    }

    /// Creates a pod with the name of its claim. It is not scheduled: the claim is allocated already, and the controller
    /// manager reserves it for the pod.
    fn create_pod(&self, claim: &Claim) {
        self.rig.api.create(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": claim.name, "namespace": self.rig.namespace()},
            "spec": {
                "nodeName": NODE,
                "terminationGracePeriodSeconds": 0,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": claim.name}],
                "containers": [{
                    "name": "main",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "resources": {"claims": [{"name": "gpu"}]},
                }],
            },
        }));
    }

    fn await_prepared(&self, claim: &Claim) {
        let what = format!("the specification of {}", claim.name);
        eventually(&what, || self.rig.has_spec(claim));
    }

    /// Creates a pod with this device, and waits until it is prepared.
    fn run_pod(&self, name: &str, profile: &str, start: u32) -> Claim {
        let claim = self.rig.claim(name, &[&self.rig.device(profile, start)]);
        self.create_pod(&claim);
        self.await_prepared(&claim);
        claim
    }

    fn delete_pod(&self, claim: &Claim) {
        let namespace = self.rig.namespace();
        self.rig.api.kubectl(&["delete", "pod", &claim.name, "-n", namespace, "--wait=false"]);
    }

    /// Waits until no pod is left.
    fn await_no_pod(&self) {
        let pods = ["get", "pods", "-n", self.rig.namespace(), "-o=name"];
        until("no pod", || self.rig.api.kubectl(&pods), String::is_empty);
    }

    /// Number of slices of the node.
    fn slices(&self) -> usize {
        let of = format!("--field-selector=spec.nodeName={NODE}");
        self.rig.api.kubectl(&["get", "resourceslices", &of, "-o=name"]).lines().count()
    }

    fn await_slices(&self, are_there: bool) {
        until("the slices", || self.slices(), |count| (*count > 0) == are_there);
    }

    /// Waits until the pod's status has this health of its device.
    fn await_health(&self, claim: &Claim, wanted: &str) {
        let pod = ["get", "pod", &claim.name, "-n", self.rig.namespace(), "-o=json"];
        let read = || {
            let pod: Value = serde_json::from_str(&self.rig.api.kubectl(&pod)).unwrap();
            let status = &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0];
            status["resources"][0]["health"].clone()
        };
        until(&format!("health {wanted}"), read, |health| health == wanted);
    }
}

#[test]
fn real_kubelet_registers_the_driver_and_prepares_the_claim_of_a_pod() {
    let nodes = Nodes::shared();
    let node = KubeletRig::new(nodes, ONE);
    let rig = &node.rig;
    let _alone = rig.runtime.block_on(Nodes::alone());
    let mut agent = node.start();
    let claim = node.run_pod("train", "3g.20gb", 4);
    rig.await_geometry(&["3g.20gb"]);
    node.await_slices(true);
    // A restarted kubelet deletes the slices of its node, finds the socket again, and prepares the claim again.
    nodes.restart_kubelet(NODE);
    agent.expect_log(REGISTERED);
    node.await_slices(true);
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 4)]);
    node.delete_pod(&claim);
    rig.await_geometry(&[]);
    eventually("the removed specification", || !rig.has_spec(&claim));
    node.await_no_pod();
}

#[test]
fn real_kubelet_repeats_failed_calls_until_they_succeed() {
    let gpus = "- {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, start: 0}]}\n";
    let nodes = Nodes::shared();
    let node = KubeletRig::new(nodes, gpus);
    let rig = &node.rig;
    let _alone = rig.runtime.block_on(Nodes::alone());
    let mut agent = node.start();
    rig.add_process(4711);
    let claim = rig.claim("train", &[&rig.device("3g.20gb", 0)]);
    node.create_pod(&claim);
    // The reason is an event of the pod.
    let reason = "--field-selector=reason=FailedPrepareDynamicResources";
    let events = ["get", "events", "-n", rig.namespace(), reason, "-o=json"];
    let refused = "is used outside of claims by pid 4711";
    until("the event", || rig.api.kubectl(&events), |text| text.contains(refused));
    nodes.restart_kubelet(NODE);
    agent.expect_log(REGISTERED);
    assert!(!rig.has_spec(&claim));
    rig.remove_process(4711);
    node.await_prepared(&claim);
    // The pod is deleted while no agent runs, and the kubelet restarts.
    agent.kill();
    node.delete_pod(&claim);
    nodes.restart_kubelet(NODE);
    assert!(rig.has_spec(&claim));
    let _agent = node.start();
    eventually("the removed specification", || !rig.has_spec(&claim));
    node.await_no_pod();
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 0)]);
}

#[test]
fn real_kubelet_uses_the_next_agent_of_an_update() {
    let node = KubeletRig::new(Nodes::shared(), ONE);
    let rig = &node.rig;
    let _alone = rig.runtime.block_on(Nodes::alone());
    let first = node.start();
    let one = node.run_pod("one", "3g.20gb", 4);
    let uuids = rig.uuids();
    // The second agent waits for the first one.
    let mut second = Program::start(&mut rig.agent(&[]));
    second.expect_log(" and holds ");
    let two = node.run_pod("two", "1g.5gb", 0);
    assert!(first.stop().success());
    second.expect_log(REGISTERED);
    let three = node.run_pod("three", "1g.5gb", 1);
    // The third agent starts after the second one received its signal.
    second.terminate();
    let mut third = Program::start(&mut rig.agent(&[]));
    assert!(second.wait_for_exit().success());
    third.expect_log(REGISTERED);
    let four = node.run_pod("four", "1g.5gb", 2);
    assert!(uuids.iter().all(|uuid| rig.uuids().contains(uuid)), "{uuids:?}");
    for claim in [&one, &two, &three, &four] {
        node.delete_pod(claim);
    }
    rig.await_geometry(&[]);
    node.await_no_pod();
}

#[test]
fn real_kubelet_reports_the_health_of_devices_in_the_status_of_pods() {
    let node = KubeletRig::new(Nodes::shared(), ONE);
    let rig = &node.rig;
    let _alone = rig.runtime.block_on(Nodes::alone());
    let mut agent = node.start();
    let claim = node.run_pod("train", "3g.20gb", 4);
    node.await_health(&claim, "Healthy");
    let machine = &rig.machine().machine;
    let slot = machine.world().slot_of_index(0).unwrap();
    machine.change(|world| world.lose_gpu(slot));
    node.await_health(&claim, "Unhealthy");
    machine.change(|world| world.return_gpu(slot));
    node.await_health(&claim, "Healthy");
    // Without an agent, the kubelet deletes the slices after 30 s.
    agent.kill();
    node.await_slices(false);
    node.await_health(&claim, "Unknown");
    let _agent = node.start();
    node.await_slices(true);
    node.await_health(&claim, "Healthy");
    node.delete_pod(&claim);
    rig.await_geometry(&[]);
    node.await_no_pod();
}

/// Pods begin and end, the kubelet restarts, and agents are killed at any call.
#[test]
fn i3_random_sequences_on_a_real_kubelet_end_with_hardware_that_equals_the_claims() {
    let nodes = Nodes::shared();
    let node = KubeletRig::new(nodes, ONE);
    let rig = &node.rig;
    let _alone = rig.runtime.block_on(Nodes::alone());
    // Faults would also end this process if it read the hardware.
    let devices: Vec<String> = (0..7).map(|slice| rig.device("1g.5gb", slice)).collect();
    for seed in 0..3 {
        let mut random = Lcg::new(seed);
        let mut agent = node.start();
        let mut claims: Vec<(Claim, usize)> = Vec::new();
        let mut steps = Vec::new();
        for number in 0..6 {
            let step = random.below(4);
            steps.push(step);
            let kill = KillPoint { call: random.below(250) + 1, when: KillTiming::After };
            let is_killed = random.below(2) == 0;
            if is_killed {
                rig.machine().machine.faults(&format!("[{}]\n", kill.rule("nvml*")));
            }
            let free = (0..7).find(|slice| claims.iter().all(|(_, used)| used != slice));
            match (step, free) {
                (0 | 1, Some(slice)) => {
                    let name = format!("pod-{seed}-{number}");
                    let claim = rig.claim(&name, &[&devices[slice]]);
                    node.create_pod(&claim);
                    claims.push((claim, slice));
                }
                (2, _) if !claims.is_empty() => node.delete_pod(&claims.remove(0).0),
                _ => nodes.restart_kubelet(NODE),
            }
            let equals = || {
                let slices = rig.geometry().iter().map(|one| one.1.to_string()).collect();
                let wanted: BTreeSet<String> = claims.iter().map(|one| one.1.to_string()).collect();
                let specs = claims.iter().map(|(claim, _)| claim.spec()).collect();
                wanted == slices && rig.specs() == specs
            };
            let what = format!("seed {seed}, steps {steps:?}: hardware equals the claims");
            let seen = || (equals(), agent.has_ended());
            let (_, has_ended) = until(&what, seen, |(equals, ended)| *equals || *ended);
            rig.machine().machine.faults("[]\n");
            if has_ended || agent.has_ended() {
                agent = node.start();
                eventually(&what, equals);
            }
        }
        for (claim, _) in claims {
            node.delete_pod(&claim);
        }
        rig.await_geometry(&[]);
        eventually("no specification", || rig.specs().is_empty());
        node.await_no_pod();
        agent.kill();
    }
}
