//! Temporary: a site for screenshots and measurements.
use std::sync::Arc;
use std::time::{Duration, Instant as Std};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use octavo_fleet::access::Visibility;
use octavo_fleet::cluster::*;
use octavo_kube::cluster::WatchedCluster;
use octavo_model::examples::{compute_instance, gpu, gpu_instance, process};
use octavo_model::id::PciAddress;
use octavo_model::inventory::*;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_model::resource::ShareId;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use octavo_planner::reconcile::*;
use octavo_store::availability::Counter;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusDigest};
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Change, Run};
use octavo_stream::status;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

fn device(index: u8, kind: &str, memory: u64, busy: bool) -> Device {
    let mut device = gpu();
    device.index = Some(index.into());
    device.pci = PciAddress::new(0, index + 1, 0, 0).unwrap();
    device.mig = Mig::NotCapable;
    device.memory = Some(Mebibytes::new(memory));
    device.processes = if busy { vec![process(4711, None, None)] } else { vec![] };
    device.identity = Identity::Known { type_name: kind.parse().unwrap(), sku: None };
    device
}

fn node(
    name: &str,
    inventory: &Inventory,
    layout: Option<&NodeLayoutStatus>,
    usage: Option<&Usage>,
    freshness: Freshness,
) -> Arc<Node> {
    let origin = ReportingAgent {
        name: name.parse().unwrap(),
        run: Run { epoch: 1, boot_id: "boot".into() },
        agent_version: "0.1.0".into(),
    };
    let mut parts = status::encode(inventory, &[].into_iter().collect(), layout);
    if let Some(usage) = usage {
        parts =
            parts.apply(&Change { changed: vec![status::encode_usage(usage)], removed: vec![] });
    }
    let digest = StatusDigest::new(inventory, Arc::default(), layout).with_usage(usage);
    Arc::new(Node::new(origin, parts, digest, freshness))
}

fn usage(inventory: &Inventory, namespace: &str, idle: usize) -> Usage {
    let devices = inventory
        .devices
        .iter()
        .enumerate()
        .filter(|(_, d)| !d.processes.is_empty())
        .map(|(at, d)| {
            let total = d.memory.unwrap();
            let quiet = at < idle;
            let uuid = format!("GPU-5fd4087b-86f3-7a43-b711-4771313afc5{at}");
            DeviceUsage {
                pci: d.pci,
                name: format!("GPU {at}"),
                memory: None,
                utilization: Some(Percent(if quiet { 0 } else { 55 + 5 * at as u8 })),
                units: vec![UnitUsage {
                    uuid: uuid.clone(),
                    gpu_instance: None,
                    compute_instance: None,
                    profile: None,
                    resource: None,
                    replicas: None,
                    fair_share: None,
                    memory: Some(MemoryUse {
                        total,
                        used: Mebibytes::new(0),
                        reserved: Mebibytes::new(0),
                    }),
                    tenants: vec![Tenant {
                        namespace: Some(namespace.into()),
                        pod: Some(format!("job-{at}")),
                        container: Some("main".into()),
                        ids: vec![ShareId::whole(&uuid)],
                        memory: Some(Mebibytes::new(if quiet { 0 } else { total.get() * 7 / 10 })),
                        utilization: Some(Percent(if quiet { 0 } else { 60 })),
                        processes: if quiet { vec![] } else { vec![7] },
                        ..Tenant::default()
                    }],
                    unattributed: None,
                    exhausted_in: None,
                    is_nearly_exhausted: false,
                }],
            }
        });
    Usage { devices: devices.collect(), missing: vec![] }
}

fn dl(number: u8, state: Reason, message: &str) -> DeviceLayoutStatus {
    DeviceLayoutStatus {
        message: message.into(),
        ..DeviceLayoutStatus::new(
            PciAddress::new(0, number + 1, 0, 0).unwrap(),
            format!("GPU {number}"),
            Reported::from(state),
        )
    }
}

fn big(nodes: usize, troubled: bool) -> (Fleet, Clock) {
    let clock = Clock::start();
    let mut fleet = Fleet::default();
    let fresh = Freshness::new(clock.now(), Duration::from_hours(9));
    for n in 0..nodes {
        let kind =
            ["nvidia-h100-80gb", "nvidia-h200-141gb", "nvidia-a100-80gb", "nvidia-l40s-48gb"]
                [n % 4];
        let mut inv = Inventory {
            devices: (0..8).map(|d| device(d, kind, 81920, d < 5)).collect(),
            ..Inventory::default()
        };
        if troubled || n % 25 == 0 {
            inv.devices[1].condition = Condition::Failing { reason: "GPU is lost (15)".into() };
        }
        let used = usage(&inv, &format!("team-{}", n % 40), n % 3);
        let layout = troubled.then(|| NodeLayoutStatus { layout: Some("serving".into()), state: Some(Reported::from(Reason::Blocked)),
            devices: (0..8).map(|d| dl(d, Reason::Blocked, "gi 2 (3g.40gb in slices 4-7) must be removed but is in use: pod serving/guardrail-0")).collect(), ..NodeLayoutStatus::default() });
        fleet.nodes.insert(node(
            &format!("node-{n:05}"),
            &inv,
            layout.as_ref(),
            Some(&used),
            fresh.clone(),
        ));
    }
    (fleet, clock)
}

