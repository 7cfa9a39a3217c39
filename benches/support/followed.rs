//! The agent as it ships on a simulated machine whose Node it follows: from the hardware to a label, and from a label to the
//! hardware.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nvml_sim::location::STATE_DIRECTORY;
use nvml_sim::model::{Code, Slot, World};
use nvml_sim::store::Store;
use tempfile::TempDir;

use crate::bed::{BASELINE, Bed, NodeObserver};
use crate::changes::{Call, changing, critical, inside, millis};
use crate::simulated;
use crate::spread::Spread;

const LAYOUT: &str = "octavo.dev/layout";
const STATE: &str = "octavo.dev/layout-state";
/// A second choice so soon after another would be taken for a part of a storm, and waited for.
const APART: Duration = Duration::from_millis(2300);

/// A machine, its agent, and its Node.
struct Followed<'a> {
    bed: &'a Bed,
    directory: TempDir,
    node: String,
    agent: Child,
    observer: NodeObserver,
}

/// Something that happens to the hardware.
type Change = fn(&mut World) -> Result<(), Code>;

/// From a change of the hardware to the Node's labels, as another client sees them.
pub(crate) async fn to_label(bed: &Bed, runs: usize) {
    // There and back are two.
    let runs = runs.div_ceil(2);
    println!(
        "| {runs} each, 8 GPUs: ms, p50 / p99 / most | to the label | of it writing the simulator's state | Node written, times |\n|---|---|---|---|"
    );
    let whole: &[(&str, Change)] = &[
        ("a GPU falls off the bus", |world| world.lose_gpu(Slot(3))),
        ("it is back after a reset", |world| world.reset_gpu(Slot(3))),
    ];
    let split: &[(&str, Change)] =
        &[("somebody makes a partition", partition), ("somebody destroys it", unpartition)];
    let mut baseline = Vec::new();
    for latency in ["null", "real"] {
        for (board, mig, changes) in [
            ("H100_80GB_SXM", "disabled", whole),
            ("A100_80GB", "enabled, instances: [{profile: 3g.40gb}]", split),
        ] {
            let scenario = format!(
                "machine: bench\nlinks: nvswitch\nlatency: {latency}\ngpus:\n- {{board: {board}, count: 8, mig: {mig}}}\n"
            );
            let mut machine = Followed::start(bed, &scenario, &[]).await;
            let mut rows: Vec<[Vec<f64>; 3]> = changes.iter().map(|_| Default::default()).collect();
            for run in 0..runs {
                for (row, (_, change)) in rows.iter_mut().zip(changes) {
                    let sample = machine.change(*change, run).await;
                    row.iter_mut().zip(sample).for_each(|(all, one)| all.push(one));
                    baseline.push(machine.baseline(run).await);
                }
            }
            for ((what, _), [took, state, writes]) in changes.iter().zip(rows) {
                let writes: f64 = writes.iter().sum();
                println!(
                    "| {board}, latency {latency}: {what} | {} | {:.1} | {writes} |",
                    Spread::of(took),
                    Spread::of(state).at(50)
                );
            }
        }
    }
    println!(
        "| server-side apply of one label, without an agent ({}) | {} | | |\n",
        baseline.len(),
        Spread::of(baseline)
    );
}

fn partition(world: &mut World) -> Result<(), Code> {
    let gpu = world.gpu(Slot(5))?;
    let profile = gpu.profiles.iter().find(|one| one.name == "3g.40gb");
    let profile = profile.unwrap();
    let (id, full) = (profile.id, profile.full_compute_profile().unwrap().id);
    let instance = world.create_gi(Slot(5), id, None)?;
    world.create_ci(Slot(5), instance, full, None).map(drop)
}

fn unpartition(world: &mut World) -> Result<(), Code> {
    let mig = world.gpu(Slot(5))?.mig()?;
    let instance = mig.instances.last().unwrap();
    let (instance, compute) = (instance.id, instance.compute[0].id);
    world.destroy_ci(Slot(5), instance, compute)?;
    world.destroy_gi(Slot(5), instance)
}

/// From a label to the geometry, and to the labels that say so.
pub(crate) async fn to_geometry(bed: &Bed, runs: usize) {
    // There and back are two.
    let runs = runs.div_ceil(2);
    println!(
        "| {runs} each, 8 x A100-80: ms, p50 / p99 / most | to the geometry | to the label `applied` | of it inside the driver | beyond that | Node written, times |\n|---|---|---|---|---|---|"
    );
    for latency in ["null", "real"] {
        let scenario = format!(
            "machine: bench\nlinks: nvswitch\nlatency: {latency}\ngpus:\n- {{board: A100_80GB, count: 8, mig: enabled, instances: [{{profile: 3g.40gb, count: 2}}]}}\n"
        );
        let mut machine = Followed::start(bed, &scenario, &["--layouts"]).await;
        // What comes first is no change of the layout.
        machine.layout("halves").await;
        let mut rows: [[Vec<f64>; 5]; 2] = Default::default();
        for _ in 0..runs {
            for (row, layout) in rows.iter_mut().zip(["seven", "halves"]) {
                let sample = machine.layout(layout).await;
                row.iter_mut().zip(sample).for_each(|(all, one)| all.push(one));
            }
        }
        for (name, row) in ["2 x 3g to 7 x 1g", "7 x 1g to 2 x 3g"].iter().zip(rows) {
            let [geometry, label, inside, beyond, writes] = row;
            println!(
                "| latency {latency}: {name} | {} | {} | {:.0} | {} | {:.1} |",
                Spread::of(geometry),
                Spread::of(label),
                Spread::of(inside).at(50),
                Spread::of(beyond),
                mean(&writes)
            );
        }
    }
    println!();
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap())
}

