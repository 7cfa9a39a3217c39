//! What many agents cost an API server: each is the part of the agent that follows and writes a Node, with a connection of its own.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_kube::client;
use octavo_kube::node::{NodeController, NodeHandle};
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_node::labels::{self, LayoutState, Options};
use octavo_node::node_object::status_annotation;
use octavo_node::node_object::{DesiredLabels, DesiredNode, STATUS_ANNOTATION};
use octavo_planner::reconcile::{ApplyState, ChangeOutcome, DeviceLayoutStatus, NodeLayoutStatus};
use tokio::task::JoinHandle;

use crate::bed::{Bed, Usage, own_mib, own_sockets, since, words};
use crate::changes::millis;
use crate::simulated;
use crate::spread::Spread;

/// How long the server is watched with Nodes and without agents.
const WITHOUT: Duration = Duration::from_secs(20);
/// In which every Node changes once.
const STORM: Duration = Duration::from_secs(10);

/// Prints what they cost at rest for `span`, and in storms.
pub(crate) async fn run(bed: &Bed, count: usize, span: Duration) {
    let machine = inventory();
    let (applied, pending) =
        (wanted(&machine, LayoutState::Applied), wanted(&machine, LayoutState::Pending));
    let DesiredLabels::Exactly(labels) = &applied.labels else {
        unreachable!("made right above");
    };
    println!(
        "{count} agents; each Node gets {} labels and an annotation of {} bytes (8 x A100, 56 partitions), beside kubelet's fifty images.\n",
        labels.iter().count(),
        applied.annotations.values().map(String::len).sum::<usize>()
    );
    println!(
        "| {count} Nodes | s | API server, MiB resident | its CPU, millicores | etcd, MiB | requests of agents | a second | answers, ms p50 / p99 / most |\n|---|---|---|---|---|---|---|---|"
    );
    let names: Vec<String> = (0..count).map(|number| format!("node-{number:04}.bench")).collect();
    for name in &names {
        bed.create(name).await;
    }
    Phase::begin(bed, "without agents").over(WITHOUT).await.end(Vec::new());

    let (own, sockets) = (own_mib(), own_sockets());
    let phase = Phase::begin(bed, "all agents start at once");
    let fleet = Fleet::start(bed, &names).await;
    let times = fleet.want(|_| applied.clone(), Duration::ZERO).await;
    let each = |all: f64| all / f64::from(u32::try_from(count).unwrap());
    let (own, sockets) = (each(own_mib() - own), each(own_sockets() - sockets));
    phase.end(times);
    let watches = bed.watches();

    // A write that comes late would not be of the time at rest.
    tokio::time::sleep(Duration::from_secs(5)).await;
    Phase::begin(bed, "at rest").over(span).await.end(Vec::new());

    let phase = Phase::begin(bed, "a label of each changes, within 10 s");
    let times = fleet.want(|_| pending.clone(), STORM).await;
    phase.end(times);

    let phase = Phase::begin(bed, "a label of each changes, all at once");
    let times = fleet.want(|_| applied.clone(), Duration::ZERO).await;
    phase.end(times);

    let phase = Phase::begin(bed, "a person labels each, within 10 s");
    let times = fleet.labelled(bed, &names).await;
    phase.end(times);

    drop(fleet);
    let phase = Phase::begin(bed, "all agents start again at once");
    let fleet = Fleet::start(bed, &names).await;
    let times = fleet.want(|_| applied.clone(), Duration::ZERO).await;
    phase.end(times);

    println!(
        "\nWatches of Nodes that were open when all had started: {watches}. Of this process each agent has {:.0} KiB and {sockets:.2} connections.\n",
        own * 1024.0
    );
}

/// A time in which requests are counted.
struct Phase<'a> {
    bed: &'a Bed,
    what: &'static str,
    requests: crate::bed::Requests,
    before: Usage,
    after: Option<Usage>,
}

impl<'a> Phase<'a> {
    fn begin(bed: &'a Bed, what: &'static str) -> Self {
        Self { bed, what, requests: bed.requests(), before: bed.usage(), after: None }
    }

    async fn over(mut self, span: Duration) -> Self {
        tokio::time::sleep(span).await;
        self.after = Some(self.bed.usage());
        self
    }

    fn end(self, times: Vec<f64>) {
        let after = self.after.unwrap_or_else(|| self.bed.usage());
        let span = after.at.duration_since(self.before.at).as_secs_f64();
        let requests = since(&self.requests, &self.bed.requests());
        let total: usize = requests.values().sum();
        let times = if times.is_empty() { String::new() } else { Spread::of(times).to_string() };
        println!(
            "| {} | {span:.1} | {:.0} | {:.0} | {:.0} | {} | {:.1} | {times} |",
            self.what,
            after.mib,
            (after.cpu_s - self.before.cpu_s) * 1000.0 / span,
            after.etcd_mib,
            words(&requests),
            f64::from(u32::try_from(total).unwrap()) / span
        );
    }
}

