//! Time and quality of plans: `cargo bench --bench plan`.
//!
//! It plans every transition of an A100 or H100 (298 states, 38 combinations of profiles, 11,026 pairs). It measures the time, and
//! compares the numbers of destroyed and created instances with two other methods: clear the GPU and create all instances with
//! placements; and mig-parted's, which clears the GPU and creates instances without placements, in one order after the other until
//! one succeeds. It prints tables in Markdown for `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use octavo_model::catalog::{GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Completeness, ComputeInstance, Condition, Device, GpuInstance, Inventory, Mig, MigMode,
    MigState, PciIds,
};
use octavo_model::quantity::Mebibytes;
use octavo_planner::layout::{DeviceTarget, InstanceTarget, MigTarget, TargetScope, Targets};
use octavo_planner::plan::{DevicePlanResult, NodePlan, PlanInput, Policy, Step, plan};

/// A profile: ID, index, name, GPU slices, size, and starts of its placements in the order in which the driver uses them.
/// Source: `tests/nvml-sim/data/mig-profiles.json`, which lists its own sources.
type Row = (u32, u32, &'static str, u32, u32, &'static [u32]);

const A100: &[Row] = &[
    (19, 0, "1g.10gb", 1, 1, &[6, 4, 5, 0, 1, 2, 3]),
    (14, 1, "2g.20gb", 2, 2, &[4, 0, 2]),
    (9, 2, "3g.40gb", 3, 4, &[4, 0]),
    (5, 3, "4g.40gb", 4, 4, &[0]),
    (0, 4, "7g.80gb", 7, 8, &[0]),
];

const RTX_PRO: &[Row] = &[
    (14, 0, "1g.24gb", 1, 3, &[6, 9, 0, 3]),
    (5, 1, "2g.48gb", 2, 6, &[6, 0]),
    (0, 3, "4g.96gb", 4, 12, &[0]),
    (21, 7, "1g.24gb+me", 1, 3, &[6, 9, 0, 3]),
    (47, 10, "1g.24gb+gfx", 1, 3, &[6, 9, 0, 3]),
    (35, 11, "2g.48gb+gfx", 2, 6, &[6, 0]),
    (32, 12, "4g.96gb+gfx", 4, 12, &[0]),
    (67, 13, "1g.24gb-me", 1, 3, &[6, 9, 0, 3]),
    (66, 14, "2g.48gb-me", 2, 6, &[6, 0]),
    (65, 15, "1g.24gb+me.all", 1, 3, &[6, 9, 0, 3]),
    (64, 16, "2g.48gb+me.all", 2, 6, &[6, 0]),
];

/// A state: row and start of each instance, sorted.
type State = Vec<(usize, u32)>;

fn main() {
    transitions();
    timing("A100, every transition", A100, 1);
    timing("RTX PRO 6000 with all media profiles, every 7th transition", RTX_PRO, 7);
    eight_gpus();
    hostile();
}

fn slices(rows: &[Row]) -> u32 {
    rows.iter().map(|row| row.3).max().unwrap()
}

fn catalog(rows: &[Row]) -> ProfileCatalog {
    let profile = |row: &Row| GpuInstanceProfile {
        id: row.0,
        index: row.1,
        name: row.2.parse().unwrap(),
        max_count: u32::try_from(row.5.len()).unwrap(),
        memory: Mebibytes::new(0),
        resources: InstanceResources {
            gpu_slices: row.3,
            compute_slices: row.3,
            ..InstanceResources::default()
        },
        placements: row.5.iter().map(|start| Placement { start: *start, size: row.4 }).collect(),
        compute_profiles: Vec::new(),
    };
    ProfileCatalog::new(rows.iter().map(profile).collect())
}

fn fits(rows: &[Row], state: &State, row: usize, start: u32) -> bool {
    let end = start + rows[row].4;
    let sum: u32 = state.iter().map(|instance| rows[instance.0].3).sum();
    sum + rows[row].3 <= slices(rows)
        && state.iter().all(|(row, other)| *other >= end || other + rows[*row].4 <= start)
}