impl<'a> Followed<'a> {
    /// Until the Node has its labels. With `--layouts`, partitions are as its label says.
    async fn start(bed: &'a Bed, scenario: &str, arguments: &[&str]) -> Self {
        let directory = simulated::directory("cluster", scenario);
        let node = directory.path().file_name().unwrap().to_string_lossy().to_lowercase();
        bed.create(&node).await;
        let mut observer = bed.observer(&node).await;
        let mut command = agent(&directory);
        command.args(["--label-sink", "node", "--node-name", &node]);
        command.arg("--kubeconfig").arg(bed.agents.path());
        if arguments.contains(&"--layouts") {
            let layouts = directory.path().join("layouts.yaml");
            fs::write(&layouts, LAYOUTS).unwrap();
            command.arg("--layouts").arg(layouts);
            command.env("NVML_SIM_LOG", directory.path().join("calls.jsonl"));
        }
        let agent = command.spawn().unwrap();
        observer.until(|labels| labels.contains_key("octavo.dev/type")).await;
        observer.quiet(Duration::from_secs(2)).await;
        Self { bed, directory, node, agent, observer }
    }

    /// Time to the label, time of the change itself, and how often the Node was written.
    async fn change(&mut self, change: Change, run: usize) -> [f64; 3] {
        let before = self.observer.labels.clone();
        let store = Store::at(&self.directory.path().join(STATE_DIRECTORY));
        let start = Instant::now();
        let changed = tokio::task::spawn_blocking(move || {
            store.change(change).unwrap().unwrap();
            start.elapsed()
        });
        let (at, first) = self.observer.until(|labels| *labels != before).await;
        let more = self.observer.quiet(pause(run)).await;
        let writes = f64::from(u32::try_from(first + more).unwrap());
        [millis(at.duration_since(start)), millis(changed.await.unwrap()), writes]
    }

    /// The same way without an agent.
    async fn baseline(&mut self, run: usize) -> f64 {
        let value =
            format!("{:?}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos());
        let start = Instant::now();
        self.bed.label(&self.node, "bench", BASELINE, &value).await;
        let is_there = |labels: &crate::bed::Labels| labels.get(BASELINE) == Some(&value);
        let (at, _) = self.observer.until(is_there).await;
        self.observer.quiet(pause(run) / 2).await;
        millis(at.duration_since(start))
    }

    /// Times to the geometry, to the label, inside the driver, beyond that; how often the Node was written beside the choice.
    async fn layout(&mut self, layout: &str) -> [f64; 5] {
        let log = self.directory.path().join("calls.jsonl");
        let read_before = fs::metadata(&log).unwrap().len();
        let (key, count) = match layout {
            "seven" => ("nvidia.com/mig-1g.10gb.count", "56"),
            _ => ("nvidia.com/mig-3g.40gb.count", "16"),
        };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let start = Instant::now();
        self.bed.label(&self.node, "person", LAYOUT, layout).await;
        let applied = |labels: &crate::bed::Labels| {
            let says = |key: &str, value: &str| labels.get(key).is_some_and(|now| now == value);
            says(LAYOUT, layout) && says(STATE, "applied") && says(key, count)
        };
        let (at, writes) = self.observer.until(applied).await;
        let took = at.duration_since(start);
        let mut file = File::open(&log).unwrap();
        file.seek(SeekFrom::Start(read_before)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let calls = whole.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut calls: Vec<Call> = calls.collect();
        calls.retain(|call| !call.waits() && call.began() >= wall && call.began() < wall + took);
        let last = calls.iter().filter(|call| call.changes());
        let last = last.map(|call| call.began() + call.took()).max();
        let geometry = last.map_or(Duration::ZERO, |last| last.saturating_sub(wall));
        let changing = changing(&calls);
        let readings = calls.iter().filter(|call| !changing.contains(&call.tid));
        let driver = critical(&calls) + inside(readings);
        self.observer.quiet(APART.saturating_sub(took).max(Duration::from_millis(300))).await;
        let writes = f64::from(u32::try_from(writes).unwrap()) - 1.0;
        [millis(geometry), millis(took), driver, millis(took) - driver, writes]
    }
}

impl Drop for Followed<'_> {
    fn drop(&mut self) {
        let _gone_already = self.agent.kill();
        let _gone_already = self.agent.wait();
    }
}

/// Not always the same, so that what happens every so often is not always met at the same moment.
fn pause(run: usize) -> Duration {
    Duration::from_millis(300 + u64::try_from(run * 37 % 150).unwrap())
}

const LAYOUTS: &str = "apiVersion: octavo.dev/v1
kind: Layouts
layouts:
  seven: [{devices: all, mig: {1g.10gb: 7}}]
  halves: [{devices: all, mig: {3g.40gb: 2}}]
";

/// An agent that knows where its machine is, and not yet where its labels go.
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
        ("--nvml-library", simulated::LIBRARY),
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