fn small() -> (Fleet, Clock, ClusterSnapshot) {
    let clock = Clock::start();
    let mut fleet = Fleet::default();
    let fresh = || Freshness::new(clock.now(), Duration::from_hours(9));
    let mut cluster = vec![];
    let mut pods = vec![];
    let mut add = |name: &str,
                   kind: &str,
                   inv: &Inventory,
                   layout: Option<&NodeLayoutStatus>,
                   ns: &str,
                   idle: usize,
                   late: bool,
                   extra: &[(&str, u64)]| {
        let used = usage(inv, ns, idle);
        let freshness =
            if late { Freshness::new(Moment::default(), Duration::ZERO) } else { fresh() };
        fleet.nodes.insert(node(name, inv, layout, Some(&used), freshness));
        let mut amounts = Amounts::default().with("pods", 110).with("cpu", 64000);
        for (r, c) in extra {
            amounts = amounts.with(r, *c);
        }
        cluster.push(ClusterNode {
            name: name.into(),
            labels: [("octavo.dev/type".to_owned(), kind.to_owned())].into(),
            readiness: Readiness::Ready,
            capacity: amounts.clone(),
            allocatable: amounts,
            ..ClusterNode::default()
        });
        let busy = inv.devices.iter().filter(|d| !d.processes.is_empty()).count() as u64;
        if busy > 0 && extra.iter().any(|(r, _)| *r == "nvidia.com/gpu") {
            pods.push(ClusterPod {
                key: PodKey { namespace: ns.into(), name: format!("job-{name}") },
                node: Some(name.into()),
                phase: Phase::Bound,
                requirements: PodRequirements {
                    amounts: Amounts::default().with("nvidia.com/gpu", busy),
                    ..PodRequirements::default()
                },
                started_at: Some(1_700_000_000),
                ..ClusterPod::default()
            });
        }
    };
    let gpu8 = &[("nvidia.com/gpu", 8u64)];
    for n in 0..8 {
        let mut inv = Inventory {
            devices: (0..8).map(|d| device(d, "nvidia-h100-80gb", 81920, n < 6 || d < 3)).collect(),
            ..Inventory::default()
        };
        if n == 2 {
            inv.devices[5].condition = Condition::Failing { reason: "GPU is lost (15)".into() };
        }
        if n == 4 {
            inv.devices[1].health.recovery_action = Some(RecoveryAction::ResetGpu);
        }
        add(
            &format!("train-h100-{n:02}"),
            "nvidia-h100-80gb",
            &inv,
            None,
            if n < 4 { "research" } else { "vision" },
            n % 3,
            n == 7,
            gpu8,
        );
    }
    for n in 0..4 {
        let inv = Inventory {
            devices: (0..8).map(|d| device(d, "nvidia-h200-141gb", 144384, d < 6)).collect(),
            ..Inventory::default()
        };
        add(
            &format!("train-h200-{n:02}"),
            "nvidia-h200-141gb",
            &inv,
            None,
            "research",
            0,
            false,
            gpu8,
        );
    }
    for n in 0..4 {
        let mut inv = Inventory {
            devices: (0..4).map(|d| device(d, "nvidia-l40s-48gb", 46068, d < 2)).collect(),
            ..Inventory::default()
        };
        if n == 3 {
            inv.nvml = NvmlState::Lost { reason: "libnvidia-ml.so.1 was unloaded".into() };
        }
        add(
            &format!("infer-l40s-{n:02}"),
            "nvidia-l40s-48gb",
            &inv,
            None,
            "serving",
            1,
            false,
            &[("nvidia.com/gpu", 4)],
        );
    }
    for n in 0..4u8 {
        let part = |d: u8| {
            let mut dev = device(d, "nvidia-a100-80gb", 81920, false);
            let mut one = gpu_instance(1, 0, 4);
            one.compute_instances = vec![compute_instance(0)];
            let mut two = gpu_instance(2, 4, 4);
            two.compute_instances = vec![compute_instance(0)];
            dev.mig = Mig::Capable(MigState {
                current: MigMode::Enabled,
                pending: MigMode::Enabled,
                gpu_instances: vec![one, two],
                geometry: Completeness::Complete,
                catalog: Default::default(),
            });
            dev
        };
        let inv = Inventory { devices: (0..4).map(part).collect(), ..Inventory::default() };
        let layout = match n {
            1 => Some(NodeLayoutStatus { layout: Some("large-models".into()), state: Some(Reported::from(Reason::Blocked)),
                drain: Some("drain (affected) is evicting pods: pod serving/guardrail-0: the disruption budget serving/guardrail allows no eviction; it is retried".into()),
                devices: vec![dl(0, Reason::Applied, ""), dl(1, Reason::Applied, ""), dl(2, Reason::Blocked, "gi 2 (3g.40gb in slices 4-7) must be removed but is in use: container main of pod serving/guardrail-0 (pid 4711, python)"), dl(3, Reason::Applied, "")], ..NodeLayoutStatus::default() }),
            2 => { let mut a = dl(0, Reason::Applying, ""); a.progress = Some(ChangeProgress { current_step: "create".into(), done: 3, steps: 8, back: false });
                Some(NodeLayoutStatus { layout: Some("large-models".into()), state: Some(Reported::from(Reason::Applying)), devices: vec![a, dl(1, Reason::Pending, "another device first")], ..NodeLayoutStatus::default() }) }
            _ => Some(NodeLayoutStatus { layout: Some(if n == 0 { "large-models" } else { "balanced" }.into()), state: Some(Reported::from(Reason::Applied)), devices: (0..4).map(|d| dl(d, Reason::Applied, "")).collect(), ..NodeLayoutStatus::default() }),
        };
        add(
            &format!("shared-a100-{n:02}"),
            "nvidia-a100-80gb",
            &inv,
            layout.as_ref(),
            "notebooks",
            0,
            false,
            &[("nvidia.com/mig-3g.40gb", 8), ("nvidia.com/mig-1g.10gb", 7)],
        );
    }
    let mut amd = device(0, "amd-mi300x-192gb", 196608, false);
    amd.mig = Mig::Unknown;
    add(
        "mi300x",
        "amd-mi300x-192gb",
        &Inventory { devices: vec![amd], ..Inventory::default() },
        None,
        "x",
        0,
        false,
        &[],
    );
    add(
        "t4",
        "nvidia-t4-16gb",
        &Inventory {
            devices: vec![device(0, "nvidia-t4-16gb", 15360, false)],
            ..Inventory::default()
        },
        None,
        "x",
        0,
        false,
        &[("nvidia.com/gpu.shared", 4)],
    );
    for (ns, name, r, c, sel) in [
        ("research", "big-1", "nvidia.com/gpu", 8, "nvidia-h100-80gb"),
        ("research", "big-2", "nvidia.com/gpu", 8, "nvidia-h100-80gb"),
        ("serving", "chat-6", "nvidia.com/mig-7g.80gb", 1, ""),
        ("vision", "b", "nvidia.com/gpu", 2, "nvidia-b200-192gb"),
    ] {
        let selector = if sel.is_empty() {
            Default::default()
        } else {
            [("octavo.dev/type".to_owned(), sel.to_owned())].into()
        };
        pods.push(ClusterPod {
            key: PodKey { namespace: ns.into(), name: name.into() },
            requirements: PodRequirements {
                amounts: Amounts::default().with(r, c),
                selector,
                ..PodRequirements::default()
            },
            ..ClusterPod::default()
        });
    }
    pods.push(ClusterPod {
        key: PodKey { namespace: "research".into(), name: "job-0".into() },
        node: Some("train-h100-01".into()),
        phase: Phase::Bound,
        started_at: Some(1_795_000_000),
        ..ClusterPod::default()
    });
    (fleet, clock, ClusterSnapshot::new(cluster, pods))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    if mode == "measure" {
        for troubled in [false, true] {
            let (fleet, clock) = big(1250, troubled);
            let (_fleet, receiver) = watch::channel(fleet);
            let site = octavo_pages::router(Counter::new(FleetView::new(receiver, clock), None));
            for path in ["/", "/nodes", "/availability", "/teams"] {
                let mut times = vec![];
                let mut bytes = 0;
                for _ in 0..30 {
                    let mut request = Request::get(path).body(Body::empty()).unwrap();
                    request.extensions_mut().insert(Visibility::everything());
                    let begun = Std::now();
                    let answer = site.clone().oneshot(request).await.unwrap();
                    bytes = answer.into_body().collect().await.unwrap().to_bytes().len();
                    times.push(begun.elapsed().as_secs_f64() * 1e3);
                }
                times.sort_by(f64::total_cmp);
                println!(
                    "troubled {troubled} {path}: p50 {:.1} ms max {:.1} ms {bytes} bytes",
                    times[15], times[29]
                );
            }
        }
        return;
    }
    let port: u16 = std::env::args().nth(2).unwrap_or("8099".into()).parse().unwrap();
    let (fleet, clock, cluster) = match mode.as_str() {
        "many" => {
            let (f, c) = big(60, true);
            (f, c, None)
        }
        "empty" => (Fleet::default(), Clock::start(), None),
        _ => {
            let (f, c, s) = small();
            (f, c, Some(s))
        }
    };
    let (_fleet, receiver) = watch::channel(fleet);
    let (_cluster, watched) = cluster
        .map(|snapshot| {
            watch::channel(Arc::new(WatchedCluster {
                snapshot: Arc::new(snapshot),
                current_at: Some(Instant::now()),
                ..WatchedCluster::default()
            }))
        })
        .unzip();
    let view = FleetView::new(receiver, clock).with_cluster(watched.clone());
    let site = octavo_pages::router(Counter::new(view, watched))
        .layer(axum::Extension(Visibility::everything()));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    println!("http://127.0.0.1:{port}/");
    axum::serve(listener, site).await.unwrap();
}
