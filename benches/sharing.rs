//! Device plugins of the agent and of NVIDIA, and the agent's usage metrics: `cargo bench --bench sharing`.
//!
//! Each plugin serves a test kubelet over real sockets, on simulated machines. NVIDIA's plugin runs in its own mount namespace,
//! because the path of the kubelet's directory is compiled into it. Every Allocate call is compared with an empty call on the same
//! socket, which shows the cost of gRPC. It prints tables in Markdown for `docs/performance.md` and never fails on a figure.
//!
//! `-- allocations changes memory scrapes` selects tables; the default is all of them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first error"
)]

#[path = "support/device_plugins.rs"]
mod device_plugins;
#[path = "support/distribution.rs"]
mod distribution;
#[path = "support/partitions.rs"]
mod partitions;
#[path = "../tests/support/peer.rs"]
mod peer;
#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/process.rs"]
mod process;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/record.rs"]
mod record;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../tests/support/time_limits.rs"]
mod time_limits;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../tests/support"]
mod sharing {
    pub(crate) mod kubelet;
}
#[path = "support/simulated_machine.rs"]
mod simulated_machine;
#[path = "../tests/support/sockets.rs"]
mod sockets;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nvml_sim::model::{Code, World};
use octavo_kubelet::proto::device_plugin::device_plugin_client::DevicePluginClient;
use octavo_kubelet::proto::device_plugin::{AllocateRequest, ContainerAllocateRequest, Empty};
use tonic::transport::{Channel, Endpoint};

use device_plugins::{PluginKind, Rig};
use distribution::Distribution;

const CALLS: usize = 2000;
const SCRAPES: usize = 200;
const CHANGES: usize = 10;
const GPU: &str = "nvidia.com/gpu";
const SEVENTH: &str = "nvidia.com/mig-1g.10gb";
/// Eight GPUs with three replicas each.
const WHOLE: &str = "{board: H100_80GB_SXM, count: 8}";
/// Eight GPUs with seven partitions each.
const SPLIT: &str =
    "{board: A100_80GB, count: 8, mig: enabled, instances: [{profile: 1g.10gb, count: 7}]}";

/// A change of the hardware.
type Change = fn(&mut World) -> Result<(), Code>;

fn main() {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("Profile: {profile}. Load average at the start: {load}");
    let peer = device_plugins::peer();
    if peer.is_none() {
        println!("This user cannot mount, so NVIDIA's device plugin is not measured.\n");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // `cargo bench` adds flags of its own.
    let tables: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_selected = |table: &str| tables.is_empty() || tables.iter().any(|name| name == table);
    if is_selected("allocations") {
        runtime.block_on(allocations(peer.as_ref()));
    }
    if is_selected("changes") {
        changes(peer.as_ref());
    }
    if is_selected("memory") {
        memory(peer.as_ref());
    }
    if is_selected("scrapes") {
        scrapes();
    }
}

/// Returns machines: description, GPUs, resource, and number of its devices.
fn machines() -> [(&'static str, &'static str, &'static str, usize); 2] {
    [
        ("8 x H100, 3 replicas each", WHOLE, GPU, 24),
        ("8 x A100-80, 7 x 1g.10gb each", SPLIT, SEVENTH, 56),
    ]
}

fn octavo() -> PluginKind<'static> {
    PluginKind::Octavo(&["--sharing=embedded"])
}

async fn allocations(peer: Option<&PathBuf>) {
    println!(
        "| {CALLS} sequential calls on one connection: us, p50 / p99 / maximum | Allocate | empty call |\n|---|---|---|"
    );
    for (name, gpus, resource, count) in machines() {
        let plugins = [("Octavo", Some(octavo())), ("NVIDIA", peer.map(PluginKind::Nvidia))];
        for (vendor, kind) in plugins {
            let Some(kind) = kind else { continue };
            let rig = Rig::new(gpus);
            let _plugin = rig.start(&kind);
            rig.kubelet.await_count(resource, count);
            let (allocate, empty) = calls(&rig, resource).await;
            println!("| {name}, {vendor} | {allocate} | {empty} |");
        }
    }
    println!();
}

/// Measures Allocate and an empty call on one connection, as the kubelet uses it.
async fn calls(rig: &Rig, resource: &str) -> (Distribution, Distribution) {
    let (endpoint, ids) = rig.kubelet.inspect(|state| {
        let ids: Vec<String> = state.healthy(resource).cloned().collect();
        (state.resources[resource].endpoint.clone(), ids)
    });
    let socket = format!("unix://{}", rig.directory().join(endpoint).display());
    let channel = Endpoint::try_from(socket).unwrap().connect().await.unwrap();
    let mut plugin = DevicePluginClient::<Channel>::new(channel);
    let (mut allocate, mut empty) = (Vec::new(), Vec::new());
    for call in 0..CALLS {
        let id = ids[call % ids.len()].clone();
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest { devices_ids: vec![id] }],
        };
        let start = Instant::now();
        plugin.allocate(request).await.unwrap();
        allocate.push(micros(start));
        let start = Instant::now();
        plugin.get_device_plugin_options(Empty {}).await.unwrap();
        empty.push(micros(start));
    }
    (Distribution::new(allocate), Distribution::new(empty))
}