/// Returns `true` if the media engines suffice: at most one `+me`, and only `-me` beside `+me.all`.
fn media_engines_suffice(rows: &[Row], state: &State) -> bool {
    let count =
        |indexes: &[u32]| state.iter().filter(|(row, _)| indexes.contains(&rows[*row].1)).count();
    let (some, all, none) = (count(&[7, 8]), count(&[15, 16]), count(&[13, 14]));
    some <= 1 && (all == 0 || (all == 1 && none + 1 == state.len()))
}

/// Returns every valid state.
fn states(rows: &[Row]) -> Vec<State> {
    let mut all = BTreeSet::from([State::new()]);
    let mut unvisited: Vec<State> = vec![State::new()];
    while let Some(state) = unvisited.pop() {
        for (row, profile) in rows.iter().enumerate() {
            for start in profile.5.iter().filter(|start| fits(rows, &state, row, **start)) {
                let mut next = state.clone();
                next.push((row, *start));
                next.sort_unstable();
                if media_engines_suffice(rows, &next) && all.insert(next.clone()) {
                    unvisited.push(next);
                }
            }
        }
    }
    all.into_iter().collect()
}

fn multiset(state: &State) -> Vec<usize> {
    state.iter().map(|instance| instance.0).collect()
}

fn multisets(states: &[State]) -> Vec<Vec<usize>> {
    let all: BTreeSet<Vec<usize>> = states.iter().map(multiset).collect();
    all.into_iter().collect()
}

fn device(rows: &[Row], state: &State, number: u8) -> Device {
    let ids = PciIds {
        vendor: 0x10de,
        device: 0x20b2,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: None,
    };
    let mut device = Device::new(PciAddress::new(0, number, 0, 0).unwrap(), ids);
    device.condition = Condition::Working;
    device.index = Some(u32::from(number));
    let instance = |(id, (row, start)): (u32, &(usize, u32))| GpuInstance {
        id,
        profile_id: rows[*row].0,
        placement: Placement { start: *start, size: rows[*row].4 },
        compute_instances: vec![ComputeInstance {
            id: 0,
            profile_id: 0,
            placement: Some(Placement { start: 0, size: rows[*row].3 }),
            uuid: None,
            memory: None,
            resources: Some(InstanceResources {
                gpu_slices: rows[*row].3,
                compute_slices: rows[*row].3,
                ..InstanceResources::default()
            }),
        }],
    };
    device.mig = Mig::Capable(MigState {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
        catalog: catalog(rows),
        gpu_instances: (1..).zip(state).map(instance).collect(),
        geometry: Completeness::Complete,
    });
    device
}

fn node(devices: Vec<Device>) -> Inventory {
    Inventory { devices, ..Inventory::default() }
}

fn target(rows: &[Row], profiles: &[usize], pci: PciAddress) -> DeviceTarget {
    let mut instances: Vec<InstanceTarget> = profiles
        .iter()
        .map(|row| InstanceTarget {
            profile_id: rows[*row].0,
            compute: vec![rows[*row].3],
            placement: None,
        })
        .collect();
    instances.sort();
    DeviceTarget::generated(pci, MigTarget::Enabled(instances), TargetScope::Layout)
}

fn timed_plan(inventory: &Inventory, targets: &Targets) -> (NodePlan, Duration) {
    let input = PlanInput {
        inventory,
        targets,
        holders: &[],
        policy: &Policy::default(),
        refused: &BTreeSet::new(),
    };
    let start = Instant::now();
    let plan = plan(&input);
    (plan, start.elapsed())
}

/// Returns the numbers of GPU instances that the plan destroys and creates.
fn counts(plan: &NodePlan) -> (u32, u32) {
    let DevicePlanResult::Change(change) = &plan.devices[0].verdict else {
        return (0, 0);
    };
    let count = |is_kind: fn(&Step) -> bool| {
        u32::try_from(change.steps.iter().filter(|step| is_kind(step)).count()).unwrap()
    };
    (
        count(|step| matches!(step, Step::DestroyGpuInstance { .. })),
        count(|step| matches!(step, Step::CreateGpuInstance { .. })),
    )
}

