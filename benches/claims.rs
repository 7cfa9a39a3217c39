//! Resource claims with a real API server and a real kubelet: `cargo bench --bench claims`.
//!
//! It measures, with the agent on simulated machines:
//!
//! - the time of Prepare and Unprepare for a whole GPU, an existing instance and a new instance;
//! - the time from the creation of a pod until it runs, with the same devices and without a claim;
//! - the `ResourceSlices` that one change rewrites;
//! - the memory of the agent with and without `--dra`.
//!
//! The simulator delays calls as real boards do (`latency: real`), and the driver's part of the time is listed. It prints
//! tables in Markdown for `docs/performance.md` and never fails on a figure.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[expect(dead_code, reason = "tests use the rest")]
#[path = "../tests/it-cluster/cluster"]
mod cluster {
    mod api;
    mod kubectl;
    pub(crate) mod nodes;
    pub(crate) mod objects;
    mod supervisor;
    pub(crate) mod prepared_claims {
        pub(crate) mod rig;
    }

    pub(crate) use api::Api;
}
#[path = "support/distribution.rs"]
mod distribution;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod memory;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::conditions::is_pod_running;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use support::{
    cdi_runtime, fleet_api, kubelet, machine, node, peer, process, record, sockets, time_limits,
};

use cluster::Api;
use cluster::nodes::{Nodes, root};
use cluster::prepared_claims::rig::{Claim, ClaimRig};
use distribution::Distribution;
use process::Program;

const RUNS: usize = 20;
const NODE: &str = "node-1";
const IMAGE: &str = "test.invalid/claims:1";
/// Long enough for the agent to publish a change.
const SETTLED: Duration = Duration::from_secs(4);
const EMPTY: &str = "- {board: A100_40GB, mig: enabled}\nlatency: real\n";
const PARTITIONED: &str = "- {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, start: 4}]}\nlatency: real\n";
const WHOLE: &str = "- {board: A100_40GB}\nlatency: real\n";

/// The device of a claim.
struct Subject {
    name: &'static str,
    gpus: &'static str,
    /// Profile and first slice; the whole GPU without it.
    part: Option<(&'static str, u32)>,
}

const SUBJECTS: [Subject; 3] = [
    Subject { name: "whole GPU", gpus: WHOLE, part: None },
    Subject { name: "existing instance", gpus: PARTITIONED, part: Some(("3g.20gb", 4)) },
    Subject { name: "new instance", gpus: EMPTY, part: Some(("3g.20gb", 4)) },
];

fn main() {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    println!("Profile: {profile}. Load average at the start: {load}");
    calls();
    slices();
    resources();
    pods();
}

/// Durations in milliseconds. It displays the median and the maximum.
#[derive(Default)]
struct Durations(Vec<f64>);

impl Durations {
    fn measure<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = run();
        self.0.push(start.elapsed().as_secs_f64() * 1e3);
        result
    }
}

impl Display for Durations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Distribution::new(self.0.clone());
        write!(f, "{:.0} / {:.0}", all.percentile(50), all.percentile(100))
    }
}

/// The calls of the driver with their durations.
struct DriverLog(PathBuf);

impl DriverLog {
    /// The agent with this log, once it serves the kubelet.
    fn start(rig: &ClaimRig) -> (Self, Program) {
        let log = Self(rig.machine().machine.path().join("calls.jsonl"));
        let mut command = rig.agent(&[]);
        command.env("NVML_SIM_LOG", &log.0);
        let mut agent = Program::start(&mut command);
        agent.expect_log(cluster::prepared_claims::rig::SERVING);
        (log, agent)
    }

    /// Sums of the durations of all calls so far, and of those that create or destroy an instance, in milliseconds.
    fn sums_ms(&self) -> [f64; 2] {
        let text = fs::read_to_string(&self.0).unwrap();
        let calls = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut sums = [0.0, 0.0];
        for call in calls {
            let function = call["function"].as_str().unwrap();
            let duration = call["duration_ns"].as_f64().unwrap() / 1e6;
            sums[0] += duration;
            if ["CreateGpuInstance", "CreateComputeInstance", "Destroy"]
                .iter()
                .any(|part| function.contains(part))
            {
                sums[1] += duration;
            }
        }
        sums
    }
}

impl Subject {
    fn device(&self, rig: &ClaimRig) -> String {
        match self.part {
            Some((profile, start)) => rig.device(profile, start),
            None => rig.whole_device(),
        }
    }
}

fn calls() {
    println!(
        "| claim | Prepare, ms, median / maximum | driver calls of all threads, ms | of that changes | Unprepare, ms |\n|---|---|---|---|---|"
    );
    for subject in &SUBJECTS {
        let rig = ClaimRig::new(Api::shared(), subject.gpus);
        let (log, _agent) = DriverLog::start(&rig);
        let device = subject.device(&rig);
        let [mut prepare, mut unprepare] = [Durations::default(), Durations::default()];
        let mut sums = [0.0, 0.0];
        for run in 0..RUNS {
            let claim = rig.claim(&format!("claim-{run}"), &[&device]);
            let before = log.sums_ms();
            prepare.measure(|| rig.prepare(&claim).unwrap());
            let after = log.sums_ms();
            sums = [0, 1].map(|index| sums[index] + after[index] - before[index]);
            unprepare.measure(|| rig.unprepare(&claim).unwrap());
            if subject.name == "new instance" {
                rig.await_geometry(&[]);
            }
            rig.delete(&claim);
        }
        let runs = f64::from(u32::try_from(RUNS).unwrap());
        println!(
            "| {} | {prepare} | {:.0} | {:.0} | {unprepare} |",
            subject.name,
            sums[0] / runs,
            sums[1] / runs
        );
    }
    println!();
}

