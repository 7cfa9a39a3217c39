//! Fleets for tests.

use octavo_fleet::api::{NodeRow, NodeType};
use octavo_fleet::cluster::{Amounts, ClusterNode, Effect, Readiness, Taint};
use octavo_fleet::summary::{DeviceCounts, NodeState, Sharing};
use octavo_fleet::type_source::TypeSource;
use serde_json::Value;

use crate::manifest::Generated;

/// Rows and cluster nodes of a fleet.
pub(crate) type Fleet = (Vec<NodeRow>, Vec<ClusterNode>);

pub(crate) const GPU: &str = "nvidia.com/gpu";

/// Row of a node with these types; an empty name is an unknown type.
pub(crate) fn row(name: &str, types: &[&str]) -> NodeRow {
    let devices = DeviceCounts { total: 8, ..DeviceCounts::default() };
    let types = types.iter().map(|name| NodeType {
        type_name: Some((*name).to_owned()).filter(|name| !name.is_empty()),
        type_source: None,
        memory_mib: None,
        devices,
    });
    NodeRow {
        name: name.to_owned(),
        state: NodeState::Ok.into(),
        reason: None,
        source: TypeSource::Agent.into(),
        connected: true,
        last_confirmed: String::new(),
        age_seconds: 0,
        sharing: Sharing::None.into(),
        devices,
        memory_mib: 0,
        types: types.collect(),
        layout: None,
        agent_version: String::new(),
    }
}

/// Node with 64 CPUs, 512 GiB, these labels and these accelerators.
pub(crate) fn node(name: &str, labels: &[(&str, &str)], units: &[(&str, u64)]) -> ClusterNode {
    let base = Amounts::default().with("cpu", 64_000).with("memory", 512 << 30).with("pods", 110);
    let allocatable = units.iter().fold(base, |all, (name, count)| all.with(name, *count));
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ClusterNode {
        name: name.to_owned(),
        labels: labels.collect(),
        readiness: Readiness::Ready,
        capacity: allocatable.clone(),
        allocatable,
        ..ClusterNode::default()
    }
}

pub(crate) fn taint(key: &str, value: &str) -> Taint {
    Taint { key: key.to_owned(), value: value.to_owned(), effect: Effect::NoSchedule }
}

/// Adds a node whose type an agent has labeled.
pub(crate) fn add(
    fleet: &mut Fleet,
    (name, type_name, sharing): (&str, &str, &str),
    labels: &[(&str, &str)],
    units: &[(&str, u64)],
) {
    let own = [("octavo.dev/type", type_name), ("octavo.dev/sharing", sharing)];
    fleet.0.push(row(name, &[type_name]));
    fleet.1.push(node(name, &[&own[..], labels].concat(), units));
}

/// Labels of an EC2 instance.
pub(crate) fn ec2(
    instance_type: &'static str,
    zone: &'static str,
) -> [(&'static str, &'static str); 3] {
    [
        ("node.kubernetes.io/instance-type", instance_type),
        ("topology.kubernetes.io/zone", zone),
        ("kubernetes.io/arch", "amd64"),
    ]
}

/// EC2 instances with whole, partitioned and time-sliced GPUs and with Inferentia, and a node on another cloud.
pub(crate) fn cloud() -> Fleet {
    let mut fleet = Fleet::default();
    let spot = ("karpenter.sh/capacity-type", "spot");
    let (t4, a100) = ("nvidia-t4-16gb", "nvidia-a100-80gb");
    let [small, large, gpus] =
        [ec2("g4dn.xlarge", "z-a"), ec2("g4dn.12xlarge", "z-b"), ec2("p4de.24xlarge", "z-a")];
    let own = [("workload", "serving"), spot];
    add(&mut fleet, ("t4-a", t4, "exclusive"), &[&small[..], &own].concat(), &[(GPU, 1)]);
    add(&mut fleet, ("t4-b", t4, "exclusive"), &[&large[..], &own[..1]].concat(), &[(GPU, 4)]);
    add(&mut fleet, ("t4-c", t4, "exclusive"), &[&large[..], &own[..1]].concat(), &[(GPU, 4)]);
    let mig = [("nvidia.com/mig-1g.10gb", 56)];
    let layout = [("octavo.dev/layout", "small"), ("nvidia.com/gpu.count", "8")];
    add(&mut fleet, ("a100-a", a100, "mig"), &[&gpus[..], &layout].concat(), &mig);
    let l4 = ec2("g6.xlarge", "z-a");
    add(&mut fleet, ("l4-a", "nvidia-l4-24gb", "time-slicing"), &l4, &[(GPU, 4)]);
    let neuron = [("aws.amazon.com/neuron", 12), ("aws.amazon.com/neuroncore", 24)];
    let inf2 = ec2("inf2.48xlarge", "z-a");
    add(&mut fleet, ("inf2-a", "aws-inferentia2-32gb", "exclusive"), &inf2, &neuron);
    let azure = [("node.kubernetes.io/instance-type", "Standard_NC4as_T4_v3")];
    add(&mut fleet, ("azure", "nvidia-t4-16gb", "exclusive"), &azure, &[(GPU, 1)]);
    for node in &mut fleet.1 {
        node.taints.push(taint(GPU, "present"));
    }
    fleet
}

/// Objects of a file.
pub(crate) fn objects(generated: &Generated, file: &str) -> Vec<Value> {
    let file = generated.files.iter().find(|one| one.name == file).unwrap();
    file.manifests.iter().map(|one| serde_json::to_value(one).unwrap()).collect()
}

/// Whole, partitioned and time-sliced GPUs, AMD and Neuron devices, and nodes that cannot be used.
pub(crate) fn mixed() -> Fleet {
    let mut fleet = Fleet::default();
    let h100 = "nvidia-h100-80gb";
    add(&mut fleet, ("h100-a", h100, "exclusive"), &[], &[(GPU, 8)]);
    add(&mut fleet, ("h100-b", h100, "exclusive"), &[], &[(GPU, 8)]);
    let small = [("nvidia.com/mig-1g.10gb.product", "A"), ("octavo.dev/layout", "small")];
    let both = [("nvidia.com/mig-1g.10gb.product", "A"), ("nvidia.com/mig-3g.40gb.product", "B")];
    let a100 = "nvidia-a100-80gb";
    let small_units = [("nvidia.com/mig-1g.10gb", 14)];
    let both_units = [("nvidia.com/mig-1g.10gb", 2), ("nvidia.com/mig-3g.40gb", 2)];
    add(&mut fleet, ("a100-small", a100, "mig"), &small, &small_units);
    add(&mut fleet, ("a100-both", a100, "mig"), &both, &both_units);
    add(&mut fleet, ("t4", "nvidia-t4-16gb", "time-slicing"), &[], &[(GPU, 3)]);
    let modes = [("octavo.dev/amd-compute-partition", "cpx")];
    let mi300x = "amd-mi300x-192gb";
    add(&mut fleet, ("mi300x", mi300x, "partitioned"), &modes, &[("amd.com/gpu", 64)]);
    let neuron = [("aws.amazon.com/neuron", 12), ("aws.amazon.com/neuroncore", 24)];
    add(&mut fleet, ("inf2", "aws-inferentia2-32gb", "exclusive"), &[], &neuron);
    fleet.0.extend([
        row("two-types", &[h100, "nvidia-t4-16gb"]),
        row("unknown", &[""]),
        row("unlabeled", &[h100]),
        row("cpu-only", &[]),
        row("elsewhere", &[h100]),
    ]);
    fleet.1.push(node("unlabeled", &[], &[(GPU, 8)]));
    fleet
}
