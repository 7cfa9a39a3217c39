//! Usage by pod with up to 1,000 pods on eight GPUs: `cargo bench --bench usage`.
//!
//! It measures the attribution of usage to pods, the check of fair shares, a scrape of the metrics, and the growth of memory over
//! 1,000 rounds. It prints tables in Markdown for `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_agent::metrics::usage::UsageMetrics;
use octavo_agent::usage::UsageObservation;
use octavo_model::holder::DeviceAllocation;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Process, ProcessKind};
use octavo_model::process_origin::ProcessOrigin;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{DeviceMetrics, MemoryUse, Percent, Reading};
use octavo_model::resource::ResourceName;
use octavo_node::sharing::guard::Guard;
use octavo_node::sharing::join::{Allocation, PodAttribution, UsageInput, join};
use octavo_node::sharing::offer::{Offer, Offers, Unit};
use octavo_toolkit::telemetry::exposition;
use tokio::sync::watch;

const GPUS: u32 = 8;
const ROUNDS: usize = 200;

/// Input of the attribution for one node.
struct Node {
    readings: Vec<Reading>,
    offers: Offers,
    allocations: Vec<Allocation>,
    attribution: PodAttribution,
}

fn main() {
    println!(
        "| pods | kubelet record | attribution, median | attribution, p99 | check of fair shares, median |"
    );
    println!("|---|---|---|---|---|");
    for pods in [10, 100, 1000] {
        for has_record in [true, false] {
            attribution(pods, has_record);
        }
    }
    println!();
    println!("| pods | metrics | scrape, median | scrape, p99 | bytes |");
    println!("|---|---|---|---|---|");
    for pods in [10, 1000] {
        for dcgm in [false, true] {
            scrapes(pods, dcgm);
        }
    }
    println!();
    growth();
}

fn uuid(gpu: u32) -> String {
    format!("GPU-5fd4087b-86f3-7a43-b711-4771313afc{gpu:02}")
}

fn reading(pods: u32, gpu: u32) -> Reading {
    Reading {
        pci: PciAddress::new(0, u8::try_from(gpu + 1).unwrap(), 0, 0).unwrap(),
        uuid: Some(uuid(gpu).parse().unwrap()),
        index: Some(gpu),
        minor: Some(gpu),
        product_name: Some("NVIDIA H100 80GB HBM3".to_owned()),
        memory: Some(MemoryUse {
            total: Mebibytes::new(81_559),
            used: Mebibytes::new(60_000),
            reserved: Mebibytes::new(551),
        }),
        is_partitioned: false,
        partitions: Vec::new(),
        processes: Some(
            (0..pods)
                .filter(|number| number % GPUS == gpu)
                .map(|number| Process {
                    pid: 1000 + number,
                    kind: ProcessKind::Compute,
                    gpu_instance: None,
                    compute_instance: None,
                    memory: Some(Mebibytes::new(u64::from(number % 700))),
                })
                .collect(),
        ),
        process_utilization: Vec::new(),
        metrics: DeviceMetrics {
            compute: Some(Percent(50)),
            power_mw: Some(400_000),
            energy_mj: Some(1 << 40),
            temperature: Some(60),
            compute_clock: Some(1980),
            memory_clock: Some(2619),
            pcie_replays: Some(0),
            ..DeviceMetrics::default()
        },
    }
}

fn node(pods: u32, has_record: bool) -> Node {
    let pod = |number: u32| Allocation {
        device: DeviceAllocation {
            namespace: "team".to_owned(),
            pod: format!("pod-{number}"),
            container: "main".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
            device_id: format!("{}::{}", uuid(number % GPUS), number / GPUS),
            claim: None,
        },
        uid: has_record.then(|| format!("uid-{number}")),
    };
    let unit = |gpu: u32| Unit {
        uuid: uuid(gpu),
        pci: PciAddress::new(0, u8::try_from(gpu + 1).unwrap(), 0, 0).unwrap(),
        partition: None,
        replicas: Some(pods.div_ceil(GPUS)),
        memory: Some(Mebibytes::new(81_559)),
        memory_per_replica: None,
        numa_node: None,
    };
    let origin = |number: u32| ProcessOrigin::Pod {
        uid: format!("uid-{number}"),
        container: Some("c".repeat(64)),
    };
    Node {
        readings: (0..GPUS).map(|gpu| reading(pods, gpu)).collect(),
        offers: Offers {
            resources: vec![Offer {
                name: ResourceName::gpu(),
                fail_requests_greater_than_one: false,
                units: (0..GPUS).map(unit).collect(),
            }],
        },
        allocations: (0..pods).map(pod).collect(),
        attribution: PodAttribution::Inspected(
            (0..pods).map(|number| (1000 + number, origin(number))).collect::<BTreeMap<_, _>>(),
        ),
    }
}

impl Node {
    fn input(&self) -> UsageInput<'_> {
        UsageInput {
            readings: &self.readings,
            offers: &self.offers,
            allocations: &self.allocations,
            is_current: true,
            attribution: &self.attribution,
        }
    }
}

fn attribution(pods: u32, has_record: bool) {
    let node = node(pods, has_record);
    let mut guard = Guard::default();
    let (mut joins, mut checks) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let start = Instant::now();
        let mut usage = join(&node.input());
        joins.push(start.elapsed());
        let start = Instant::now();
        let now = Duration::from_secs(10 * u64::try_from(round).unwrap());
        guard.check(now, &mut usage);
        checks.push(start.elapsed());
    }
    let record = if has_record { "yes" } else { "no" };
    let (median, p99) = (percentile(&mut joins, 50), percentile(&mut joins, 99));
    let check = percentile(&mut checks, 50);
    println!("| {pods} | {record} | {median:?} | {p99:?} | {check:?} |");
}

fn scrapes(pods: u32, dcgm: bool) {
    let node = node(pods, true);
    let observation = UsageObservation {
        xids: BTreeMap::new(),
        usage: Arc::new(join(&node.input())),
        readings: node.readings.clone(),
        ..UsageObservation::default()
    };
    let (_sender, receiver) = watch::channel(Arc::new(observation));
    let metrics = UsageMetrics::new(receiver, dcgm.then(|| "node".to_owned()));
    let registries = metrics.registries();
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let text = exposition::write_all(registries.iter(), std::iter::empty());
        times.push(start.elapsed());
        bytes = text.unwrap().1.len();
    }
    let kind = if dcgm { "with DCGM's" } else { "own" };
    let (median, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
    println!("| {pods} | {kind} | {median:?} | {p99:?} | {bytes} |");
}

/// Measures resident memory at the start, after 10 rounds and after 1,000 rounds with 1,000 pods.
fn growth() {
    let node = node(1000, true);
    let mut guard = Guard::default();
    let mut run = |from: u64, to: u64| {
        for second in from..to {
            let mut usage = join(&node.input());
            guard.check(Duration::from_secs(second), &mut usage);
        }
    };
    let resident_kib = || process::resident_mib(std::process::id()) * 1024.0;
    let start = resident_kib();
    run(0, 10);
    let ten = resident_kib();
    run(10, 1000);
    let thousand = resident_kib();
    println!("| resident at the start | after 10 rounds | after 1,000 rounds |");
    println!("|---|---|---|");
    println!("| {start:.0} KiB | {ten:.0} KiB | {thousand:.0} KiB |");
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let index = (times.len() * percent / 100).min(times.len() - 1);
    times.get(index).copied().unwrap()
}
