//! What it costs to give devices out to pods, and to tell who has them: `cargo bench --bench sharing`.
//!
//! The agent as it ships is the device plugin of a kubelet at real sockets, on simulated machines. NVIDIA's own device plugin runs
//! there too, in a mount namespace of its own, because the directory in which it meets kubelet is part of the program. Beside every
//! Allocate stands a call at the same socket that does nothing, so that what gRPC costs is seen. Tables are in Markdown for
//! `docs/performance.md`; nothing fails on a figure.
//!
//! `-- allocations changes memory scrapes` makes these tables alone.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark is a script: it measures the wall clock, prints, and stops at the first thing out of order"
)]

#[path = "support/givers.rs"]
mod givers;
#[path = "../tests/support/peer.rs"]
mod peer;
#[expect(dead_code, reason = "this reads memory alone")]
#[path = "support/process.rs"]
mod process;
#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/support/record.rs"]
mod record;
#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/support/time_limits.rs"]
mod time_limits;
#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/support"]
mod sharing {
    pub(crate) mod kubelet;
}
#[path = "support/simulated.rs"]
mod simulated;
#[path = "../tests/support/sockets.rs"]
mod sockets;
#[path = "support/spread.rs"]
mod spread;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nvml_sim::model::{Code, Slot, World};
use octavo_kubelet::proto::device_plugin::device_plugin_client::DevicePluginClient;
use octavo_kubelet::proto::device_plugin::{AllocateRequest, ContainerAllocateRequest, Empty};
use tonic::transport::{Channel, Endpoint};

use givers::{PluginKind, Rig};
use spread::Spread;

const CALLS: usize = 2000;
const SCRAPES: usize = 200;
const CHANGES: usize = 10;
const GPU: &str = "nvidia.com/gpu";
const SEVENTH: &str = "nvidia.com/mig-1g.10gb";
/// Eight GPUs that three pods each may have.
const WHOLE: &str = "{board: H100_80GB_SXM, count: 8}";
/// Eight GPUs with as many partitions as there can be.
const SPLIT: &str =
    "{board: A100_80GB, count: 8, mig: enabled, instances: [{profile: 1g.10gb, count: 7}]}";

/// What happens to a machine.
type Change = fn(&mut World) -> Result<(), Code>;

fn main() {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("Profile: {profile}. Load of the machine at the start: {load}");
    let peer = givers::peer();
    if peer.is_none() {
        println!("Mounting is not allowed here, so NVIDIA's device plugin is left out.\n");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // `cargo bench` passes its own flags; names of tables are ours.
    let named: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |table: &str| named.is_empty() || named.iter().any(|name| name == table);
    if is_wanted("allocations") {
        runtime.block_on(allocations(peer.as_ref()));
    }
    if is_wanted("changes") {
        changes(peer.as_ref());
    }
    if is_wanted("memory") {
        memory(peer.as_ref());
    }
    if is_wanted("scrapes") {
        scrapes();
    }
}

/// A machine whose every GPU or partition is offered, with the resource and how many there are of it.
fn machines() -> [(&'static str, &'static str, &'static str, usize); 2] {
    [
        ("8 x H100, 3 replicas each", WHOLE, GPU, 24),
        ("8 x A100-80, 7 x 1g.10gb each", SPLIT, SEVENTH, 56),
    ]
}

fn embedded() -> PluginKind<'static> {
    PluginKind::Ours(&["--sharing=embedded"])
}

async fn allocations(peer: Option<&PathBuf>) {
    println!(
        "| {CALLS} calls each, one after the other: us, p50 / p99 / most | Allocate | a call that does nothing |\n|---|---|---|"
    );
    for (name, gpus, resource, count) in machines() {
        let givers = [("ours", Some(embedded())), ("NVIDIA's", peer.map(PluginKind::Theirs))];
        for (whose, plugin_kind) in givers {
            let Some(plugin_kind) = plugin_kind else { continue };
            let rig = Rig::new(gpus);
            let _plugin_kind = rig.start(&plugin_kind);
            rig.kubelet.await_count(resource, count);
            let (requested, nothing) = calls(&rig, resource).await;
            println!("| {name}, {whose} | {requested} | {nothing} |");
        }
    }
    println!();
}

/// What the plugin of a resource takes for a call, over a connection that stays, as kubelet's does.
async fn calls(rig: &Rig, resource: &str) -> (Spread, Spread) {
    let (endpoint, ids) = rig.kubelet.inspect(|known| {
        let ids: Vec<String> = known.healthy(resource).cloned().collect();
        (known.resources[resource].endpoint.clone(), ids)
    });
    let socket = format!("unix://{}", rig.directory().join(endpoint).display());
    let channel = Endpoint::try_from(socket).unwrap().connect().await.unwrap();
    let mut plugin = DevicePluginClient::<Channel>::new(channel);
    let (mut requested, mut nothing) = (Vec::new(), Vec::new());
    for call in 0..CALLS {
        let id = ids[call % ids.len()].clone();
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest { devices_ids: vec![id] }],
        };
        let began = Instant::now();
        plugin.allocate(request).await.unwrap();
        requested.push(micros(began));
        let began = Instant::now();
        plugin.get_device_plugin_options(Empty {}).await.unwrap();
        nothing.push(micros(began));
    }
    (Spread::of(requested), Spread::of(nothing))
}

