//! Placement of requests for MIG instances: `cargo bench --profile release --bench demand`.
//!
//! It compares the strategy of `octavo-demand` with others on random requests, on the trace in `examples/traces` and in a queue, and measures
//! the time of a decision. It prints tables in Markdown for `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fastrand::Rng;
use octavo_demand::simulation::{
    Comparison, Discipline, Job, Load, Mix, Options, Strategy, compare, parse_trace,
    random_profiles, run,
};
use octavo_demand::{Fleet, Fragmentation, Geometry, ObservedNode, Outcome, candidates, propose};
use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, Phase, PodKey, PodOwner, PodRequirements,
    Readiness,
};
use octavo_model::examples::{compute_instance, gpu, h100, process};
use octavo_model::holder::{Holder, HolderDetails, Pod};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, GpuInstance, Inventory, Mig};
use octavo_model::profile::ProfileName;
use octavo_model::resource::ResourceName;
use octavo_policy::{DemandMode, PolicyDemand};
use strum::VariantArray;

const RUNS: u64 = 5;
const REQUESTS: usize = 20_000;
const WARM_UP: usize = 4_000;

/// Devices with the five profiles of the published comparisons.
fn fleet(count: usize) -> Fleet {
    let mut fleet = Fleet::default();
    fleet.add(Geometry::new(&h100(), |profile| ![15, 20].contains(&profile.id)).unwrap(), count);
    fleet
}

fn main() {
    mixes();
    recorded_trace();
    queue();
    speed();
    decisions();
    proposals();
}

fn mixes() {
    println!(
        "Acceptance in % (standard deviation over {RUNS} seeds) and operations per accepted request, 100 GPUs, load 1.0:\n"
    );
    let fleet = fleet(100);
    let load = Load { slices: fleet.slices(), factor: 1.0 };
    let all: Vec<(&str, Comparison)> = Mix::VARIANTS
        .iter()
        .map(|mix| {
            let traces: Vec<Vec<Job>> = (0..RUNS)
                .map(|seed| mix.jobs(&random_profiles(&h100().catalog), load, REQUESTS, seed))
                .collect();
            let strategies = Strategy::VARIANTS;
            (mix.into(), compare(&fleet, &traces, strategies, Discipline::Loss, WARM_UP))
        })
        .collect();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    println!("| strategy | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for (at, strategy) in Strategy::VARIANTS.iter().enumerate() {
        let cells = all.iter().map(|(_, comparison)| {
            let result = &comparison.strategies[at];
            let accepted = result.acceptance;
            format!(
                "{:.1} ({:.1}), {:.2}",
                100.0 * accepted.mean,
                100.0 * accepted.standard_deviation,
                result.operations_per_request.mean
            )
        });
        println!("| {} | {} |", <&str>::from(strategy), cells.collect::<Vec<_>>().join(" | "));
    }
    let bounds =
        all.iter().map(|(_, one)| format!("{:.1}", 100.0 * one.pool_acceptance.unwrap().mean));
    println!("| one pool of as many slices | {} |\n", bounds.collect::<Vec<_>>().join(" | "));
}

fn recorded_trace() {
    println!(
        "Trace `examples/traces/openb.csv`, acceptance in % and operations per accepted request:\n"
    );
    let jobs = parse_trace(include_str!("../examples/traces/openb.csv")).unwrap().jobs;
    println!("| strategy | 12 GPUs | 24 GPUs | 48 GPUs |\n|---|---|---|---|");
    let all: Vec<Comparison> = [12, 24, 48]
        .iter()
        .map(|gpus| {
            let traces = [jobs.clone()];
            compare(&fleet(*gpus), &traces, Strategy::VARIANTS, Discipline::Loss, 0)
        })
        .collect();
    for (at, strategy) in Strategy::VARIANTS.iter().enumerate() {
        let cells = all.iter().map(|one| {
            let result = &one.strategies[at];
            let operations = result.operations_per_request.mean;
            format!("{:.1}, {operations:.2}", 100.0 * result.acceptance.mean)
        });
        println!("| {} | {} |", <&str>::from(strategy), cells.collect::<Vec<_>>().join(" | "));
    }
    println!();
}

/// Requests with the parameters of the saturated trace of `MIGBench`: 500 jobs on 8 GPUs, the first 56 of which fill them with 1g.
fn saturated(seed: u64) -> Vec<Job> {
    const PROFILES: [(&str, f64); 4] =
        [("1g.10gb", 35.0), ("2g.20gb", 25.0), ("3g.40gb", 25.0), ("7g.80gb", 5.0)];
    let mut rng = Rng::with_seed(seed);
    let exponential = |rng: &mut Rng| -(1.0 - rng.f64()).ln();
    let mut now = 0.0;
    (0..500)
        .map(|number| {
            if number >= 56 {
                now += 15.0 * exponential(&mut rng);
            }
            // Box-Muller transform.
            let normal =
                (2.0 * exponential(&mut rng)).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
            let mut rest = rng.f64() * 90.0;
            let chosen = PROFILES.iter().find(|(_, weight)| {
                rest -= weight;
                rest < 0.0
            });
            let name = if number < 56 { PROFILES[0].0 } else { chosen.unwrap_or(&PROFILES[3]).0 };
            Job {
                arrival: Duration::from_secs_f64(now),
                duration: Duration::from_secs_f64(600.0 * (0.8 * normal).exp()),
                profile: name.parse().unwrap(),
            }
        })
        .collect()
}

