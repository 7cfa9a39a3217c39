//! The cost of watching a Node while idle, compared with the same agent that writes its labels to standard output.

use std::process::Child;
use std::time::Duration;

use tempfile::TempDir;

use crate::test_cluster::TestCluster;
use crate::watched_node::agent;
use crate::{process, simulated_machine};

/// Time after which an agent has written everything and is idle.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// An agent; killed when dropped.
struct RunningAgent(Child);

impl Drop for RunningAgent {
    fn drop(&mut self) {
        let _already_exited = self.0.kill();
        let _already_exited = self.0.wait();
    }
}

/// Prints memory, measured with one agent at a time because several would share pages, and CPU, measured with all agents in parallel.
pub(crate) async fn run(cluster: &TestCluster, span: Duration) {
    let whole = "{board: H100_80GB_SXM, count: 8}";
    let split =
        "{board: A100_80GB, count: 8, mig: enabled, instances: [{profile: 1g.10gb, count: 7}]}";
    let mut idle = Vec::new();
    let mut rows = Vec::new();
    for (name, gpus) in [("8 x H100", whole), ("8 x A100-80, 56 partitions", split)] {
        let scenario = format!("machine: bench\nlinks: nvswitch\nlatency: null\ngpus:\n- {gpus}\n");
        for sink in ["stdout", "node"] {
            let directory = simulated_machine::directory("idle", &scenario);
            let agent = start(cluster, &directory, sink, &["--interval", "200ms"]).await;
            tokio::time::sleep(SETTLE_TIME).await;
            let memory = process::memory(agent.0.id());
            drop(agent);
            rows.push((format!("{name}, --label-sink {sink}"), memory));
            idle.push((directory, sink));
        }
    }
    let mut agents = Vec::new();
    for (directory, sink) in &idle {
        agents.push(start(cluster, directory, sink, &[]).await);
    }
    tokio::time::sleep(SETTLE_TIME).await;
    let costs = |agent: &RunningAgent| {
        let pid = agent.0.id();
        (process::cpu_ms(pid), process::wakeups(pid))
    };
    let before: Vec<_> = agents.iter().map(costs).collect();
    tokio::time::sleep(span).await;
    println!(
        "| idle for {} s, default interval | PSS, MiB | anonymous | CPU, ms | millicores | wake-ups/s |\n|---|---|---|---|---|---|",
        span.as_secs()
    );
    for ((agent, before), (name, memory)) in agents.iter().zip(before).zip(rows) {
        let (cpu, wakeups) = costs(agent);
        let (cpu, wakeups) = (cpu - before.0, wakeups - before.1);
        println!(
            "| {name} | {:.1} | {:.1} | {cpu:.1} | {:.2} | {:.1} |",
            memory.pss,
            memory.anonymous,
            cpu / span.as_secs_f64(),
            wakeups / span.as_secs_f64()
        );
    }
    println!();
}

async fn start(
    cluster: &TestCluster,
    directory: &TempDir,
    sink: &str,
    arguments: &[&str],
) -> RunningAgent {
    let mut command = agent(directory);
    command.args(["--label-sink", sink]).args(arguments);
    if sink != "node" {
        return RunningAgent(command.spawn().unwrap());
    }
    let name = directory.path().file_name().unwrap().to_string_lossy();
    let name = name.to_lowercase();
    if cluster.nodes().get_opt(&name).await.unwrap().is_none() {
        cluster.create(&name).await;
    }
    command.args(["--node-name", &name, "--kubeconfig"]);
    command.arg(cluster.agents.path());
    let agent = RunningAgent(command.spawn().unwrap());
    let mut observer = cluster.observer(&name).await;
    if !observer.labels.contains_key("octavo.dev/type") {
        observer.until(|labels| labels.contains_key("octavo.dev/type")).await;
    }
    agent
}
