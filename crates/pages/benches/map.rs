//! Size of the map and time to render it, for nodes with eight GPUs each, two of them in MIG mode:
//! `cargo bench -p octavo-pages --bench map`.
//!
//! It prints a table in Markdown for `docs/performance.md`. If its standard input contains an address such as `127.0.0.1:8080`, it
//! serves the pages of 10,000 devices instead, so that a browser can be measured.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark is a script: it measures, prints, and stops at the first error"
)]

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http_body_util::BodyExt;
use octavo_fleet::access::Visibility;
use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_model::examples;
use octavo_model::inventory::{
    Completeness, Device, GpuInstance, Inventory, Mig, MigMode, MigState,
};
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::usage::{DeviceUsage, Usage};
use octavo_store::availability::Counter;
use octavo_store::clock::Clock;
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Change, Run};
use octavo_stream::status;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

const DEVICES_PER_NODE: usize = 8;
const RUNS: usize = 21;

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut address = String::new();
    if !std::io::stdin().is_terminal() {
        std::io::stdin().read_line(&mut address).unwrap();
    }
    runtime.block_on(async {
        match address.trim() {
            "" => measure_all().await,
            address => serve(address).await,
        }
    });
}

async fn serve(address: &str) {
    let (_fleet, site) = site(10_000 / DEVICES_PER_NODE);
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    println!("serving on {}", listener.local_addr().unwrap());
    axum::serve(listener, site).await.unwrap();
}

async fn measure_all() {
    println!("| devices | page | cells | ms p50 / maximum | bytes |\n|---|---|---|---|---|");
    for devices in [1000, 2000, 10_000] {
        let (_fleet, site) = site(devices / DEVICES_PER_NODE);
        for path in ["/map", "/map?by=utilization", "/map?cells=device&by=utilization"] {
            measure(&site, devices, path).await;
        }
    }
}

async fn measure(site: &Router, devices: usize, path: &str) {
    let mut times = Vec::new();
    let mut page = String::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = site.clone().oneshot(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        times.push(start.elapsed());
        page = String::from_utf8(bytes.to_vec()).unwrap();
    }
    times.sort();
    let [median, maximum] = [RUNS / 2, RUNS - 1].map(|index| times[index].as_secs_f64() * 1e3);
    let cells = page.matches("<a class=\"cell ").count();
    println!("| {devices} | `{path}` | {cells} | {median:.1} / {maximum:.1} | {} |", page.len());
}

fn site(nodes: usize) -> (watch::Sender<Fleet>, Router) {
    let clock = Clock::start();
    let mut fleet = Fleet::default();
    for number in 0..nodes {
        fleet.nodes.insert(Arc::new(node(&clock, number)));
    }
    let (fleet, receiver) = watch::channel(fleet);
    let site = octavo_pages::router(Counter::new(FleetView::new(receiver, clock), None));
    let allow = async |mut request: Request, next: Next| {
        request.extensions_mut().insert(Visibility::everything());
        next.run(request).await
    };
    (fleet, site.layer(from_fn(allow)))
}

fn node(clock: &Clock, number: usize) -> Node {
    let mut inventory = Inventory::default();
    let mut usage = Usage::default();
    for index in 0..DEVICES_PER_NODE {
        let device = device(index);
        let percent = (number * DEVICES_PER_NODE + index) * 7919 % 101;
        usage.devices.push(device_usage(&device, percent));
        inventory.devices.push(device);
    }
    let parts = status::encode(&inventory, &LabelSet::default(), None)
        .apply(&Change { changed: vec![status::encode_usage(&usage)], removed: Vec::new() });
    let origin = ReportingAgent {
        name: format!("gpu-node-{number:05}").parse().unwrap(),
        run: Run { epoch: 1, boot_id: "boot".to_owned() },
        agent_version: "0.1.0".to_owned(),
    };
    let summary = StatusSummary::new(&inventory, Arc::default(), None).with_usage(Some(&usage));
    Node::new(origin, parts, summary, Freshness::new(clock.now(), Duration::from_hours(24)))
}

fn device(index: usize) -> Device {
    let mut device = examples::gpu();
    let bus = u8::try_from(index + 1).unwrap();
    device.pci = format!("0000:{bus:02x}:00.0").parse().unwrap();
    device.index = Some(bus.into());
    device.memory = Some(Mebibytes::new(81_920));
    device.mig = Mig::NotCapable;
    if index.is_multiple_of(3) {
        device.processes = vec![examples::process(4711, None, None)];
    }
    if index.is_multiple_of(4) {
        let instance = |id: u32| GpuInstance {
            id,
            profile_id: 19,
            placement: Placement { start: id, size: 1 },
            compute_instances: vec![examples::compute_instance(0)],
        };
        device.mig = Mig::Capable(MigState {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
            catalog: ProfileCatalog::default(),
            gpu_instances: (0..7).map(instance).collect(),
            geometry: Completeness::Complete,
        });
    }
    device
}

fn device_usage(device: &Device, percent: usize) -> DeviceUsage {
    let text = format!(r#"{{"pci":"{}","name":"GPU","units":[]}}"#, device.pci);
    let mut usage: DeviceUsage = serde_json::from_str(&text).unwrap();
    let percent = u8::try_from(percent).unwrap();
    usage.utilization = device.mig.state().is_none().then_some(Percent(percent));
    usage.memory = Some(MemoryUse {
        total: Mebibytes::new(81_920),
        used: Mebibytes::new(81_920 * u64::from(percent) / 100),
        reserved: Mebibytes::new(640),
    });
    usage
}