fn queue() {
    println!(
        "Saturated queue, 8 GPUs, 20 seeds, in seconds; slices in use until the last request gets its instance in %:\n"
    );
    println!(
        "| strategy | mean wait | p95 wait | mean wait 1g | mean wait 7g | in use | operations |"
    );
    println!("|---|---|---|---|---|---|---|");
    let traces: Vec<Vec<Job>> = (0..20).map(saturated).collect();
    let row = |strategy: Strategy, reserve_after: Option<Duration>| {
        let discipline = Discipline::Queue { reserve_after, limits: None };
        let result = compare(&fleet(8), &traces, &[strategy], discipline, 0).strategies.remove(0);
        let wait = |name: &str| {
            let profile: ProfileName = name.parse().unwrap();
            result.wait_by_profile[&profile].mean_seconds
        };
        println!(
            "| {}{} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.2} |",
            <&str>::from(strategy),
            if reserve_after.is_some() { ", one GPU reserved after 1 h" } else { "" },
            result.wait.mean_seconds,
            result.wait.p95_seconds,
            wait("1g.10gb"),
            wait("7g.80gb"),
            100.0 * result.utilization.mean,
            result.operations_per_request.mean
        );
    };
    for strategy in Strategy::VARIANTS {
        row(*strategy, None);
    }
    row(Strategy::Octavo, Some(Duration::from_hours(1)));
    println!();
}

fn speed() {
    let fleet = fleet(100);
    let load = Load { slices: fleet.slices(), factor: 1.0 };
    let jobs = Mix::Uniform.jobs(&random_profiles(&h100().catalog), load, REQUESTS, 0);
    let hours = jobs.last().unwrap().arrival.as_secs_f64() / 3_600.0 * 100.0 / 8.0;
    let options = Options { strategy: Strategy::Octavo, discipline: Discipline::Loss, warm_up: 0 };
    let start = Instant::now();
    run(fleet, &jobs, options);
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!(
        "Simulated node-hours (8 GPUs per node, uniform) per minute: {:.0}\n",
        hours / minutes
    );
}

