//! The load of many agents on an API server. Each is the part of the agent that watches and writes a Node, with its own client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_kube::client;
use octavo_kube::node::{NodeController, NodeHandle};
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_node::labels::{self, LayoutState, Options};
use octavo_node::node_object::status_annotation;
use octavo_node::node_object::{DesiredLabels, DesiredNode, ObservedNode, STATUS_ANNOTATION};
use octavo_planner::reconcile::{ApplyState, ChangeOutcome, DeviceLayoutStatus, NodeLayoutStatus};
use tokio::task::JoinHandle;

use crate::distribution::Distribution;
use crate::layout_runs::millis;
use crate::test_cluster::{TestCluster, Usage, own_sockets, request_list, requests_since};
use crate::{inspect, process};

/// Duration of the measurement without agents.
const BASELINE_TIME: Duration = Duration::from_secs(20);
/// Time in which every Node changes once.
const CHANGE_TIME: Duration = Duration::from_secs(10);

/// Prints the load while the agents start, while they are idle for `span`, and while all Nodes change.
pub(crate) async fn run(cluster: &TestCluster, count: usize, span: Duration) {
    let machine = inventory();
    let applied = desired_node(&machine, LayoutState::Applied);
    let pending = desired_node(&machine, LayoutState::Pending);
    let DesiredLabels::Exactly(labels) = &applied.labels else {
        unreachable!("desired_node returns the exact labels");
    };
    println!(
        "{count} agents; each Node gets {} labels and an annotation of {} bytes (8 x A100, 56 partitions), in addition to the fifty images that a kubelet lists.\n",
        labels.iter().count(),
        applied.annotations.values().map(String::len).sum::<usize>()
    );
    println!(
        "| {count} Nodes | duration, s | API server, MiB resident | API server, millicores | etcd, MiB | requests of agents | requests/s | response, ms p50 / p99 / maximum |\n|---|---|---|---|---|---|---|---|"
    );
    let names: Vec<String> = (0..count).map(|number| format!("node-{number:04}.bench")).collect();
    for name in &names {
        cluster.create(name).await;
    }
    Phase::begin(cluster, "without agents").wait(BASELINE_TIME).await.end(Vec::new());

    let own_mib = || process::resident_mib(std::process::id());
    let (memory, sockets) = (own_mib(), own_sockets());
    let phase = Phase::begin(cluster, "all agents start at the same time");
    let fleet = Fleet::start(cluster, &names).await;
    let times = fleet.set_desired(|_| applied.clone(), Duration::ZERO).await;
    let per_agent = |total: f64| total / f64::from(u32::try_from(count).unwrap());
    let (memory, sockets) = (per_agent(own_mib() - memory), per_agent(own_sockets() - sockets));
    phase.end(times);
    let watches = cluster.watches();

    // Delayed writes of the start must not count as idle.
    tokio::time::sleep(Duration::from_secs(5)).await;
    Phase::begin(cluster, "idle").wait(span).await.end(Vec::new());

    let phase = Phase::begin(cluster, "one label of each Node changes, within 10 s");
    let times = fleet.set_desired(|_| pending.clone(), CHANGE_TIME).await;
    phase.end(times);

    let phase = Phase::begin(cluster, "one label of each Node changes, all at the same time");
    let times = fleet.set_desired(|_| applied.clone(), Duration::ZERO).await;
    phase.end(times);

    let phase = Phase::begin(cluster, "a user labels each Node, within 10 s");
    let times = fleet.label_nodes(cluster, &names).await;
    phase.end(times);

    drop(fleet);
    let phase = Phase::begin(cluster, "all agents restart at the same time");
    let fleet = Fleet::start(cluster, &names).await;
    let times = fleet.set_desired(|_| applied.clone(), Duration::ZERO).await;
    phase.end(times);

    println!(
        "\nOpen watches of Nodes after the start: {watches}. Each agent uses {:.0} KiB and {sockets:.2} connections of this process.\n",
        memory * 1024.0
    );
}

/// A period in which requests and CPU are counted.
struct Phase<'a> {
    cluster: &'a TestCluster,
    name: &'static str,
    requests: crate::test_cluster::Requests,
    before: Usage,
    after: Option<Usage>,
}

impl<'a> Phase<'a> {
    fn begin(cluster: &'a TestCluster, name: &'static str) -> Self {
        Self { cluster, name, requests: cluster.requests(), before: cluster.usage(), after: None }
    }

