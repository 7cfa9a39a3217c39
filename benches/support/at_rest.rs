//! What it costs an agent to follow its Node while nothing happens: beside the same agent whose labels go to standard output.

use std::process::Child;
use std::time::Duration;

use tempfile::TempDir;

use crate::bed::Bed;
use crate::followed::agent;
use crate::{process, simulated};

/// Until an agent has said everything.
const SETTLES: Duration = Duration::from_secs(5);

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _gone_already = self.0.wait();
    }
}

/// Prints memory, one agent at a time, for they share pages; and idle time, all at once, for they do not share that.
pub(crate) async fn run(bed: &Bed, span: Duration) {
    let whole = "{board: H100_80GB_SXM, count: 8}";
    let split =
        "{board: A100_80GB, count: 8, mig: enabled, instances: [{profile: 1g.10gb, count: 7}]}";
    let mut idle = Vec::new();
    let mut rows = Vec::new();
    for (name, gpus) in [("8 x H100", whole), ("8 x A100-80, 56 partitions", split)] {
        let scenario = format!("machine: bench\nlinks: nvswitch\nlatency: null\ngpus:\n- {gpus}\n");
        for sink in ["stdout", "node"] {
            let directory = simulated::directory("rest", &scenario);
            let agent = start(bed, &directory, sink, &["--interval", "200ms"]).await;
            tokio::time::sleep(SETTLES).await;
            let memory = process::memory(agent.0.id());
            drop(agent);
            rows.push((format!("{name}, --label-sink {sink}"), memory));
            idle.push((directory, sink));
        }
    }
    let mut agents = Vec::new();
    for (directory, sink) in &idle {
        agents.push(start(bed, directory, sink, &[]).await);
    }
    tokio::time::sleep(SETTLES).await;
    let costs = |agent: &Running| {
        let pid = agent.0.id();
        (process::cpu_ms(pid), process::wakeups(pid))
    };
    let before: Vec<_> = agents.iter().map(costs).collect();
    tokio::time::sleep(span).await;
    println!(
        "| at rest for {} s, default interval | PSS, MiB | of it anonymous | CPU, ms | millicores | wake-ups a second |\n|---|---|---|---|---|---|",
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

async fn start(bed: &Bed, directory: &TempDir, sink: &str, arguments: &[&str]) -> Running {
    let mut command = agent(directory);
    command.args(["--label-sink", sink]).args(arguments);
    if sink != "node" {
        return Running(command.spawn().unwrap());
    }
    let name = directory.path().file_name().unwrap().to_string_lossy();
    let name = name.to_lowercase();
    if bed.nodes().get_opt(&name).await.unwrap().is_none() {
        bed.create(&name).await;
    }
    command.args(["--node-name", &name, "--kubeconfig"]);
    command.arg(bed.agents.path());
    let agent = Running(command.spawn().unwrap());
    let mut observer = bed.observer(&name).await;
    if !observer.labels.contains_key("octavo.dev/type") {
        let shown = |labels: &crate::bed::Labels| labels.contains_key("octavo.dev/type");
        observer.until(shown).await;
    }
    agent
}
