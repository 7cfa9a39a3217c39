//! CPU time of counting availability and of checking hardware profiles after changes:
//! `cargo bench --bench availability`.
//!
//! - A cluster of 1,000 nodes, 20,000 pods and 200 profiles, without and with agents, of which 30 pods change each time.
//! - 100,000 agents without a cluster, of which one, or one in a hundred, changes each time.
//!
//! It prints tables in Markdown for `docs/performance.md` and never fails on a figure. `-- ROUNDS` changes the number of rounds (20).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark is a script: it measures, prints, and stops at the first error"
)]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, Phase, PodKey, PodRequirements, Readiness,
    Toleration,
};
use octavo_fleet::hardware_profile::{
    Count, HardwareProfile, Identifier, ProfileKey, ProfileKind, Scheduling,
};
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::hardware_profiles::{Presence, Profiles as ObservedProfiles};
use octavo_model::catalog::Placement;
use octavo_model::examples;
use octavo_model::inventory::{GpuInstance, Inventory, Mig, MigMode, MigState};
use octavo_model::resource::ShareId;
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};
use octavo_store::profiles::Profiles;
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Change, Parts, Run};
use octavo_stream::status;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Instant, advance};

const NODES: usize = 1000;
const PODS: usize = 20_000;
const PROFILES: usize = 200;
const CHANGED_PODS: usize = 30;
const AGENTS: usize = 100_000;
/// Longer than any result is reused.
const PAUSE: Duration = Duration::from_secs(5);
const TYPES: [&str; 6] = [
    "nvidia-h200-141gb",
    "nvidia-h100-80gb",
    "nvidia-a100-80gb",
    "nvidia-l40s-48gb",
    "nvidia-t4-16gb",
    "amd-mi300x-192gb",
];
const GPU: &str = "nvidia.com/gpu";

fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(20);
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    println!("| CPU time, ms, first / median / maximum of {rounds} after changes | |\n|---|---|");
    runtime.block_on(async {
        cluster("1,000 nodes, 20,000 pods, 30 change", 0, rounds).await;
        cluster("the same, 1,000 agents, 50 change", NODES, rounds).await;
        large(rounds).await;
    });
}

/// Measures counts and checks of profiles with `agents` agents, one in twenty of which changes.
async fn cluster(name: &str, agents: usize, rounds: usize) {
    let clock = Clock::start();
    let (store, fleet) = watch::channel(fleet(agents, clock));
    let nodes = (0..NODES).map(cluster_node);
    let pods = (0..PODS).map(|number| pod(number, 0));
    let (sender, cluster) = watch::channel(watched(ClusterSnapshot::new(nodes, pods)));
    let observed = ObservedProfiles {
        all: (0..PROFILES)
            .map(profile)
            .map(|profile| ((profile.kind, profile.key.clone()), Arc::new(profile)))
            .collect(),
        kinds: BTreeMap::from([(ProfileKind::Hardware, Presence::Present)]),
        ..ObservedProfiles::default()
    };
    let (_profiles, observed) = watch::channel(Arc::new(observed));
    let profiles = Profiles::new(Some(observed), Some(cluster.clone()), None);
    let view = FleetView::new(fleet, clock).with_profiles(profiles);
    let counter = Counter::new(view.clone(), Some(cluster));
    let [mut counts, mut reports] = [const { Vec::new() }; 2];
    for round in 0..=rounds {
        advance(PAUSE).await;
        let mut snapshot = ClusterSnapshot::clone(&sender.borrow().snapshot);
        for changed in 0..CHANGED_PODS {
            let number = round * CHANGED_PODS + changed;
            snapshot.insert_pod(Arc::new(pod(number * 7919 % PODS, number)));
        }
        sender.send_replace(watched(snapshot));
        store.send_modify(|fleet| {
            change(fleet, (0..agents / 20).map(|number| (number * 20 + round) % NODES), round);
        });
        let start = cpu_time();
        counter.latest().await.unwrap();
        counts.push(cpu_time() - start);
        let start = cpu_time();
        view.profiles().latest_report(view.fleet()).await;
        reports.push(cpu_time() - start);
    }
    print(&format!("availability: {name}"), counts);
    print(&format!("{PROFILES} profiles: {name}"), reports);
}

/// Measures counts of a large fleet without a cluster.
async fn large(rounds: usize) {
    let clock = Clock::start();
    let (store, fleet) = watch::channel(fleet(AGENTS, clock));
    let counter = Counter::new(FleetView::new(fleet, clock), None);
    for (name, changed) in [("one changes", 1), ("1,000 change", AGENTS / 100)] {
        let mut times = Vec::new();
        for round in 0..=rounds {
            advance(PAUSE).await;
            store.send_modify(|fleet| {
                change(fleet, (0..changed).map(|number| (number * 100 + round) % AGENTS), round);
            });
            let start = cpu_time();
            counter.latest().await.unwrap();
            times.push(cpu_time() - start);
        }
        print(&format!("availability: 100,000 agents, {name}"), times);
    }
}

fn print(name: &str, mut times: Vec<f64>) {
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!("| {name} | {first:.1} / {median:.2} / {:.1} |", times[times.len() - 1]);
}

/// CPU time of all threads in milliseconds.
fn cpu_time() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let times = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    times.sum::<f64>() / 1e6
}

fn watched(snapshot: ClusterSnapshot) -> Arc<WatchedCluster> {
    Arc::new(WatchedCluster {
        snapshot: Arc::new(snapshot),
        current_at: Some(Instant::now()),
        error: None,
        invalid_objects: 0,
    })
}