/// From a change to a GPU's partitions until kubelet has the list with it.
fn changes(peer: Option<&PathBuf>) {
    println!(
        "| {} changes each, of 56 partitions: ms, p50 / p99 / most | to the list at kubelet | lists for a change | registrations for a change |\n|---|---|---|---|",
        2 * CHANGES
    );
    let givers = [
        ("ours, by itself", Some(embedded())),
        ("NVIDIA's, told by SIGHUP at once", peer.map(PluginKind::Theirs)),
    ];
    for (whose, plugin_kind) in givers {
        let Some(plugin_kind) = plugin_kind else { continue };
        let rig = Rig::new(SPLIT);
        let program = rig.start(&plugin_kind);
        rig.kubelet.await_count(SEVENTH, 56);
        let (mut times, mut lists) = (Vec::new(), 0);
        let registrations = rig.kubelet.inspect(|known| known.registrations);
        for change in 0..2 * CHANGES {
            let (what, count): (Change, usize) = match change % 2 {
                0 => (unpartition, 55),
                _ => (partition, 56),
            };
            let of = |rig: &Rig| rig.kubelet.inspect(|known| known.resources[SEVENTH].lists);
            let before = of(&rig);
            let began = Instant::now();
            rig.change(what);
            if matches!(plugin_kind, PluginKind::Theirs(_)) {
                program.hang_up();
            }
            // Until the new list is there: one of the same length is not it.
            rig.kubelet.await_count(SEVENTH, count);
            times.push(micros(began) / 1000.0);
            // A new registration restarts the count of its lists.
            let after = of(&rig);
            lists += after.checked_sub(before).filter(|more| *more > 0).unwrap_or(after);
        }
        let registrations = rig.kubelet.inspect(|known| known.registrations) - registrations;
        let each = |all: f64| all / 20.0;
        println!(
            "| {whose} | {} | {:.1} | {:.1} |",
            Spread::of(times),
            each(f64::from(u32::try_from(lists).unwrap())),
            each(f64::from(u32::try_from(registrations).unwrap()))
        );
    }
    println!();
}

fn partition(world: &mut World) -> Result<(), Code> {
    let gpu = world.gpu(Slot(5))?;
    let profile = gpu.profiles.iter().find(|one| one.name == "1g.10gb");
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

/// What the programs have in memory five seconds after all is offered and every share has a pod.
fn memory(peer: Option<&PathBuf>) {
    println!("| memory, MiB | PSS | of it anonymous |\n|---|---|---|");
    for (name, gpus, resource, count) in machines() {
        let ours: [(&str, &[&str]); 4] = [
            ("ours, labels alone", &[]),
            ("ours, --usage-interval 10s", &["--usage-interval=10s"]),
            ("ours, --sharing embedded", &["--sharing=embedded"]),
            ("ours, both", &["--sharing=embedded", "--usage-interval=10s"]),
        ];
        let ours = ours.map(|(what, arguments)| (what, PluginKind::Ours(arguments)));
        let theirs = peer.map(|program| ("NVIDIA's device plugin", PluginKind::Theirs(program)));
        for (what, plugin_kind) in ours.into_iter().chain(theirs) {
            let rig = Rig::new(gpus);
            let program = rig.start(&plugin_kind);
            if plugin_kind.gives() {
                rig.kubelet.await_count(resource, count);
                rig.fill(resource, count);
            }
            thread::sleep(Duration::from_secs(5));
            let memory = process::memory(program.id());
            println!("| {name}: {what} | {:.1} | {:.1} |", memory.pss, memory.anonymous);
        }
    }
    println!();
}

/// What a scrape takes, over a connection of its own, when every share has a pod.
fn scrapes() {
    println!(
        "| {SCRAPES} scrapes each, every share has a pod: us, p50 / p99 / most | scrape | bytes |\n|---|---|---|"
    );
    for (name, gpus, resource, count) in machines() {
        for (what, more) in [
            ("without usage", &[][..]),
            ("with usage", &["--usage-interval=1s"][..]),
            ("with usage and DCGM's view", &["--usage-interval=1s", "--dcgm-metrics"][..]),
        ] {
            let rig = Rig::new(gpus);
            let arguments = [&["--sharing=embedded"][..], more].concat();
            let mut agent = rig.start(&PluginKind::Ours(&arguments));
            let address = agent.metrics();
            rig.kubelet.await_count(resource, count);
            rig.fill(resource, count);
            // The last pod is seen with the next look.
            let wanted = format!("pod=\"pod-{}\"", count - 1);
            while !more.is_empty() && !scrape(address).contains(&wanted) {
                thread::sleep(Duration::from_millis(100));
            }
            let (mut times, mut bytes) = (Vec::new(), 0);
            for _ in 0..SCRAPES {
                let began = Instant::now();
                bytes = scrape(address).len();
                times.push(micros(began));
            }
            println!("| {name}, {what} | {} | {bytes} |", Spread::of(times));
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

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}
