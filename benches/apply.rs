//! Time, NVML calls, CPU and memory of a layout change by the agent: `cargo bench --bench apply`.
//!
//! The hardware is simulated: with latencies that were measured on real boards (`latency: real`) to measure times, and without
//! latency to measure the program itself. The driver's times depend on the simulator. The overhead is therefore the time of a
//! change minus the longest time that one GPU's thread spent in NVML calls. NVIDIA's mig-parted makes the same changes on the same
//! machines in the same run. It prints tables in Markdown for `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[path = "support/layout_runs.rs"]
mod layout_runs;
#[path = "support/simulated_machine.rs"]
mod simulated_machine;

use std::collections::BTreeMap;

use octavo_files::history::DeviceAttempt;

use layout_runs::{
    Call, Cost, Log, MEASURED, Mix, Node, Peer, ProgramRun, duration_ms, longest_driver_ms,
};

const SEVEN: &Mix = &[("1g.10gb", 7)];
const HALVES: &Mix = &[("3g.40gb", 2)];
const BALANCED: &Mix = &[("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 2)];

/// Number of times that each change is made to measure its overhead.
const ROUNDS: usize = 6;
/// Runs of each program to measure its CPU time and memory.
const RUNS: usize = 11;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(MEASURED) {
        layout_runs::run_measured(arguments);
        return;
    }
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    println!("Profile: {profile}.\n");
    let peer = Peer::find();
    if peer.is_none() {
        println!(
            "nvidia-mig-parted is not built yet (`make test` builds it), or this user cannot mount, so it is not measured.\n"
        );
    }
    overhead();
    calls();
    resources(peer.as_ref());
    methods(peer.as_ref());
}

/// Sorted values of several runs. It displays the median and the maximum.
#[derive(Default)]
struct MedianAndMaximum(Vec<f64>);

impl MedianAndMaximum {
    fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    fn maximum(&self) -> f64 {
        *self.0.last().unwrap()
    }
}

impl std::fmt::Display for MedianAndMaximum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} / {:.1}", self.median(), self.maximum())
    }
}

/// The calls of a layout change by purpose.
struct Phases<'a> {
    /// From the start to the end of the first reading.
    start: Vec<&'a Call>,
    /// Calls that change or check a device, grouped by thread.
    devices: Vec<Vec<&'a Call>>,
    /// Readings of the whole node after the change.
    after: Vec<Vec<&'a Call>>,
}

impl<'a> Phases<'a> {
    /// `first_calls` is the number of calls of a run without a change.
    fn new(run: &'a ProgramRun, first_calls: usize) -> Self {
        let mut start: Vec<&Call> = run.calls.iter().filter(|call| !call.waits()).collect();
        let mut rest = start.split_off(first_calls);
        let reading = rest.iter().position(|call| starts_reading(call));
        let later = rest.split_off(reading.unwrap_or(rest.len()));
        let mut devices: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
        for call in rest {
            devices.entry(call.tid).or_default().push(call);
        }
        let mut after: Vec<Vec<&Call>> = Vec::new();
        for call in later {
            if starts_reading(call) {
                after.push(Vec::new());
            }
            after.last_mut().unwrap().push(call);
        }
        Self { start, devices: devices.into_values().collect(), after }
    }