fn cluster_node(number: usize) -> ClusterNode {
    let mut labels: BTreeMap<String, String> = (0..60)
        .map(|feature| {
            (format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE{feature}"), "true".to_owned())
        })
        .collect();
    labels.insert("octavo.dev/type".to_owned(), TYPES[number % TYPES.len()].to_owned());
    let amounts = Amounts::default()
        .with("cpu", 192_000)
        .with("memory", 2 << 40)
        .with(GPU, 8)
        .with("pods", 110);
    ClusterNode {
        name: name(number),
        labels,
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts,
        ..ClusterNode::default()
    }
}

/// Returns a pod. Every fourth has a GPU, and every hundredth is pending and requests one.
fn pod(number: usize, version: usize) -> ClusterPod {
    let is_pending = number.is_multiple_of(100);
    let devices = u64::from(is_pending || number.is_multiple_of(4));
    let amounts = Amounts::default()
        .with("cpu", 2000 + u64::from(version.is_multiple_of(2)))
        .with(GPU, devices);
    ClusterPod {
        key: PodKey { namespace: format!("team-{}", number % 40), name: format!("job-{number}") },
        node: (!is_pending).then(|| name(number / 4 % NODES)),
        phase: if is_pending { Phase::Pending } else { Phase::Bound },
        started_at: Some(i64::try_from(number * 60).unwrap()),
        requirements: PodRequirements {
            amounts,
            tolerations: vec![Toleration::for_key(GPU)],
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    }
}

fn profile(number: usize) -> HardwareProfile {
    let type_name = TYPES[number % TYPES.len()];
    HardwareProfile {
        key: ProfileKey { namespace: "team".to_owned(), name: format!("profile-{number}") },
        display_name: Some(format!("Profile {number}")),
        identifiers: vec![Identifier {
            display_name: "GPU".to_owned(),
            resource: GPU.to_owned(),
            min: Count::whole(1),
            max: Some(Count::whole(8)),
            default: Count::whole(1 + u64::try_from(number % 4).unwrap()),
            resource_type: None,
        }],
        scheduling: Scheduling::Node {
            selector: BTreeMap::from([("octavo.dev/type".to_owned(), type_name.to_owned())]),
            tolerations: vec![Toleration::for_key(GPU)],
        },
        ..HardwareProfile::default()
    }
}

fn name(number: usize) -> String {
    format!("node-{number:06}")
}

/// Returns a fleet of this many nodes. Every second one has seven partitions on each GPU.
fn fleet(agents: usize, clock: Clock) -> Fleet {
    let mut fleet = Fleet::default();
    let machines = [machine(false), machine(true)].map(|inventory| {
        let parts = status::encode(&inventory, &LabelSet::default(), None);
        (parts, StatusSummary::new(&inventory, Arc::default(), None))
    });
    for number in 0..agents {
        let (parts, summary) = &machines[number % machines.len()];
        let origin = ReportingAgent {
            name: name(number).parse().unwrap(),
            run: Run { epoch: 1, boot_id: String::new() },
            agent_version: "0.0.0".to_owned(),
        };
        // No agent confirms the status, so the limit is longer than the measurement.
        let freshness = Freshness::new(clock.now(), Duration::from_hours(1000));
        let node = Node::new(origin, with_usage(parts, number, 0), summary.clone(), freshness);
        fleet.nodes.insert(Arc::new(node));
    }
    fleet
}

/// Changes the usage of some nodes.
fn change(fleet: &mut Fleet, numbers: impl Iterator<Item = usize>, round: usize) {
    for number in numbers {
        let node = fleet.nodes.get(&name(number).parse().unwrap()).unwrap();
        let parts = with_usage(&node.parts, number, round + 1);
        let node = Node { parts, ..Node::clone(node) };
        fleet.nodes.insert(Arc::new(node));
    }
    fleet.revision += 1;
}

/// Returns the inventory of eight GPUs, with seven partitions each if `is_partitioned`.
fn machine(is_partitioned: bool) -> Inventory {
    let devices = (0..8_u8).map(|index| {
        let mut device = examples::gpu();
        device.pci = format!("0000:{:02x}:00.0", index + 1).parse().unwrap();
        device.uuid = Some(uuid(index).parse().unwrap());
        let instance = |id: u32| GpuInstance {
            id,
            profile_id: 19,
            placement: Placement { start: id, size: 1 },
            compute_instances: vec![examples::compute_instance(0)],
        };
        let mode = if is_partitioned { MigMode::Enabled } else { MigMode::Disabled };
        device.mig = Mig::Capable(MigState {
            current: mode,
            pending: mode,
            gpu_instances: (0..7).filter(|_| is_partitioned).map(instance).collect(),
            ..examples::h100()
        });
        device
    });
    Inventory { devices: devices.collect(), ..Inventory::default() }
}

fn uuid(index: u8) -> String {
    format!("GPU-5fd4087b-86f3-7a43-b711-47713000000{index}")
}

/// Adds the usage of eight GPUs, each held by one pod, whose number of processes depends on `version`.
fn with_usage(parts: &Parts, number: usize, version: usize) -> Parts {
    let device = |index: u8| {
        let text = format!(r#"{{"pci":"0000:{:02x}:00.0","name":"GPU","units":[]}}"#, index + 1);
        let mut usage: DeviceUsage = serde_json::from_str(&text).unwrap();
        usage.units.push(UnitUsage {
            uuid: uuid(index),
            tenants: vec![Tenant {
                namespace: Some("team-a".to_owned()),
                pod: Some(format!("train-{number}-{index}")),
                ids: vec![ShareId::replica(&uuid(index), 0)],
                processes: vec![u32::try_from(version + 1).unwrap()],
                ..Tenant::default()
            }],
            ..UnitUsage::default()
        });
        usage
    };
    let usage = Usage { devices: (0..4).map(device).collect(), ..Usage::default() };
    parts.apply(&Change { changed: vec![status::encode_usage(&usage)], removed: Vec::new() })
}
