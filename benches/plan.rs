//! What a plan costs, and what it spares: `cargo bench --bench plan`.
//!
//! Over every transition of an A100 or H100 (298 states, 38 combinations of profiles, 11,026 pairs) the planner is timed and
//! its plans are counted beside two other methods: clearing the board and creating everything from scratch, and mig-parted's, which
//! clears the board and creates without places, in one order after the other, until one succeeds. Tables are in Markdown for
//! `docs/performance.md`; nothing fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first thing out of order"
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

/// A profile: id, index, name, GPU slices, size, and where it may lie in the order in which the driver fills a board.
/// Source: `tests/nvml-sim/data/mig-profiles.json`, which names its own.
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

/// A state: row and start of each instance, in the order of the rows and of the starts.
type State = Vec<(usize, u32)>;

fn main() {
    transitions();
    timing("A100, every transition", A100, 1);
    timing("RTX PRO 6000 with all media profiles, every 7th transition", RTX_PRO, 7);
    eight();
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

fn free(rows: &[Row], state: &State, row: usize, start: u32) -> bool {
    let end = start + rows[row].4;
    let sum: u32 = state.iter().map(|one| rows[one.0].3).sum();
    sum + rows[row].3 <= slices(rows)
        && state.iter().all(|one| one.1 >= end || one.1 + rows[one.0].4 <= start)
}

/// Whether the media engines suffice: one `+me`, and beside `+me.all` only `-me`.
fn media(rows: &[Row], state: &State) -> bool {
    let count = |wanted: &[u32]| state.iter().filter(|one| wanted.contains(&rows[one.0].1)).count();
    let (some, all, none) = (count(&[7, 8]), count(&[15, 16]), count(&[13, 14]));
    some <= 1 && (all == 0 || (all == 1 && none + 1 == state.len()))
}

/// Every legal state.
fn states(rows: &[Row]) -> Vec<State> {
    let mut all = BTreeSet::from([State::new()]);
    let mut fresh: Vec<State> = vec![State::new()];
    while let Some(state) = fresh.pop() {
        for (row, profile) in rows.iter().enumerate() {
            for start in profile.5.iter().filter(|start| free(rows, &state, row, **start)) {
                let mut next = state.clone();
                next.push((row, *start));
                next.sort_unstable();
                if media(rows, &next) && all.insert(next.clone()) {
                    fresh.push(next);
                }
            }
        }
    }
    all.into_iter().collect()
}

fn multiset(state: &State) -> Vec<usize> {
    state.iter().map(|one| one.0).collect()
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

fn target(rows: &[Row], wanted: &[usize], pci: PciAddress) -> DeviceTarget {
    let mut instances: Vec<InstanceTarget> = wanted
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

fn planned(inventory: &Inventory, targets: &Targets) -> (NodePlan, Duration) {
    let question = PlanInput {
        inventory,
        targets,
        holders: &[],
        policy: &Policy::default(),
        refused: &BTreeSet::new(),
    };
    let start = Instant::now();
    let plan = plan(&question);
    (plan, start.elapsed())
}

/// GPU instances destroyed and created.
fn counts(plan: &NodePlan) -> (u32, u32) {
    let DevicePlanResult::Change(change) = &plan.devices[0].verdict else {
        return (0, 0);
    };
    let of = |kind: fn(&Step) -> bool| {
        u32::try_from(change.steps.iter().filter(|step| kind(step)).count()).unwrap()
    };
    (
        of(|step| matches!(step, Step::DestroyGpuInstance { .. })),
        of(|step| matches!(step, Step::CreateGpuInstance { .. })),
    )
}

/// mig-parted's way: destroyed and created over all attempts, how many attempts, whether the board ends as wished. Source:
/// mig-parted v0.15.0, `pkg/mig/config`: profiles by size, the largest first; each unique order is tried on a cleared board.
fn permuted(rows: &[Row], from: &State, wanted: &[usize]) -> (u32, u32, u32, bool) {
    let mut order: Vec<usize> = wanted.to_vec();
    order.sort_by_key(|row| std::cmp::Reverse(rows[*row].3));
    let mut orders = Vec::new();
    orders_of(&mut order.clone(), &mut Vec::new(), &mut orders);
    let (mut destroyed, mut created, mut attempts) = (u32::try_from(from.len()).unwrap(), 0, 0);
    for order in orders {
        attempts += 1;
        let mut board = State::new();
        for row in &order {
            let Some(start) = rows[*row].5.iter().find(|start| free(rows, &board, *row, **start))
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

/// Unique orders, in the order in which they follow from what is given.
fn orders_of(left: &mut Vec<usize>, so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if left.is_empty() {
        all.push(so_far.clone());
        return;
    }
    let mut tried = BTreeSet::new();
    for at in 0..left.len() {
        if tried.insert(left[at]) {
            let row = left.remove(at);
            so_far.push(row);
            orders_of(left, so_far, all);
            so_far.pop();
            left.insert(at, row);
        }
    }
}

fn transitions() {
    let states = states(A100);
    let multisets = multisets(&states);
    let mut rows: BTreeMap<&str, (u64, u64, u64, u64)> = BTreeMap::new();
    let (mut pairs, mut left_empty) = (0_u64, 0_u64);
    for from in &states {
        let device = device(A100, from, 1);
        let pci = device.pci;
        let inventory = node(vec![device]);
        for wanted in multisets.iter().filter(|wanted| **wanted != multiset(from)) {
            pairs += 1;
            let targets =
                Targets { devices: vec![target(A100, wanted, pci)], ..Targets::default() };
            let (plan, _) = planned(&inventory, &targets);
            let (destroyed, created) = counts(&plan);
            let (there, requested) =
                (u32::try_from(from.len()).unwrap(), u32::try_from(wanted.len()).unwrap());
            let (lost, made, attempts, reached) = permuted(A100, from, wanted);
            left_empty += u64::from(!reached);
            for (name, destroyed, created, attempts) in [
                ("1 ours", destroyed, created, 1),
                ("2 clear all, exact places", there, requested, 1),
                ("3 clear all, one order after the other", lost, made, attempts),
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
        "| method | destroyed, mean | created, mean | transitions that destroy nothing | attempts, most |"
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
    println!("\nboards that the last method leaves empty: {left_empty}");
}

fn timing(what: &str, rows: &[Row], every: usize) {
    let states = states(rows);
    let multisets = multisets(&states);
    let mut times = Vec::new();
    let pairs = states.iter().flat_map(|from| multisets.iter().map(move |wanted| (from, wanted)));
    for (from, wanted) in pairs.step_by(every) {
        let device = device(rows, from, 1);
        let targets =
            Targets { devices: vec![target(rows, wanted, device.pci)], ..Targets::default() };
        let (_, time) = planned(&node(vec![device]), &targets);
        times.push(time);
    }
    say(what, &mut times);
}

/// Eight boards in eight different states, so that no answer serves twice.
fn eight() {
    let states = states(A100);
    let multisets = multisets(&states);
    let mut times = Vec::new();
    for (number, wanted) in multisets.iter().enumerate().cycle().take(2_000) {
        let devices: Vec<Device> = (0_u8..8)
            .map(|at| device(A100, &states[(number * 7 + usize::from(at) * 37) % states.len()], at))
            .collect();
        let targets = devices.iter().map(|device| target(A100, wanted, device.pci));
        let targets = Targets { devices: targets.collect(), ..Targets::default() };
        let (_, time) = planned(&node(devices), &targets);
        times.push(time);
    }
    say("8 x A100 in different states, together", &mut times);
}

/// Profile tables that no board has, as a hostile node could send them to keep the planner busy.
fn hostile() {
    let mut times = Vec::new();
    let mut verdicts: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..40_u32 {
        let mut profiles: Vec<GpuInstanceProfile> = catalog(A100).profiles().to_vec();
        profiles.truncate(1);
        let model = profiles.remove(0);
        for id in 0..60 {
            let size = 2 + (id + seed) % 3;
            let places = (0..8).map(|place| (id * 7 + place * (5 + seed % 9)) % 60);
            let mut profile = model.clone();
            (profile.id, profile.index, profile.max_count) = (id, 1, 8);
            profile.placements = places.map(|start| Placement { start, size }).collect();
            profiles.push(profile);
        }
        profiles[0].resources.gpu_slices = 64;
        let mut device = device(A100, &State::new(), 1);
        if let Mig::Capable(state) = &mut device.mig {
            state.catalog = ProfileCatalog::new(profiles);
        }
        let wanted = (1..=14 + seed % 8).map(|id| InstanceTarget {
            profile_id: id,
            compute: vec![1],
            placement: None,
        });
        let mut target = target(A100, &[], device.pci);
        target.mig = Some(MigTarget::Enabled(wanted.collect()));
        let (plan, time) =
            planned(&node(vec![device]), &Targets { devices: vec![target], ..Targets::default() });
        let verdict = match &plan.devices[0].verdict {
            DevicePlanResult::Unchanged => "unchanged",
            DevicePlanResult::Change(_) => "a change",
            DevicePlanResult::Blocked(_) => "blocked",
            DevicePlanResult::Infeasible(_) => "infeasible",
        };
        *verdicts.entry(verdict).or_default() += 1;
        times.push(time);
    }
    say("made up to keep it busy: 60 profiles, 480 places, 14 to 21 instances", &mut times);
    println!("verdicts: {verdicts:?}");
}

fn say(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 1000].as_secs_f64() * 1e6;
    println!(
        "\n{what}: {} plans, p50 {:.1} us, p99 {:.1} us, most {:.1} us",
        times.len(),
        at(500),
        at(990),
        at(1000)
    );
}
