//! Usage metrics: their values, and what promtool reports about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvml_sim::model::{ProcessLoad, Slot};
use octavo_agent::metrics::usage::UsageMetrics;
use octavo_agent::usage::UsageObservation;
use octavo_node::sharing::Offers;
use octavo_node::sharing::join::{PodAttribution, UsageInput, join};
use octavo_toolkit::telemetry::exposition;
use tokio::sync::watch;

use super::rig::{CgroupLayout, Rig};
use crate::fleet_api::Api;
use crate::process::Program;
use crate::promtool;

const MIXED: &str = "- {board: H100_80GB_SXM}\n- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, start: 0}, {profile: 1g.10gb, start: 6}]}\n- {board: T4}\n";

/// A node with every usage metric.
async fn seen() -> UsageObservation {
    let rig = Rig::new(MIXED);
    let gpu = rig.gpu(0);
    let part = rig.machine.world().gpus[1]
        .mig_devices()
        .next()
        .map(|one| (one.gi.id, one.ci.id, one.ci.uuid.clone()))
        .unwrap();
    rig.kubelet.give("a", "nvidia.com/gpu", &[format!("{gpu}::0")]);
    rig.kubelet.give("b", "nvidia.com/mig-3g.40gb", &[part.2]);
    rig.assign_to_pod(101, "a", CgroupLayout::V2Systemd);
    rig.add_process(101, 0, None, 40 * 1024);
    rig.assign_to_pod(102, "b", CgroupLayout::V2Systemd);
    rig.add_process(102, 1, Some((part.0, part.1)), 2048);
    rig.machine.change(|world| {
        world.set_loads(&[ProcessLoad { pid: 102, percent: 44, memory_mib: 2048 }])?;
        let gpu = &mut world.gpus[0];
        gpu.utilization = (75, 30);
        gpu.process_utilization = BTreeMap::from([(101, (60, 20))]);
        gpu.video_utilization = (5, 6);
        gpu.energy_mj = 123_456;
        gpu.pcie_replays = 3;
        Ok(())
    });
    let mut observer = rig.watch(Some(2)).await;
    observer.until(|seen| seen.usage.devices.len() == 3).await;
    rig.machine.change(|world| world.xid(Slot(2), 43, None));
    // The utilization of partitions needs two scans.
    let is_complete = |seen: &UsageObservation| {
        let mut partitions = seen.usage.devices.iter().flat_map(|device| &device.units);
        !seen.xids.is_empty() && partitions.any(|unit| unit.utilization.is_some())
    };
    let seen = observer.until(is_complete).await;
    UsageObservation::clone(&seen)
}

fn text(seen: UsageObservation, dcgm: bool) -> String {
    let (_sender, seen) = watch::channel(Arc::new(seen));
    let metrics = UsageMetrics::new(seen, dcgm.then(|| "node-7".to_owned()));
    exposition::write_all(metrics.registries().iter(), std::iter::empty()).unwrap().1
}

/// Every usage metric, as an agent serves them with `--usage-interval` and, if set, `--dcgm-metrics`.
pub(crate) async fn complete(dcgm: bool) -> String {
    let mut seen = seen().await;
    let mut usage = (*seen.usage).clone();
    usage.devices[0].units[0].exhausted_in = Some(60);
    usage.devices[1].units[0].tenants[0].claim = Some("train".to_owned());
    seen.usage = Arc::new(usage);
    text(seen, dcgm)
}

#[tokio::test]
async fn usage_metrics_pass_promtool() {
    promtool::finds_no_fault(&complete(false).await);
}