/// Agents; they end when this is dropped.
struct Fleet {
    links: Vec<Arc<NodeHandle>>,
    keepers: Vec<JoinHandle<()>>,
}

impl Fleet {
    async fn start(bed: &Bed, names: &[String]) -> Self {
        let (mut links, mut keepers) = (Vec::new(), Vec::new());
        for name in names {
            let client =
                client::connect(Some(&bed.agents.path()), client::Program::Agent).await.unwrap();
            let (link, keeper) = NodeController::new(client, &name.parse().unwrap());
            links.push(Arc::new(link));
            keepers.push(tokio::spawn(keeper.run()));
        }
        Self { links, keepers }
    }

    /// Each wants something else, spread over a time; how long each takes until the server has it, in milliseconds.
    async fn want(&self, wanted: impl Fn(usize) -> DesiredNode, over: Duration) -> Vec<f64> {
        let step = over / u32::try_from(self.links.len()).unwrap();
        let begin = tokio::time::Instant::now();
        let mut tasks = Vec::new();
        for (number, link) in (0_u32..).zip(&self.links) {
            tokio::time::sleep_until(begin + step * number).await;
            let mut new = wanted(usize::try_from(number).unwrap());
            let link = Arc::clone(link);
            tasks.push(tokio::spawn(async move {
                let start = Instant::now();
                let mut view = link.view.clone();
                new.uid = {
                    let seen = view.wait_for(Option::is_some).await.unwrap();
                    seen.as_ref().map(|view| view.uid.clone())
                };
                link.task.set(new);
                link.wait_until_applied().await;
                millis(start.elapsed())
            }));
        }
        ended(tasks).await
    }

    /// Labels each Node; the time until its agent knows, in milliseconds.
    async fn labelled(&self, bed: &Bed, names: &[String]) -> Vec<f64> {
        let step = STORM / u32::try_from(self.links.len()).unwrap();
        let begin = tokio::time::Instant::now();
        let mut tasks = Vec::new();
        for ((number, link), name) in (0_u32..).zip(&self.links).zip(names) {
            tokio::time::sleep_until(begin + step * number).await;
            let mut view = link.view.clone();
            tasks.push(tokio::spawn(async move {
                let has = |view: &Option<Arc<octavo_node::node_object::ObservedNode>>| {
                    view.as_ref().is_some_and(|view| view.labels.contains_key("example.com/team"))
                };
                view.wait_for(has).await.unwrap();
                millis(begin.elapsed()) - millis(step * number)
            }));
            bed.label(name, "person", "example.com/team", "a").await;
        }
        ended(tasks).await
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.keepers.iter().for_each(JoinHandle::abort);
    }
}

async fn ended(tasks: Vec<JoinHandle<f64>>) -> Vec<f64> {
    let mut times = Vec::new();
    for task in tasks {
        times.push(task.await.unwrap());
    }
    times
}

/// What an agent of this machine says.
fn wanted(machine: &Inventory, state: LayoutState) -> DesiredNode {
    let options = Options { layout: Some(state), ..Options::default() };
    let devices = machine.devices.iter();
    let status = NodeLayoutStatus {
        layout: Some("all-1g.10gb".to_owned()),
        state: Some(Reason::Applied.into()),
        devices: devices
            .map(|device| {
                DeviceLayoutStatus::from_state(
                    machine,
                    device.pci,
                    &ApplyState::Ended(ChangeOutcome::Applied),
                )
            })
            .collect(),
        ..NodeLayoutStatus::default()
    };
    let text = status_annotation::annotation(&status, machine, &[], None);
    DesiredNode {
        labels: DesiredLabels::Exactly(labels::compile(machine, &options, None).labels),
        annotations: [(STATUS_ANNOTATION.to_owned(), text)].into(),
        ..DesiredNode::default()
    }
}

/// A machine, read by the program that people use.
fn inventory() -> Inventory {
    let scenario = "machine: bench\nmachine_type: DGX\nlinks: nvswitch\ngpus:\n- {board: A100_80GB, count: 8, mig: enabled, instances: [{profile: 1g.10gb, count: 7}]}\n";
    let directory = simulated::directory("keepers", scenario);
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["inspect", "-o", "json", "--nvml-library"])
        .arg(directory.path().join(simulated::LIBRARY))
        .arg("--sys-root")
        .arg(directory.path().join("sys"))
        .output()
        .unwrap();
    octavo_files::inventory::parse(&String::from_utf8(output.stdout).unwrap()).unwrap()
}
