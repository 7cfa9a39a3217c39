//! An agent on a simulated machine that watches its Node: times from a hardware change to a label, and from a label to changed
//! partitions.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nvml_sim::location::STATE_DIRECTORY;
use nvml_sim::model::{Code, Slot, World};
use nvml_sim::store::Store;
use tempfile::TempDir;

use crate::distribution::Distribution;
use crate::layout_runs::{Call, changing_threads, duration_ms, longest_driver_ms, millis};
use crate::test_cluster::{BASELINE, Labels, NodeObserver, TestCluster};
use crate::{partitions, simulated_machine};

const LAYOUT: &str = "octavo.dev/layout";
const STATE: &str = "octavo.dev/layout-state";
/// Minimum time between two layouts. After two changes within two seconds, the agent waits until the label has been stable for two
/// seconds.
const LAYOUT_INTERVAL: Duration = Duration::from_millis(2300);

/// A machine, its agent, and its Node. The agent is killed when this is dropped.
struct WatchedNode<'a> {
    cluster: &'a TestCluster,
    directory: TempDir,
    node: String,
    agent: Child,
    observer: NodeObserver,
}

/// A change of the hardware.
type Change = fn(&mut World) -> Result<(), Code>;

/// Measures the time from a hardware change until another client observes the Node's changed labels.
pub(crate) async fn to_label(cluster: &TestCluster, runs: usize) {
    // Each run consists of a change and the change back.
    let runs = runs.div_ceil(2);
    println!(
        "| {runs} changes per row, 8 GPUs: ms, p50 / p99 / maximum | to the label | writing the simulator's state | Node writes |\n|---|---|---|---|"
    );
    let whole: &[(&str, Change)] = &[
        ("a GPU falls off the bus", |world| world.lose_gpu(Slot(3))),
        ("the GPU returns after a reset", |world| world.reset_gpu(Slot(3))),
    ];
    let split: &[(&str, Change)] = &[
        ("another program creates a partition", |world| partitions::create(world, "3g.40gb")),
        ("another program destroys the partition", partitions::destroy_last),
    ];
    let mut baseline = Vec::new();
    for latency in ["null", "real"] {
        for (board, mig, changes) in [
            ("H100_80GB_SXM", "disabled", whole),
            ("A100_80GB", "enabled, instances: [{profile: 3g.40gb}]", split),
        ] {
            let scenario = format!(
                "machine: bench\nlinks: nvswitch\nlatency: {latency}\ngpus:\n- {{board: {board}, count: 8, mig: {mig}}}\n"
            );
            let mut machine = WatchedNode::start(cluster, &scenario, &[]).await;
            let mut rows: Vec<[Vec<f64>; 3]> = changes.iter().map(|_| Default::default()).collect();
            for run in 0..runs {
                for (row, (_, change)) in rows.iter_mut().zip(changes) {
                    let sample = machine.change(*change, run).await;
                    row.iter_mut().zip(sample).for_each(|(values, value)| values.push(value));
                    baseline.push(machine.baseline(run).await);
                }
            }
            for ((change, _), [times, state, writes]) in changes.iter().zip(rows) {
                let writes: f64 = writes.iter().sum();
                println!(
                    "| {board}, latency {latency}: {change} | {} | {:.1} | {writes} |",
                    Distribution::new(times),
                    Distribution::new(state).percentile(50)
                );
            }
        }
    }
    println!(
        "| {} times: server-side apply of one label, without an agent | {} | | |\n",
        baseline.len(),
        Distribution::new(baseline)
    );
}

/// Measures the time from a layout label to the changed partitions, and to the labels that report them.
pub(crate) async fn to_partitions(cluster: &TestCluster, runs: usize) {
    // Each run consists of a change and the change back.
    let runs = runs.div_ceil(2);
    println!(
        "| {runs} changes per row, 8 x A100-80: ms, p50 / p99 / maximum | partitions | label `applied` | driver | overhead | Node writes |\n|---|---|---|---|---|---|"
    );
    for latency in ["null", "real"] {
        let scenario = format!(
            "machine: bench\nlinks: nvswitch\nlatency: {latency}\ngpus:\n- {{board: A100_80GB, count: 8, mig: enabled, instances: [{{profile: 3g.40gb, count: 2}}]}}\n"
        );
        let mut machine = WatchedNode::start(cluster, &scenario, &["--layouts"]).await;
        // The machine already has this layout.
        machine.apply_layout("halves").await;
        let mut rows: [[Vec<f64>; 5]; 2] = Default::default();
        for _ in 0..runs {
            for (row, layout) in rows.iter_mut().zip(["seven", "halves"]) {
                let sample = machine.apply_layout(layout).await;
                row.iter_mut().zip(sample).for_each(|(values, value)| values.push(value));
            }
        }
        for (name, row) in ["2 x 3g to 7 x 1g", "7 x 1g to 2 x 3g"].iter().zip(rows) {
            let [partitions, label, driver, overhead, writes] = row;
            println!(
                "| latency {latency}: {name} | {} | {} | {:.0} | {} | {:.1} |",
                Distribution::new(partitions),
                Distribution::new(label),
                Distribution::new(driver).percentile(50),
                Distribution::new(overhead),
                mean(&writes)
            );
        }
    }
    println!();
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap())
}