#[tokio::test]
async fn exposed_usage_metrics_are_correct() {
    let seen = seen().await;
    let gi = seen.usage.devices[1].units[0].gpu_instance.unwrap();
    let text = text(seen, false);
    let gib = |number: u64| number * (1 << 30);
    for line in [
        format!("octavo_device_memory_used_bytes{{device=\"0\"}} {}.0", gib(40)),
        "octavo_device_utilization_ratio{device=\"0\"} 0.75".to_owned(),
        "octavo_device_energy_joules_total{device=\"0\"} 123.456".to_owned(),
        "octavo_device_pcie_replays_total{device=\"0\"} 3.0".to_owned(),
        "octavo_container_allocated{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"a\",container=\"main\"} 1.0".to_owned(),
        format!("octavo_container_memory_used_bytes{{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"a\",container=\"main\"}} {}.0", gib(40)),
        "octavo_container_utilization_ratio{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"a\",container=\"main\"} 0.6".to_owned(),
        format!("octavo_partition_utilization_ratio{{device=\"1\",gi=\"{gi}\",profile=\"3g.40gb\"}} 0.44"),
        format!("octavo_container_utilization_ratio{{device=\"1\",gi=\"{gi}\",ci=\"0\",profile=\"3g.40gb\",namespace=\"team\",pod=\"b\",container=\"main\"}} 0.44"),
        "octavo_unit_replicas{device=\"0\",gi=\"\",ci=\"\",profile=\"\"} 2.0".to_owned(),
        "octavo_device_memory_unattributed_bytes{device=\"0\"} 0.0".to_owned(),
        "octavo_usage_source_up{source=\"kubelet\"} 1.0".to_owned(),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    // A partitioned GPU has no utilization, and the memory of an instance is reported once.
    assert!(!text.contains("octavo_device_utilization_ratio{device=\"1\"}"));
    let used = text
        .lines()
        .filter(|line| line.starts_with("octavo_partition_memory_used_bytes{device=\"1\""));
    assert_eq!(used.count(), 2);
    assert!(!text.contains("DCGM"));
}

#[tokio::test]
async fn devices_without_driver_index_are_not_confused() {
    let mut seen = seen().await;
    for reading in &mut seen.readings {
        reading.index = None;
    }
    let usage = join(&UsageInput {
        readings: &seen.readings,
        offers: &Offers::default(),
        allocations: &[],
        is_current: true,
        attribution: &PodAttribution::Hidden,
    });
    seen.usage = Arc::new(usage);
    let pci: Vec<String> = seen.readings.iter().map(|one| one.pci.to_string()).collect();
    // promtool rejects letters in NVIDIA's names, so it reads only ours.
    promtool::finds_no_fault(&text(seen.clone(), false));
    let text = text(seen, true);
    for pci in pci {
        for series in [
            "octavo_device_info{device",
            "octavo_device_memory_used_bytes{device",
            "DCGM_FI_DEV_FB_USED{gpu",
        ] {
            let series = format!("{series}=\"{pci}\"");
            assert!(text.contains(&series), "{series}\n{text}");
        }
    }
    assert!(!text.contains("device=\"0\""), "{text}");
}

#[tokio::test]
async fn dcgm_dashboards_find_their_names_and_labels_and_no_value_twice() {
    let text = text(seen().await, true);
    let dcgm = text.find("# HELP DCGM").unwrap();
    let text = &text[dcgm..];
    let gpus = |name: &str| {
        let all = text.lines().filter(|line| line.starts_with(&format!("DCGM_FI_DEV_{name}{{")));
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    // Once per device or GPU instance, never per pod.
    assert_eq!(gpus("POWER_USAGE").len(), 3);
    assert_eq!(gpus("GPU_UTIL").len(), 2);
    assert_eq!(gpus("FB_USED").len(), 4);
    assert_eq!(gpus("UNCORRECTABLE_REMAPPED_ROWS").len(), 2, "a T4 remaps no rows");
    assert_eq!(gpus("MEMORY_TEMP").len(), 2, "a T4 reports none");
    let busy = text.lines().filter(|line| line.starts_with("DCGM_FI_PROF_GR_ENGINE_ACTIVE{"));
    let busy: Vec<&str> = busy.collect();
    assert_eq!(busy.len(), 2, "one for each GPU instance: {busy:?}");
    assert!(
        busy[0].contains("GPU_I_PROFILE=\"3g.40gb\"") && busy[0].ends_with(" 0.44"),
        "{busy:?}"
    );
    let xids = gpus("XID_ERRORS");
    assert_eq!(xids.len(), 1, "GPUs without Xids have series: {xids:?}");
    assert!(xids[0].contains("{gpu=\"2\"") && xids[0].ends_with(" 43.0"), "{xids:?}");
    let part = gpus("FB_USED").into_iter().find(|line| line.contains("GPU_I_PROFILE=\"3g.40gb\""));
    let part = part.unwrap();
    assert!(
        part.ends_with(
            "Hostname=\"node-7\",container=\"main\",namespace=\"team\",pod=\"b\"} 2048.0"
        ),
        "{part}"
    );
    // A shared one belongs to no pod.
    let shared =
        gpus("FB_USED").into_iter().find(|line| line.starts_with("DCGM_FI_DEV_FB_USED{gpu=\"0\""));
    let shared = shared.unwrap();
    assert!(shared.contains("device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\""), "{shared}");
    assert!(shared.ends_with("container=\"\",namespace=\"\",pod=\"\"} 40960.0"), "{shared}");
}

#[tokio::test]
async fn dcgm_memory_shared_by_two_compute_instances_belongs_to_no_pod() {
    let mut seen = seen().await;
    let mut usage = (*seen.usage).clone();
    let units = &mut usage.devices[1].units;
    let mut other = units[0].clone();
    let (gi, ci) = other.partition().unwrap();
    other.compute_instance = Some(ci + 1);
    other.tenants.clear();
    units.push(other);
    seen.usage = Arc::new(usage);
    let text = text(seen, true);
    let mut lines = text.lines();
    let used = format!("GPU_I_ID=\"{gi}\"");
    let used = lines.find(|line| line.starts_with("DCGM_FI_DEV_FB_USED{") && line.contains(&used));
    assert!(used.unwrap().contains("pod=\"\""), "{used:?}");
}

#[tokio::test]
async fn agent_reports_container_over_its_share_in_log_and_metrics() {
    let rig = Rig::new("- {board: H100_80GB_SXM}\n");
    let gpu = rig.gpu(0);
    rig.kubelet.give("a", "nvidia.com/gpu", &[format!("{gpu}::0")]);
    rig.assign_to_pod(101, "a", CgroupLayout::V2Systemd);
    rig.add_process(101, 0, None, 40 * 1024);
    let mut command = rig.agent("{replicas: 3}", &["--metrics-listen=127.0.0.1:0"]);
    let mut agent = tokio::task::spawn_blocking(move || {
        let mut agent = Program::start(&mut command);
        let address = agent.metrics();
        let line = agent.expect_log("fair share");
        (agent, address, line)
    })
    .await
    .unwrap();
    let line = &agent.2;
    assert!(
        line.contains("container main uses 40 GiB of a 79.6 GiB GPU shared by 3; fair share 26.")
            && line.ends_with("(GPU 0) pods=team/a"),
        "{line}"
    );
    let over = "octavo_container_memory_over_share{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"a\",container=\"main\"} 1.0";
    let body = Api::at(agent.1).metrics_with(&[over]).await;
    promtool::finds_no_fault(&body);
    let _logged = agent.0.kill();
}
