//! The cost of applying a layout, as the agent does it: `cargo bench --bench apply`.
//!
//! The hardware is simulated, with the times that were measured on real boards (`latency: real`) where times are of interest
//! and without any where the program's own work is. What the driver takes is the simulator's choice and not ours; hence
//! overhead is what a round takes over the longest time that one device needed inside calls to the driver. NVIDIA's
//! mig-parted does the same on the same machines in the same run. Tables are in Markdown for `docs/performance.md`; it never
//! fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first thing out of order"
)]

#[path = "support/changes.rs"]
mod changes;
#[path = "support/simulated.rs"]
mod simulated;

use std::collections::BTreeMap;

use changes::{Call, Cost, Log, MEASURED, Mix, Node, Peer, Ran, critical, inside};

const SEVEN: &Mix = &[("1g.10gb", 7)];
const HALVES: &Mix = &[("3g.40gb", 2)];
const BALANCED: &Mix = &[("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 2)];

/// Rounds of each kind whose overhead is measured.
const ROUNDS: usize = 6;
/// Runs of each program whose CPU time and memory are measured.
const RUNS: usize = 11;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(MEASURED) {
        changes::measured(arguments);
        return;
    }
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    println!("Profile: {profile}.\n");
    let peer = Peer::find();
    if peer.is_none() {
        println!(
            "nvidia-mig-parted was not built yet (`make test` does it), or this user may not mount, so it is left out.\n"
        );
    }
    overhead();
    calls();
    resources(peer.as_ref());
    methods(peer.as_ref());
}

/// Values of several runs, sorted.
#[derive(Default)]
struct Spread(Vec<f64>);

impl Spread {
    fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    fn most(&self) -> f64 {
        *self.0.last().unwrap()
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} / {:.1}", self.median(), self.most())
    }
}

/// The calls of an apply by what they are for.
struct Phases<'a> {
    /// From the start until the first reading is done.
    start: Vec<&'a Call>,
    /// Each device's calls while it is changed, by thread.
    devices: Vec<Vec<&'a Call>>,
    /// Readings of the whole node thereafter.
    after: Vec<Vec<&'a Call>>,
}

impl<'a> Phases<'a> {
    /// `first` calls are made where there is nothing to change.
    fn of(ran: &'a Ran, first: usize) -> Self {
        let mut calls: Vec<&Call> = ran.calls.iter().filter(|call| !call.waits()).collect();
        let mut rest = calls.split_off(first);
        let read = rest.iter().position(|call| begins_reading(call));
        let later = rest.split_off(read.unwrap_or(rest.len()));
        let mut devices: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
        for call in rest {
            devices.entry(call.tid).or_default().push(call);
        }
        let mut after: Vec<Vec<&Call>> = Vec::new();
        for call in later {
            if begins_reading(call) {
                after.push(Vec::new());
            }
            after.last_mut().unwrap().push(call);
        }
        Self { start: calls, devices: devices.into_values().collect(), after }
    }

    /// Changes; queries of a device's users; instances looked up and reported; readings of the device at the end.
    fn within(&self) -> [usize; 4] {
        let mut sums = [0; 4];
        for calls in &self.devices {
            let last = calls.iter().rposition(|call| call.changes()).unwrap();
            for call in &calls[..=last] {
                let looks = call.function.contains("RunningProcesses");
                let kind = match (call.changes(), looks) {
                    (true, _) => 0,
                    (false, true) => 1,
                    (false, false) => 2,
                };
                sums[kind] += 1;
            }
            sums[3] += calls.len() - last - 1;
        }
        sums
    }

    /// Calls that were made before with the same arguments, within one reading.
    fn repeated(&self) -> BTreeMap<&'a str, usize> {
        let mut readings = self.after.clone();
        readings.push(self.start.clone());
        for calls in &self.devices {
            let last = calls.iter().rposition(|call| call.changes()).unwrap();
            readings.push(calls[last + 1..].to_vec());
        }
        let mut repeated = BTreeMap::new();
        for reading in readings {
            let mut seen = std::collections::BTreeSet::new();
            for call in reading {
                if !seen.insert((&call.function, &call.arguments)) {
                    *repeated.entry(call.function.as_str()).or_default() += 1;
                }
            }
        }
        repeated
    }
}