impl<'a> WatchedNode<'a> {
    /// Starts an agent and waits until the Node has its labels. With `--layouts`, the agent applies the layout of the label.
    async fn start(cluster: &'a TestCluster, scenario: &str, arguments: &[&str]) -> Self {
        let directory = simulated_machine::directory("cluster", scenario);
        let node = directory.path().file_name().unwrap().to_string_lossy().to_lowercase();
        cluster.create(&node).await;
        let mut observer = cluster.observer(&node).await;
        let mut command = agent(&directory);
        command.args(["--label-sink", "node", "--node-name", &node]);
        command.arg("--kubeconfig").arg(cluster.agents.path());
        if arguments.contains(&"--layouts") {
            let layouts = directory.path().join("layouts.yaml");
            fs::write(&layouts, LAYOUTS).unwrap();
            command.arg("--layouts").arg(layouts);
            command.env("NVML_SIM_LOG", directory.path().join("calls.jsonl"));
        }
        let agent = command.spawn().unwrap();
        observer.until(|labels| labels.contains_key("octavo.dev/type")).await;
        observer.count_changes(Duration::from_secs(2)).await;
        Self { cluster, directory, node, agent, observer }
    }

    /// Returns the time to the label, the time in which the simulator writes its state, and the number of Node writes.
    async fn change(&mut self, change: Change, run: usize) -> [f64; 3] {
        let before = self.observer.labels.clone();
        let store = Store::at(&self.directory.path().join(STATE_DIRECTORY));
        let start = Instant::now();
        let state_written = tokio::task::spawn_blocking(move || {
            store.change(change).unwrap().unwrap();
            start.elapsed()
        });
        let (at, first) = self.observer.until(|labels| *labels != before).await;
        let further = self.observer.count_changes(pause(run)).await;
        let writes = f64::from(u32::try_from(first + further).unwrap());
        [millis(at.duration_since(start)), millis(state_written.await.unwrap()), writes]
    }

    /// Returns the time until the watch observes a label that another client sets.
    async fn baseline(&mut self, run: usize) -> f64 {
        let value =
            format!("{:?}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos());
        let start = Instant::now();
        self.cluster.label(&self.node, "bench", BASELINE, &value).await;
        let is_set = |labels: &Labels| labels.get(BASELINE) == Some(&value);
        let (at, _) = self.observer.until(is_set).await;
        self.observer.count_changes(pause(run) / 2).await;
        millis(at.duration_since(start))
    }

    /// Sets the layout label. Returns the times to the partitions, to the label, inside the driver and outside it, and the number of
    /// Node writes by the agent.
    async fn apply_layout(&mut self, layout: &str) -> [f64; 5] {
        let log = self.directory.path().join("calls.jsonl");
        let old_bytes = fs::metadata(&log).unwrap().len();
        let (key, count) = match layout {
            "seven" => ("nvidia.com/mig-1g.10gb.count", "56"),
            _ => ("nvidia.com/mig-3g.40gb.count", "16"),
        };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let start = Instant::now();
        self.cluster.label(&self.node, "user", LAYOUT, layout).await;
        let is_applied = |labels: &Labels| {
            let has = |key: &str, value: &str| labels.get(key).is_some_and(|label| label == value);
            has(LAYOUT, layout) && has(STATE, "applied") && has(key, count)
        };
        let (at, writes) = self.observer.until(is_applied).await;
        let time = at.duration_since(start);
        let mut file = File::open(&log).unwrap();
        file.seek(SeekFrom::Start(old_bytes)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let calls = complete.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut calls: Vec<Call> = calls.collect();
        calls.retain(|call| !call.waits() && call.start() >= wall && call.start() < wall + time);
        let changes = calls.iter().filter(|call| call.changes());
        let last = changes.map(|call| call.start() + call.duration()).max();
        let partitions = last.map_or(Duration::ZERO, |last| last.saturating_sub(wall));
        let changing = changing_threads(&calls);
        let readings = calls.iter().filter(|call| !changing.contains(&call.tid));
        let driver = longest_driver_ms(&calls) + duration_ms(readings);
        let pause = LAYOUT_INTERVAL.saturating_sub(time).max(Duration::from_millis(300));
        self.observer.count_changes(pause).await;
        // The first write is the layout label.
        let writes = f64::from(u32::try_from(writes).unwrap()) - 1.0;
        [millis(partitions), millis(time), driver, millis(time) - driver, writes]
    }
}

impl Drop for WatchedNode<'_> {
    fn drop(&mut self) {
        let _already_exited = self.agent.kill();
        let _already_exited = self.agent.wait();
    }
}

/// Returns a pause that varies between runs, so that changes do not align with periodic work of the agent.
fn pause(run: usize) -> Duration {
    Duration::from_millis(300 + u64::try_from(run * 37 % 150).unwrap())
}

const LAYOUTS: &str = "apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  seven: [{devices: all, mig: {1g.10gb: 7}}]
  halves: [{devices: all, mig: {3g.40gb: 2}}]
";

/// Returns the command of an agent on a machine, without a destination for labels.
pub(crate) fn agent(directory: &TempDir) -> Command {
    let file = |name: &str| directory.path().join(name);
    if !file("proc").exists() {
        fs::create_dir(file("proc")).unwrap();
        let devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n";
        fs::write(file("proc/devices"), devices).unwrap();
    }
    let mut agent = Command::new(env!("CARGO_BIN_EXE_octavo-agent"));
    agent.args(["--mig-strategy", "mixed", "--log-level", "error"]);
    for (flag, name) in [
        ("--nvml-library", simulated_machine::LIBRARY),
        ("--sys-root", "sys"),
        ("--state-dir", "state"),
        ("--proc-root", "proc"),
        ("--pod-resources", "no-kubelet/kubelet.sock"),
        ("--nvidia-smi", "nvidia-smi"),
    ] {
        agent.arg(flag).arg(file(name));
    }
    agent.stdin(Stdio::null()).stdout(Stdio::null());
    agent
}