/// Measures the time from a change of a GPU's partitions until the kubelet receives the new list.
fn changes(peer: Option<&PathBuf>) {
    println!(
        "| another program changes one of 56 partitions, {} times: ms, p50 / p99 / maximum | to the kubelet's new list | lists per change | registrations per change |\n|---|---|---|---|",
        2 * CHANGES
    );
    let nvidia = || peer.map(PluginKind::Nvidia);
    let plugins = [
        ("Octavo, automatically", Some(octavo()), true),
        ("Octavo, each change directly after the previous list", Some(octavo()), false),
        ("NVIDIA, sent SIGHUP at the same time", nvidia(), true),
    ];
    for (name, kind, pauses) in plugins {
        let Some(kind) = kind else { continue };
        let rig = Rig::new(SPLIT);
        let program = rig.start(&kind);
        rig.kubelet.await_count(SEVENTH, 56);
        let (mut times, mut lists) = (Vec::new(), 0);
        let registrations = rig.kubelet.inspect(|state| state.registrations);
        for change in 0..2 * CHANGES {
            let (hardware_change, count): (Change, usize) = match change % 2 {
                0 => (partitions::destroy_last, 55),
                _ => (|world| partitions::create(world, "1g.10gb"), 56),
            };
            if pauses {
                // A later change is not delayed by the minimum time between two scans.
                thread::sleep(Duration::from_millis(150 + change as u64 * 37 % 300));
            }
            let list_count = || rig.kubelet.inspect(|state| state.resources[SEVENTH].lists);
            let before = list_count();
            let start = Instant::now();
            rig.change(hardware_change);
            if matches!(kind, PluginKind::Nvidia(_)) {
                program.hang_up();
            }
            rig.kubelet.await_count(SEVENTH, count);
            times.push(micros(start) / 1000.0);
            // A registration resets the number of lists.
            let after = list_count();
            lists += after.checked_sub(before).filter(|new| *new > 0).unwrap_or(after);
        }
        let registrations = rig.kubelet.inspect(|state| state.registrations) - registrations;
        let per_change = |total: f64| total / 20.0;
        println!(
            "| {name} | {} | {:.1} | {:.1} |",
            Distribution::new(times),
            per_change(f64::from(u32::try_from(lists).unwrap())),
            per_change(f64::from(u32::try_from(registrations).unwrap()))
        );
    }
    println!();
}

/// Measures memory five seconds after all devices are advertised and each is allocated to a pod.
fn memory(peer: Option<&PathBuf>) {
    println!("| memory, MiB, each replica allocated to a pod | PSS | anonymous |\n|---|---|---|");
    for (name, gpus, resource, count) in machines() {
        let octavo: [(&str, &[&str]); 4] = [
            ("Octavo, labels only", &[]),
            ("Octavo, --usage-interval 10s", &["--usage-interval=10s"]),
            ("Octavo, --sharing embedded", &["--sharing=embedded"]),
            ("Octavo, both", &["--sharing=embedded", "--usage-interval=10s"]),
        ];
        let octavo = octavo.map(|(program, arguments)| (program, PluginKind::Octavo(arguments)));
        let nvidia = peer.map(|program| ("NVIDIA's device plugin", PluginKind::Nvidia(program)));
        for (program_name, kind) in octavo.into_iter().chain(nvidia) {
            let rig = Rig::new(gpus);
            let program = rig.start(&kind);
            if kind.is_device_plugin() {
                rig.kubelet.await_count(resource, count);
                rig.fill(resource, count);
            }
            thread::sleep(Duration::from_secs(5));
            let memory = process::memory(program.id());
            println!("| {name}: {program_name} | {:.1} | {:.1} |", memory.pss, memory.anonymous);
        }
    }
    println!();
}

/// Measures scrapes on separate connections, while each replica is allocated to a pod.
fn scrapes() {
    println!(
        "| {SCRAPES} scrapes of /metrics, each on its own connection: us, p50 / p99 / maximum | time | bytes |\n|---|---|---|"
    );
    for (name, gpus, resource, count) in machines() {
        for (metrics, flags) in [
            ("without usage", &[][..]),
            ("with usage", &["--usage-interval=1s"][..]),
            ("with usage and DCGM's metrics", &["--usage-interval=1s", "--dcgm-metrics"][..]),
        ] {
            let rig = Rig::new(gpus);
            let arguments = [&["--sharing=embedded"][..], flags].concat();
            let mut agent = rig.start(&PluginKind::Octavo(&arguments));
            let address = agent.metrics();
            rig.kubelet.await_count(resource, count);
            rig.fill(resource, count);
            // The next usage scan finds the last pod.
            let last_pod = format!("pod=\"pod-{}\"", count - 1);
            while !flags.is_empty() && !scrape(address).contains(&last_pod) {
                thread::sleep(Duration::from_millis(100));
            }
            let (mut times, mut bytes) = (Vec::new(), 0);
            for _ in 0..SCRAPES {
                let start = Instant::now();
                bytes = scrape(address).len();
                times.push(micros(start));
            }
            println!("| {name}, {metrics} | {} | {bytes} |", Distribution::new(times));
        }
    }
    println!();
}

fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    text
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