fn decisions() {
    println!(
        "One decision, 1,000 nodes with 8 GPUs, in milliseconds:\n\n| slices in use | median | p99 |\n|---|---|---|"
    );
    for fill in [0.5, 0.9, 0.98] {
        let mut fleet = fleet(8_000);
        let fragmentation = Fragmentation::new(&fleet);
        let mut rng = Rng::with_seed(1);
        let names: Vec<(ProfileName, u32)> = fleet.geometries()[0]
            .profiles()
            .iter()
            .map(|profile| (profile.name.clone(), profile.slices))
            .collect();
        let (mut used, mut holder) = (0.0, 0);
        while used < fill * f64::from(fleet.slices()) {
            let gpu = rng.usize(..fleet.gpus().len());
            let additions = fleet.geometries()[0].additions(fleet.gpus()[gpu].in_use());
            let Some(place) = rng.choice(additions).map(|addition| addition.place) else {
                continue;
            };
            fleet.allocate(gpu, place, holder).unwrap();
            if rng.u8(..) < 25 {
                fleet.release(gpu, holder);
            } else {
                used += f64::from(names[place.profile].1);
            }
            holder += 1;
        }
        let mut times: Vec<Duration> = (0..1_000)
            .map(|number| {
                let start = Instant::now();
                let best = candidates(&fleet, &names[number % names.len()].0, holder)
                    .min_by_key(|candidate| fragmentation.score(candidate));
                std::hint::black_box(best);
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
        println!(
            "| {:.0} % | {:.2} | {:.2} |",
            100.0 * fill,
            millis(times[500]),
            millis(times[990])
        );
    }
}

/// A device with random instances, a quarter of them idle.
fn random_device(
    geometry: &Geometry,
    number: u8,
    (fill, quarters_in_use): (f64, u8),
    rng: &mut Rng,
) -> Device {
    let mut device = gpu();
    device.index = Some(u32::from(number));
    device.pci = PciAddress::new(0, number, 0, 0).unwrap();
    let (mut state, mut set) = (h100(), Geometry::EMPTY);
    while f64::from(geometry.free_slices(set)) > 7.0 * (1.0 - fill) {
        let Some(addition) = rng.choice(geometry.additions(set)) else { break };
        let id = u32::try_from(state.gpu_instances.len()).unwrap();
        state.gpu_instances.push(GpuInstance {
            id,
            profile_id: geometry.profiles()[addition.place.profile].id,
            placement: addition.place.placement,
            compute_instances: vec![compute_instance(0)],
        });
        if rng.u8(..4) < quarters_in_use {
            device.processes.push(process(id, Some(id), Some(0)));
        }
        set = addition.to;
    }
    device.mig = Mig::Capable(state);
    device
}

/// A pod for each instance in use.
fn users(device: &Device, node: &str) -> Vec<(Holder, ClusterPod)> {
    let state = device.mig.state().unwrap();
    let each = device.processes.iter().map(|process| {
        let instance =
            state.gpu_instances.iter().find(|one| Some(one.id) == process.gpu_instance).unwrap();
        let profile = state.catalog.by_id(instance.profile_id).unwrap();
        let name = format!("{node}-{}-{}", device.pci, instance.id);
        let pod =
            Pod { namespace: Some("team".to_owned()), name: Some(name.clone()), ..Pod::default() };
        let mut holder = Holder::from_process(device, process);
        holder.details = HolderDetails { pod: Some(pod), ..holder.details };
        let amounts = Amounts::default().with(ResourceName::mig(&profile.name).as_str(), 1);
        let pod = ClusterPod {
            key: PodKey { namespace: "team".to_owned(), name },
            node: Some(node.to_owned()),
            phase: Phase::Bound,
            requirements: PodRequirements { amounts, ..PodRequirements::default() },
            owner: Some(PodOwner { kind: "Job".to_owned(), name: "job".to_owned() }),
            ..ClusterPod::default()
        };
        (holder, pod)
    });
    each.collect()
}

/// Time to plan all pending pods of a cluster.
fn proposals() {
    println!(
        "\nProposals for 256 pending pods, 1,000 nodes with 8 GPUs, in milliseconds:\n\n| slices with instances | instances in use | median | maximum | placed pods |\n|---|---|---|---|---|"
    );
    let geometry = Geometry::new(&h100(), |_| true).unwrap();
    // If none is idle, running pods are searched whose restart would make room.
    for (fill, quarters_in_use) in [(0.5, 3), (0.9, 3), (1.0, 3), (0.9, 4), (1.0, 4)] {
        let mut rng = Rng::with_seed(1);
        let mut running = Vec::new();
        let nodes: Vec<ObservedNode> = (0..1_000)
            .map(|number| {
                let name = format!("gpu-{number:04}");
                let device =
                    |number| random_device(&geometry, number, (fill, quarters_in_use), &mut rng);
                let devices: Vec<Device> = (0..8).map(device).collect();
                let users: Vec<(Holder, ClusterPod)> =
                    devices.iter().flat_map(|device| users(device, &name)).collect();
                let (holders, pods): (Vec<Holder>, Vec<ClusterPod>) = users.into_iter().unzip();
                running.extend(pods);
                ObservedNode {
                    name,
                    inventory: Inventory { devices, ..Inventory::default() },
                    holders,
                    sharing: None,
                    is_stale: false,
                    are_users_known: true,
                    demand: PolicyDemand { mode: DemandMode::Act, ..PolicyDemand::default() },
                    changed_for: BTreeSet::new(),
                    reserved_device: None,
                }
            })
            .collect();
        let cluster = nodes.iter().map(|node| ClusterNode {
            name: node.name.clone(),
            readiness: Readiness::Ready,
            labels: [("nvidia.com/mig.strategy".to_owned(), "mixed".to_owned())].into(),
            allocatable: Amounts::default().with("pods", 100),
            ..ClusterNode::default()
        });
        let pods = (0..256).map(|number| {
            let profile = rng.choice(geometry.profiles()).unwrap();
            let resource = ResourceName::mig(&profile.name);
            let amounts = Amounts::default().with(resource.as_str(), 1);
            ClusterPod {
                key: PodKey { namespace: "team".to_owned(), name: format!("pod-{number}") },
                requirements: PodRequirements { amounts, ..PodRequirements::default() },
                ..ClusterPod::default()
            }
        });
        let snapshot = ClusterSnapshot::new(cluster, pods.chain(running));
        let mut placed = 0;
        let mut times: Vec<Duration> = (0..10)
            .map(|_| {
                let start = Instant::now();
                let report = propose(&snapshot, &nodes, 0).report;
                let items = report.items.iter();
                placed = items.filter(|item| item.outcome != Outcome::Blocked).count();
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
        println!(
            "| {:.0} % | {} % | {:.0} | {:.0} | {placed} |",
            100.0 * fill,
            25 * quarters_in_use,
            millis(times[5]),
            millis(times[9])
        );
    }
}