/// Simulates mig-parted. Returns the numbers of destroyed and created instances over all attempts, the number of attempts, and `true`
/// if the last attempt succeeds. Source: mig-parted v0.15.0, `pkg/mig/config`: it begins with the largest profile first, and tries each
/// unique order on a cleared GPU.
fn mig_parted(rows: &[Row], from: &State, profiles: &[usize]) -> (u32, u32, u32, bool) {
    let mut order: Vec<usize> = profiles.to_vec();
    order.sort_by_key(|row| std::cmp::Reverse(rows[*row].3));
    let mut orders = Vec::new();
    collect_orders(&mut order.clone(), &mut Vec::new(), &mut orders);
    let (mut destroyed, mut created, mut attempts) = (u32::try_from(from.len()).unwrap(), 0, 0);
    for order in orders {
        attempts += 1;
        let mut board = State::new();
        for row in &order {
            let Some(start) = rows[*row].5.iter().find(|start| fits(rows, &board, *row, **start))
            else {
                break;
            };
            board.push((*row, *start));
            created += 1;
        }
        if board.len() == order.len() {
            return (destroyed, created, attempts, true);
        }
        destroyed += u32::try_from(board.len()).unwrap();
    }
    (destroyed, created, attempts, false)
}

/// Adds all unique orders of `remaining` after `prefix` to `all`, beginning with the given order.
fn collect_orders(remaining: &mut Vec<usize>, prefix: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if remaining.is_empty() {
        all.push(prefix.clone());
        return;
    }
    let mut tried = BTreeSet::new();
    for index in 0..remaining.len() {
        if tried.insert(remaining[index]) {
            let row = remaining.remove(index);
            prefix.push(row);
            collect_orders(remaining, prefix, all);
            prefix.pop();
            remaining.insert(index, row);
        }
    }
}

fn transitions() {
    let states = states(A100);
    let multisets = multisets(&states);
    let mut rows: BTreeMap<&str, (u64, u64, u64, u64)> = BTreeMap::new();
    let (mut pairs, mut failures) = (0_u64, 0_u64);
    for from in &states {
        let device = device(A100, from, 1);
        let pci = device.pci;
        let inventory = node(vec![device]);
        for desired in multisets.iter().filter(|desired| **desired != multiset(from)) {
            pairs += 1;
            let targets =
                Targets { devices: vec![target(A100, desired, pci)], ..Targets::default() };
            let (plan, _) = timed_plan(&inventory, &targets);
            let (destroyed, created) = counts(&plan);
            let (existing, requested) =
                (u32::try_from(from.len()).unwrap(), u32::try_from(desired.len()).unwrap());
            let (peer_destroyed, peer_created, attempts, succeeds) =
                mig_parted(A100, from, desired);
            failures += u64::from(!succeeds);
            for (name, destroyed, created, attempts) in [
                ("1 Octavo", destroyed, created, 1),
                ("2 clear the GPU, create with placements", existing, requested, 1),
                (
                    "3 clear the GPU, create without placements, trying several orders (mig-parted)",
                    peer_destroyed,
                    peer_created,
                    attempts,
                ),
            ] {
                let row = rows.entry(name).or_default();
                row.0 += u64::from(destroyed);
                row.1 += u64::from(created);
                row.2 += u64::from(destroyed == 0);
                row.3 = row.3.max(u64::from(attempts));
            }
        }
    }
    println!("\n{} states, {} combinations, {pairs} transitions\n", states.len(), multisets.len());
    println!(
        "| method | destroyed, mean | created, mean | transitions that destroy nothing | attempts, maximum |"
    );
    println!("|---|---|---|---|---|");
    for (name, (destroyed, created, none, attempts)) in rows {
        let mean = |sum: u64| sum as f64 / pairs as f64;
        println!(
            "| {} | {:.3} | {:.3} | {:.1} % | {attempts} |",
            &name[2..],
            mean(destroyed),
            mean(created),
            100.0 * mean(none)
        );
    }
    println!("\ntransitions in which the last method fails and leaves the GPU cleared: {failures}");
}