    async fn wait(mut self, span: Duration) -> Self {
        tokio::time::sleep(span).await;
        self.after = Some(self.cluster.usage());
        self
    }

    fn end(self, times: Vec<f64>) {
        let after = self.after.unwrap_or_else(|| self.cluster.usage());
        let span = after.at.duration_since(self.before.at).as_secs_f64();
        let requests = requests_since(&self.requests, &self.cluster.requests());
        let total: usize = requests.values().sum();
        let times =
            if times.is_empty() { String::new() } else { Distribution::new(times).to_string() };
        println!(
            "| {} | {span:.1} | {:.0} | {:.0} | {:.0} | {} | {:.1} | {times} |",
            self.name,
            after.mib,
            (after.cpu_s - self.before.cpu_s) * 1000.0 / span,
            after.etcd_mib,
            request_list(&requests),
            f64::from(u32::try_from(total).unwrap()) / span
        );
    }
}

/// Agents; aborted when dropped.
struct Fleet {
    handles: Vec<Arc<NodeHandle>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Fleet {
    async fn start(cluster: &TestCluster, names: &[String]) -> Self {
        let (mut handles, mut tasks) = (Vec::new(), Vec::new());
        for name in names {
            let client = client::connect(Some(&cluster.agents.path()), client::Program::Agent)
                .await
                .unwrap();
            let (handle, controller) = NodeController::new(client, &name.parse().unwrap());
            handles.push(Arc::new(handle));
            tasks.push(tokio::spawn(controller.run()));
        }
        Self { handles, tasks }
    }

    /// Sets the desired Node of each agent, spread over `span`. Returns the times until the server has accepted the writes, in
    /// milliseconds.
    async fn set_desired(
        &self,
        desired: impl Fn(usize) -> DesiredNode,
        span: Duration,
    ) -> Vec<f64> {
        let step = span / u32::try_from(self.handles.len()).unwrap();
        let start = tokio::time::Instant::now();
        let mut tasks = Vec::new();
        for (number, handle) in (0_u32..).zip(&self.handles) {
            tokio::time::sleep_until(start + step * number).await;
            let mut desired = desired(usize::try_from(number).unwrap());
            let handle = Arc::clone(handle);
            tasks.push(tokio::spawn(async move {
                let start = Instant::now();
                let mut view = handle.view.clone();
                desired.uid = {
                    let observed = view.wait_for(Option::is_some).await.unwrap();
                    observed.as_ref().map(|node| node.uid.clone())
                };
                handle.task.set(desired);
                handle.wait_until_applied().await;
                millis(start.elapsed())
            }));
        }
        join_all(tasks).await
    }

    /// Labels each Node. Returns the times until the agents receive the labels, in milliseconds.
    async fn label_nodes(&self, cluster: &TestCluster, names: &[String]) -> Vec<f64> {
        let step = CHANGE_TIME / u32::try_from(self.handles.len()).unwrap();
        let start = tokio::time::Instant::now();
        let mut tasks = Vec::new();
        for ((number, handle), name) in (0_u32..).zip(&self.handles).zip(names) {
            tokio::time::sleep_until(start + step * number).await;
            let mut view = handle.view.clone();
            tasks.push(tokio::spawn(async move {
                let has_label = |node: &Option<Arc<ObservedNode>>| {
                    node.as_ref().is_some_and(|node| node.labels.contains_key("example.com/team"))
                };
                view.wait_for(has_label).await.unwrap();
                millis(start.elapsed()) - millis(step * number)
            }));
            cluster.label(name, "user", "example.com/team", "a").await;
        }
        join_all(tasks).await
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn join_all(tasks: Vec<JoinHandle<f64>>) -> Vec<f64> {
    let mut times = Vec::new();
    for task in tasks {
        times.push(task.await.unwrap());
    }
    times
}

/// Returns the labels and annotations that the agent of `machine` writes.
fn desired_node(machine: &Inventory, state: LayoutState) -> DesiredNode {
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

fn inventory() -> Inventory {
    inspect::inventory(
        "machine: bench\nmachine_type: DGX\nlinks: nvswitch\ngpus:\n- {board: A100_80GB, count: 8, mig: enabled, instances: [{profile: 1g.10gb, count: 7}]}\n",
    )
}