    /// Returns the numbers of changes, queries of a device's users, lookups of instances, and readings of the device at the end.
    fn device_calls(&self) -> [usize; 4] {
        let mut sums = [0; 4];
        for calls in &self.devices {
            let last = calls.iter().rposition(|call| call.changes()).unwrap();
            for call in &calls[..=last] {
                let is_user_check = call.function.contains("RunningProcesses");
                let kind = match (call.changes(), is_user_check) {
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

    /// Counts calls that one reading makes again with the same arguments, by function.
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

fn starts_reading(call: &Call) -> bool {
    call.function.starts_with("nvmlDeviceGetCount")
}

/// Counts the calls of the agent if the layout is already applied.
fn first_calls(node: &Node) -> usize {
    let run = node.run_agent(Log::On);
    assert!(run.calls.iter().all(|call| !call.changes()));
    run.calls.iter().filter(|call| !call.waits()).count()
}

/// Measures the time of a change minus the longest time that one device spends in the driver.
fn overhead() {
    println!(
        "| each of 8 x A100-80 changed, ms: median / maximum of {ROUNDS} runs | exec to exit | change | longest GPU in the driver | overhead | reading the node again |\n|---|---|---|---|---|---|"
    );
    let node = Node::new(8, SEVEN, "real");
    node.set_layout(SEVEN);
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
            node.set_layout(mix);
            let run = node.run_agent(Log::On);
            let attempt = node.last_attempt();
            let is_applied = |device: &DeviceAttempt| device.result.as_str() == "applied";
            assert!(attempt.devices.len() == 8 && attempt.devices.iter().all(is_applied));
            let change = f64::from(u32::try_from(attempt.duration_ms).unwrap());
            let driver = longest_driver_ms(&run.calls);
            let phases = Phases::new(&run, first);
            // The agent reads the node again after the change, before it publishes the labels.
            let reading = duration_ms(phases.after[0].iter().copied());
            let overhead = change - driver;
            all.push(overhead);
            let row = [run.cost.wall_ms, change, driver, overhead, reading];
            rows.entry(name).or_default().push(row);
        }
    }
    for (name, runs) in rows {
        print!("| {name} |");
        for column in 0..5 {
            print!(" {} |", MedianAndMaximum::new(runs.iter().map(|run| run[column])));
        }
        println!();
    }
    println!("| all {} | | | | {} | |\n", all.len(), MedianAndMaximum::new(all));
}

/// Counts the NVML calls of a layout change by purpose.
fn calls() {
    println!(
        "| NVML calls of one change, 7 x 1g to 2 x 3g | initializations | start and first reading | checks for users | changes, the minimum possible | lookups of instances | reading each GPU at its end | reading the node again | repeated within one reading |\n|---|---|---|---|---|---|---|---|---|"
    );
    for count in [1, 8] {
        let node = Node::new(count, SEVEN, "null");
        node.set_layout(SEVEN);
        let first = first_calls(&node);
        node.set_layout(HALVES);
        let run = node.run_agent(Log::On);
        let phases = Phases::new(&run, first);
        let inits = run.calls.iter().filter(|call| call.function.starts_with("nvmlInit"));
        let [changes, user_checks, lookups, readings] = phases.device_calls();
        let after: Vec<String> =
            phases.after.iter().map(|reading| reading.len().to_string()).collect();
        println!(
            "| {count} GPU{} | {} | {first} | {user_checks} | {changes} | {lookups} | {readings} | {} | {:?} |",
            if count == 1 { "" } else { "s" },
            inits.count(),
            after.join(" + "),
            phases.repeated()
        );
    }
    println!();
}

/// Measures CPU time and memory of the programs, without latency of the driver.
fn resources(peer: Option<&Peer>) {
    println!(
        "| {RUNS} runs, median / maximum | wall, ms | CPU, ms | peak memory, MiB | ratio to Octavo: CPU, memory |\n|---|---|---|---|---|"
    );
    let minimum = layout_runs::minimum_cost();
    println!(
        "| `true`, the measurable minimum | {:.1} | {:.1} | {:.1} | |",
        minimum.wall_ms, minimum.cpu_ms, minimum.peak_mib
    );
    for count in [2, 8] {
        let node = Node::new(count, SEVEN, "null");
        let run = |peer: Option<&Peer>| match peer {
            None => node.run_agent(Log::Off).cost,
            Some(peer) => node.run_peer(peer, Log::Off).cost,
        };
        node.set_layout(SEVEN);
        let no_change = |peer| -> Vec<Cost> { (0..RUNS).map(|_| run(peer)).collect() };
        let changes = |peer| -> Vec<Cost> {
            let mixes = [HALVES, SEVEN].iter().cycle();
            let runs = mixes.take(2 * RUNS).map(|mix| {
                node.set_layout(mix);
                run(peer)
            });
            runs.collect()
        };
        let label = |case| format!("{count} GPUs, {case}");
        compare(&label("no change needed"), peer, no_change);
        compare(&label("7 x 1g to 2 x 3g, and back (two runs)"), peer, changes);
    }
    println!();
}

fn compare<'a>(name: &str, peer: Option<&'a Peer>, run: impl Fn(Option<&'a Peer>) -> Vec<Cost>) {
    let agent = run(None);
    let columns = |runs: &[Cost]| {
        [
            MedianAndMaximum::new(runs.iter().map(|run| run.wall_ms)),
            MedianAndMaximum::new(runs.iter().map(|run| run.cpu_ms)),
            MedianAndMaximum::new(runs.iter().map(|run| run.peak_mib)),
        ]
    };
    let [wall, cpu, peak] = columns(&agent);
    println!("| {name} | {wall} | {cpu} | {peak} | |");
    if let Some(peer) = peer {
        let [wall, peer_cpu, peer_peak] = columns(&run(Some(peer)));
        println!(
            "| mig-parted v0.13.1 | {wall} | {peer_cpu} | {peer_peak} | {:.1}, {:.1} |",
            peer_cpu.median() / cpu.median(),
            peer_peak.median() / peak.median()
        );
    }
}

/// Compares methods for the same changes; no instance is in use.
fn methods(peer: Option<&Peer>) {
    println!(
        "| 8 x A100-80, no instance in use | method | destroyed | created | changing calls of one GPU, mean, ms | changing calls of all GPUs, ms | NVML calls | exec to exit, ms |\n|---|---|---|---|---|---|---|---|"
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
        let run = |peer: Option<&Peer>| {
            let node = Node::new(8, from, "real");
            node.set_layout(to);
            match peer {
                None => node.run_agent(Log::On),
                Some(peer) => node.run_peer(peer, Log::On),
            }
        };
        row(name, "Octavo", &run(None), true);
        let instances = |mix: &Mix| mix.iter().map(|(_, count)| *count).sum::<u32>();
        let (destroyed, created) = (instances(from), instances(to));
        // The simulator's latencies of a GPU instance and its compute instance: destroyed, and created.
        let time = f64::from(destroyed * (100 + 20) + created * (52 + 20));
        println!(
            "| | clear the GPU, create with placements, all GPUs in parallel (calculated) | {} | {} | {time:.0} | {time:.0} | | |",
            8 * destroyed,
            8 * created
        );
        if let Some(peer) = peer {
            row("", "mig-parted v0.13.1", &run(Some(peer)), false);
        }
    }
}

/// Prints a row. `is_parallel`: whether each GPU has its own thread; otherwise GPUs are changed one after the other.
fn row(name: &str, method: &str, run: &ProgramRun, is_parallel: bool) {
    let (destroyed, created) = layout_runs::instance_counts(&run.calls);
    let changing = |tid: Option<u32>| {
        let calls = run.calls.iter().filter(|call| call.changes());
        duration_ms(calls.filter(|call| tid.is_none_or(|tid| tid == call.tid)))
    };
    let all = changing(None);
    let all_gpus = if is_parallel {
        let threads = layout_runs::changing_threads(&run.calls).into_iter();
        MedianAndMaximum::new(threads.map(|tid| changing(Some(tid)))).maximum()
    } else {
        all
    };
    println!(
        "| {name} | {method} | {destroyed} | {created} | {:.0} | {all_gpus:.0} | {} | {:.0} |",
        all / 8.0,
        run.calls.iter().filter(|call| !call.waits()).count(),
        run.cost.wall_ms
    );
}