fn begins_reading(call: &Call) -> bool {
    call.function.starts_with("nvmlDeviceGetCount")
}

/// Calls of our agent where there is nothing to do.
fn first_calls(node: &Node) -> usize {
    let ran = node.ours(Log::On);
    assert!(ran.calls.iter().all(|call| !call.changes()));
    ran.calls.iter().filter(|call| !call.waits()).count()
}

/// How long a round takes beyond the longest time that one device needs inside the driver.
fn overhead() {
    println!(
        "| 8 x A100-80, each GPU changed, ms: median / most of {ROUNDS} | exec to exit | the round | one GPU inside the driver, longest | overhead of the round | the node read once more after it |\n|---|---|---|---|---|---|"
    );
    let node = Node::new(8, SEVEN, "real");
    node.want(SEVEN);
    let mut all = Vec::new();
    let mut rows: BTreeMap<&str, Vec<[f64; 5]>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (name, mix) in [
            ("7 x 1g to 2 x 3g", HALVES),
            ("2 x 3g to 7 x 1g", SEVEN),
            ("7 x 1g to 3g + 2g + 2 x 1g", BALANCED),
            ("3g + 2g + 2 x 1g to 7 x 1g", SEVEN),
        ] {
            let first = first_calls(&node);
            node.want(mix);
            let ran = node.ours(Log::On);
            let attempt = node.last_attempt();
            let applied =
                |one: &octavo_files::history::DeviceAttempt| one.result.as_str() == "applied";
            assert!(attempt.devices.len() == 8 && attempt.devices.iter().all(applied));
            let round = f64::from(u32::try_from(attempt.duration_ms).unwrap());
            let critical = critical(&ran.calls);
            let phases = Phases::of(&ran, first);
            // Made after the round, before the labels are published.
            let reading = inside(phases.after[0].iter().copied());
            let over = round - critical;
            all.push(over);
            rows.entry(name).or_default().push([ran.cost.wall_ms, round, critical, over, reading]);
        }
    }
    for (name, runs) in rows {
        print!("| {name} |");
        for column in 0..5 {
            print!(" {} |", Spread::of(runs.iter().map(|run| run[column])));
        }
        println!();
    }
    println!("| all {} | | | | {} | |\n", all.len(), Spread::of(all));
}

/// How many calls an apply makes, and for what.
fn calls() {
    println!(
        "| NVML calls of one apply, 7 x 1g to 2 x 3g | initialisations | start and first reading | looks who uses it | changes (the least there can be) | instances looked up and told of | reading each GPU at its end | reading the node again | made again within one reading |\n|---|---|---|---|---|---|---|---|---|"
    );
    for count in [1, 8] {
        let node = Node::new(count, SEVEN, "null");
        node.want(SEVEN);
        let first = first_calls(&node);
        node.want(HALVES);
        let ran = node.ours(Log::On);
        let phases = Phases::of(&ran, first);
        let inits = ran.calls.iter().filter(|call| call.function.starts_with("nvmlInit"));
        let [changes, looks, found, read] = phases.within();
        let after: Vec<String> =
            phases.after.iter().map(|reading| reading.len().to_string()).collect();
        println!(
            "| {count} GPU{} | {} | {first} | {looks} | {changes} | {found} | {read} | {} | {:?} |",
            if count == 1 { "" } else { "s" },
            inits.count(),
            after.join(" + "),
            phases.repeated()
        );
    }
    println!();
}

/// CPU time and memory of the programs, with a driver that takes no time.
fn resources(peer: Option<&Peer>) {
    println!(
        "| {RUNS} runs, median / most | wall, ms | CPU, ms | peak memory, MiB | CPU and memory, times ours |\n|---|---|---|---|---|"
    );
    let floor = changes::floor();
    println!(
        "| `true` (the least that is seen) | {:.1} | {:.1} | {:.1} | |",
        floor.wall_ms, floor.cpu_ms, floor.peak_mib
    );
    for count in [2, 8] {
        let node = Node::new(count, SEVEN, "null");
        let run = |who: Option<&Peer>| match who {
            None => node.ours(Log::Off).cost,
            Some(peer) => node.theirs(peer, Log::Off).cost,
        };
        node.want(SEVEN);
        let nothing = |who| -> Vec<Cost> { (0..RUNS).map(|_| run(who)).collect() };
        let change = |who| -> Vec<Cost> {
            let mixes = [HALVES, SEVEN].iter().cycle();
            let runs = mixes.take(2 * RUNS).map(|mix| {
                node.want(mix);
                run(who)
            });
            runs.collect()
        };
        let label = |what| format!("{count} GPUs, {what}");
        compare(&label("nothing to do"), peer, nothing);
        compare(&label("7 x 1g to 2 x 3g, and back (each a run)"), peer, change);
    }
    println!();
}