fn timing(name: &str, rows: &[Row], every: usize) {
    let states = states(rows);
    let multisets = multisets(&states);
    let mut times = Vec::new();
    let pairs = states.iter().flat_map(|from| multisets.iter().map(move |desired| (from, desired)));
    for (from, desired) in pairs.step_by(every) {
        let device = device(rows, from, 1);
        let targets =
            Targets { devices: vec![target(rows, desired, device.pci)], ..Targets::default() };
        let (_, time) = timed_plan(&node(vec![device]), &targets);
        times.push(time);
    }
    print_times(name, &mut times);
}

/// Measures plans for eight GPUs in different states, so that the planner cannot reuse a result.
fn eight_gpus() {
    let states = states(A100);
    let multisets = multisets(&states);
    let mut times = Vec::new();
    for (number, desired) in multisets.iter().enumerate().cycle().take(2_000) {
        let devices: Vec<Device> = (0_u8..8)
            .map(|bus| {
                let state = (number * 7 + usize::from(bus) * 37) % states.len();
                device(A100, &states[state], bus)
            })
            .collect();
        let targets = devices.iter().map(|device| target(A100, desired, device.pci));
        let targets = Targets { devices: targets.collect(), ..Targets::default() };
        let (_, time) = timed_plan(&node(devices), &targets);
        times.push(time);
    }
    print_times("8 x A100 in eight different states, together", &mut times);
}

/// Measures plans with invented profile tables, which a hostile node could report to keep the planner busy.
fn hostile() {
    let mut times = Vec::new();
    let mut results: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..40_u32 {
        let mut profiles: Vec<GpuInstanceProfile> = catalog(A100).profiles().to_vec();
        profiles.truncate(1);
        let template = profiles.remove(0);
        for id in 0..60 {
            let size = 2 + (id + seed) % 3;
            let starts = (0..8).map(|number| (id * 7 + number * (5 + seed % 9)) % 60);
            let mut profile = template.clone();
            (profile.id, profile.index, profile.max_count) = (id, 1, 8);
            profile.placements = starts.map(|start| Placement { start, size }).collect();
            profiles.push(profile);
        }
        profiles[0].resources.gpu_slices = 64;
        let mut device = device(A100, &State::new(), 1);
        if let Mig::Capable(state) = &mut device.mig {
            state.catalog = ProfileCatalog::new(profiles);
        }
        let desired = (1..=14 + seed % 8).map(|id| InstanceTarget {
            profile_id: id,
            compute: vec![1],
            placement: None,
        });
        let mut target = target(A100, &[], device.pci);
        target.mig = Some(MigTarget::Enabled(desired.collect()));
        let (plan, time) = timed_plan(
            &node(vec![device]),
            &Targets { devices: vec![target], ..Targets::default() },
        );
        let result = match &plan.devices[0].verdict {
            DevicePlanResult::Unchanged => "unchanged",
            DevicePlanResult::Change(_) => "a change",
            DevicePlanResult::Blocked(_) => "blocked",
            DevicePlanResult::Infeasible(_) => "infeasible",
        };
        *results.entry(result).or_default() += 1;
        times.push(time);
    }
    print_times(
        "artificial worst case: 60 profiles, 480 placements, 14 to 21 instances",
        &mut times,
    );
    println!("results: {results:?}");
}

fn print_times(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |permille: usize| times[(times.len() - 1) * permille / 1000].as_secs_f64() * 1e6;
    println!(
        "\n{name}: {} plans, p50 {:.1} us, p99 {:.1} us, maximum {:.1} us",
        times.len(),
        at(500),
        at(990),
        at(1000)
    );
}