/// Versions of the slices of a node by name.
fn versions(rig: &ClaimRig) -> BTreeMap<String, String> {
    let text = rig.api.kubectl(&["get", "resourceslices", "-o", "json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    let pool = rig.pool();
    let items = list["items"].as_array().unwrap().iter();
    let own = items.filter(|slice| slice["spec"]["pool"]["name"] == pool.as_str());
    let text = |of: &Value| of.as_str().unwrap().to_owned();
    own.map(|slice| {
        let meta = &slice["metadata"];
        (text(&meta["name"]), text(&meta["resourceVersion"]))
    })
    .collect()
}

fn slices() {
    let rig = ClaimRig::new(
        Api::shared(),
        "- {board: H100_80GB_SXM, count: 8, mig: enabled, instances: [{profile: 3g.40gb, start: 4}]}\n",
    );
    let _agent = rig.start(&[]);
    thread::sleep(SETTLED);
    println!("| change on a node with 8 GPUs | slices | rewritten |\n|---|---|---|");
    let report = |what: &str, change: &dyn Fn()| {
        let before = versions(&rig);
        change();
        thread::sleep(SETTLED);
        let after = versions(&rig);
        let changed = after.iter().filter(|(name, version)| before.get(*name) != Some(*version));
        println!("| {what} | {} | {} |", after.len(), changed.count());
    };
    report("none, for 4 s", &|| {});
    let claim = rig.claim("train", &[&rig.device("1g.10gb", 0)]);
    report("Prepare with a new instance", &|| drop(rig.prepare(&claim).unwrap()));
    report("Unprepare, which destroys it", &|| rig.unprepare(&claim).unwrap());
    report("a process starts in an instance without claim", &|| rig.add_process(4711));
    report("that process ends", &|| rig.remove_process(4711));
    println!();
}

fn resources() {
    let gpus = "- {board: H100_80GB_SXM, count: 8, mig: enabled}\n";
    println!("| agent with 8 GPUs | PSS, MiB | anonymous, MiB |\n|---|---|---|");
    let rig = ClaimRig::new(Api::shared(), gpus);
    let report = |what: &str, agent: &Program| {
        thread::sleep(SETTLED);
        let memory = memory::memory(agent.id());
        println!("| {what} | {:.1} | {:.1} |", memory.pss, memory.anonymous);
    };
    let pool = rig.pool();
    let (node, _driver) = pool.split_once('/').unwrap();
    let mut plain = rig.machine().agent(&["--interval=1s", "--follow-node"]);
    plain.arg("--kubeconfig").arg(rig.api.kubeconfig()).arg("--node-name").arg(node);
    let mut agent = Program::start(&mut plain);
    report("without `--dra`", &agent);
    agent.kill();
    let mut agent = rig.start(&[]);
    report("with `--dra`", &agent);
    let claims: Vec<Claim> = (0..8)
        .map(|gpu| {
            let claim = rig.claim(&format!("claim-{gpu}"), &[&rig.device_on(gpu, "3g.40gb", 4)]);
            rig.prepare(&claim).unwrap();
            claim
        })
        .collect();
    report("with `--dra` and 8 prepared claims", &agent);
    for claim in &claims {
        rig.unprepare(claim).unwrap();
    }
    agent.kill();
    println!();
}

fn pods() {
    let nodes = Nodes::shared();
    let tools = ["/bin/sleep"].map(|path| (Path::new(path), path));
    nodes.image(NODE, IMAGE, root(&tools).path(), &["/bin/sleep", "1d"]);
    println!("| pod | created to running, ms, median / maximum |\n|---|---|");
    for subject in &SUBJECTS {
        let rig = ClaimRig::with_kubelet(nodes, NODE, subject.gpus);
        rig.api.await_account(rig.namespace());
        let mut agent = rig.start(&[]);
        agent.expect_log("the kubelet registered the DRA driver");
        let device = subject.device(&rig);
        if subject.part.is_none() {
            let mut plain = Durations::default();
            for run in 0..RUNS {
                run_pod(&rig, &mut plain, &format!("plain-{run}"), None);
            }
            println!("| without a claim | {plain} |");
        }
        let mut durations = Durations::default();
        for run in 0..RUNS {
            let claim = rig.claim(&format!("claim-{run}"), &[&device]);
            run_pod(&rig, &mut durations, &claim.name, Some(&claim));
            if subject.name == "new instance" {
                rig.await_geometry(&[]);
            }
        }
        println!("| {} | {durations} |", subject.name);
        rig.api.try_kubectl(&["annotate", "node", NODE, "octavo.dev/status-"]);
    }
}

/// Measures a pod, and waits until it is gone.
fn run_pod(rig: &ClaimRig, durations: &mut Durations, name: &str, claim: Option<&Claim>) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": rig.namespace()},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}],
        },
    });
    if let Some(claim) = claim {
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": claim.name}]);
        pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    }
    let pods: kube::Api<Pod> =
        kube::Api::namespaced(rig.runtime.block_on(async { rig.api.client() }), rig.namespace());
    durations.measure(|| {
        rig.api.create(&pod);
        rig.runtime.block_on(await_condition(pods, name, is_pod_running())).unwrap();
    });
    rig.api.kubectl(&["delete", "pod", name, "-n", rig.namespace(), "--wait=true"]);
    if let Some(claim) = claim {
        time_limits::eventually("the removed specification", || !rig.has_spec(claim));
    }
}