fn compare<'a>(what: &str, peer: Option<&'a Peer>, run: impl Fn(Option<&'a Peer>) -> Vec<Cost>) {
    let ours = run(None);
    let columns = |runs: &[Cost]| {
        [
            Spread::of(runs.iter().map(|run| run.wall_ms)),
            Spread::of(runs.iter().map(|run| run.cpu_ms)),
            Spread::of(runs.iter().map(|run| run.peak_mib)),
        ]
    };
    let [wall, cpu, peak] = columns(&ours);
    println!("| {what} | {wall} | {cpu} | {peak} | |");
    if let Some(peer) = peer {
        let theirs = run(Some(peer));
        let [wall, their_cpu, their_peak] = columns(&theirs);
        println!(
            "| mig-parted v0.13.1 there | {wall} | {their_cpu} | {their_peak} | {:.1} and {:.1} |",
            their_cpu.median() / cpu.median(),
            their_peak.median() / peak.median()
        );
    }
}

/// The same changes by other methods, nothing in use.
fn methods(peer: Option<&Peer>) {
    println!(
        "| 8 x A100-80, nothing in use | method | destroyed | created | changing calls of one GPU, mean, ms | changing calls until all GPUs are done, ms | NVML calls | exec to exit, ms |\n|---|---|---|---|---|---|---|---|"
    );
    let transitions: [(&str, &Mix, &Mix); 4] = [
        ("3g + 3g to 3g + 2g + 1g", HALVES, &[("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 1)]),
        ("7 x 1g to 3g + 4 x 1g", SEVEN, &[("3g.40gb", 1), ("1g.10gb", 4)]),
        (
            "4g + 2g + 1g to 4g + 3g",
            &[("4g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 1)],
            &[("4g.40gb", 1), ("3g.40gb", 1)],
        ),
        (
            "3g to 3g + 2g + 1g",
            &[("3g.40gb", 1)],
            &[("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 1)],
        ),
    ];
    for (name, from, to) in transitions {
        let run = |who: Option<&Peer>| {
            let node = Node::new(8, from, "real");
            node.want(to);
            match who {
                None => node.ours(Log::On),
                Some(peer) => node.theirs(peer, Log::On),
            }
        };
        row(name, "ours", &run(None), true);
        let of = |mix: &Mix| mix.iter().map(|(_, count)| *count).sum::<u32>();
        let (lost, made) = (of(from), of(to));
        // By the simulator's own times: a GPU instance and its compute instance destroyed, and both created.
        let time = f64::from(lost * (100 + 20) + made * (52 + 20));
        println!(
            "| | clear the board, then create at exact places, all GPUs at once (computed) | {} | {} | {time:.0} | {time:.0} | | |",
            8 * lost,
            8 * made
        );
        if let Some(peer) = peer {
            row("", "mig-parted v0.13.1", &run(Some(peer)), false);
        }
    }
}

/// `at_once`: whether each GPU has a thread of its own; else one comes after the other.
fn row(name: &str, method: &str, ran: &Ran, at_once: bool) {
    let (destroyed, created) = changes::counts(&ran.calls);
    let changing = |tid: Option<u32>| {
        let calls = ran.calls.iter().filter(|call| call.changes());
        inside(calls.filter(|call| tid.is_none_or(|tid| tid == call.tid)))
    };
    let all = changing(None);
    let until = if at_once {
        let threads = changes::changing(&ran.calls).into_iter();
        Spread::of(threads.map(|tid| changing(Some(tid)))).most()
    } else {
        all
    };
    println!(
        "| {name} | {method} | {destroyed} | {created} | {:.0} | {until:.0} | {} | {:.0} |",
        all / 8.0,
        ran.calls.iter().filter(|call| !call.waits()).count(),
        ran.cost.wall_ms
    );
}
