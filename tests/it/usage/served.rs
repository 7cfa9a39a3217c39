//! What is served of it: documented, as Prometheus reads it, and true.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use nvml_sim::model::Slot;
use octavo_agent::metrics::usage::UsageMetrics;
use octavo_agent::usage::UsageObservation;
use octavo_node::sharing::Offers;
use octavo_node::sharing::join::{PodAttribution, UsageInput, join};
use octavo_toolkit::telemetry::exposition;
use tokio::sync::watch;

use super::rig::{Groups, Rig};
use crate::fleet_api::Api;
use crate::process::Program;
use crate::promtool;

const MIXED: &str = "- {board: H100_80GB_SXM}\n- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, start: 0}, {profile: 1g.10gb, start: 6}]}\n- {board: T4}\n";

/// A node with everything there is to be said of one.
async fn seen() -> UsageObservation {
    let rig = Rig::new(MIXED);
    let gpu = rig.gpu(0);
    let part = rig.machine.world().gpus[1]
        .mig_devices()
        .next()
        .map(|one| (one.gi.id, one.ci.id, one.ci.uuid.clone()))
        .unwrap();
    rig.kubelet
        .give("a", "nvidia.com/gpu", &[format!("{gpu}::0")]);
    rig.kubelet.give("b", "nvidia.com/mig-3g.40gb", &[part.2]);
    rig.is_of(101, "a", Groups::V2Systemd);
    rig.runs(101, 0, None, 40 * 1024);
    rig.is_of(102, "b", Groups::V2Systemd);
    rig.runs(102, 1, Some((part.0, part.1)), 2048);
    rig.machine.change(|world| {
        let gpu = &mut world.gpus[0];
        gpu.utilization = (75, 30);
        gpu.process_utilization = BTreeMap::from([(101, (60, 20))]);
        gpu.video_utilization = (5, 6);
        gpu.energy_mj = 123_456;
        gpu.pcie_replays = 3;
        Ok(())
    });
    let mut watching = rig.watch(Some(2)).await;
    watching.until(|seen| seen.usage.devices.len() == 3).await;
    rig.machine.change(|world| world.xid(Slot(2), 43, None));
    let seen = watching.until(|seen| !seen.xids.is_empty()).await;
    UsageObservation::clone(&seen)
}

fn text(seen: UsageObservation, dcgm: bool) -> String {
    let (_sender, seen) = watch::channel(Arc::new(seen));
    let metrics = UsageMetrics::new(seen, dcgm.then(|| "node-7".to_owned()));
    exposition::write_all(metrics.registries().iter(), std::iter::empty())
        .unwrap()
        .1
}

/// Name of each series with its labels' names.
fn labels(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, rest) = series.split_once('{').unwrap_or((series, ""));
        let all = found.entry(name.to_owned()).or_default();
        let parts = rest.trim_end_matches('}').split("\",");
        all.extend(parts.filter_map(|part| Some(part.split_once("=\"")?.0.to_owned())));
    }
    found
}

/// Metrics and labels of the rows of a section that begin like this.
fn documented(section: &str, prefix: &str) -> BTreeMap<String, BTreeSet<String>> {
    let start = format!("| `{prefix}");
    let rows = section.lines().filter(|line| line.starts_with(&start));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1);
        let name = cells.next().unwrap().trim_matches(['`', ' ']);
        let labels = cells.next().unwrap().split(',');
        let labels = labels.map(|label| label.trim_matches(['`', ' ']).to_owned());
        (
            name.to_owned(),
            labels.filter(|label| !label.is_empty()).collect(),
        )
    })
    .collect()
}

fn section() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## Who uses what\n").unwrap();
    section.split("\n## ").next().unwrap().to_owned()
}

#[tokio::test]
async fn the_documentation_lists_every_metric_of_who_uses_what_and_promtool_has_no_complaint() {
    let mut seen = seen().await;
    let mut usage = (*seen.usage).clone();
    usage.devices[0].units[0].exhausted_in = Some(60);
    seen.usage = Arc::new(usage);
    // No board of the simulator tells it.
    seen.readings[0].metrics.memory_temperature = Some(50);
    let text = text(seen, false);
    promtool::finds_no_fault(&text);
    assert_eq!(documented(&section(), "octavo_"), labels(&text), "{text}");
}

#[tokio::test]
async fn what_is_served_is_true() {
    let text = text(seen().await, false);
    let gib = |number: u64| number * (1 << 30);
    for line in [
        format!("octavo_device_memory_used_bytes{{device=\"0\"}} {}.0", gib(40)),
        "octavo_device_utilization_ratio{device=\"0\"} 0.75".to_owned(),
        "octavo_device_energy_joules_total{device=\"0\"} 123.456".to_owned(),
        "octavo_device_pcie_replays_total{device=\"0\"} 3.0".to_owned(),
        "octavo_container_allocated{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"a\",container=\"main\"} 1.0".to_owned(),
        format!("octavo_container_memory_used_bytes{{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"a\",container=\"main\"}} {}.0", gib(40)),
        "octavo_container_utilization_ratio{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"a\",container=\"main\"} 0.6".to_owned(),
        "octavo_unit_replicas{device=\"0\",gi=\"\",ci=\"\",profile=\"\"} 2.0".to_owned(),
        "octavo_device_memory_unattributed_bytes{device=\"0\"} 0.0".to_owned(),
        "octavo_usage_source_up{source=\"kubelet\"} 1.0".to_owned(),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    // A divided GPU has no utilisation, and an instance's memory is said once.
    assert!(!text.contains("octavo_device_utilization_ratio{device=\"1\"}"));
    let used = text
        .lines()
        .filter(|line| line.starts_with("octavo_partition_memory_used_bytes{device=\"1\""));
    assert_eq!(used.count(), 2);
    assert!(!text.contains("DCGM"));
}

#[tokio::test]
async fn devices_whose_number_the_driver_does_not_tell_are_not_taken_for_each_other() {
    let mut seen = seen().await;
    for reading in &mut seen.readings {
        reading.index = None;
    }
    let usage = join(&UsageInput {
        readings: &seen.readings,
        offers: &Offers::default(),
        given: &[],
        is_current: true,
        kin: &PodAttribution::Hidden,
    });
    seen.usage = Arc::new(usage);
    let pci: Vec<String> = seen
        .readings
        .iter()
        .map(|one| one.pci.to_string())
        .collect();
    // NVIDIA's names have letters that promtool finds fault with, so it is given ours alone.
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
async fn dashboards_of_dcgm_exporter_find_their_names_and_labels_and_no_value_twice() {
    let text = text(seen().await, true);
    let dcgm = text.find("# HELP DCGM").unwrap();
    let text = &text[dcgm..];
    assert_eq!(documented(&section(), "DCGM_FI_DEV_"), {
        let mut served = labels(text);
        for labels in served.values_mut() {
            // They are on the series of partitions alone, which the page says in words.
            labels.retain(|label| !label.starts_with("GPU_I_"));
        }
        served
    });
    let gpus = |name: &str| {
        let all = text
            .lines()
            .filter(|line| line.starts_with(&format!("DCGM_FI_DEV_{name}{{")));
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    // Once a device, or once a GPU instance: never once a pod.
    assert_eq!(gpus("POWER_USAGE").len(), 3);
    assert_eq!(gpus("GPU_UTIL").len(), 2);
    assert_eq!(gpus("FB_USED").len(), 4);
    assert_eq!(
        gpus("UNCORRECTABLE_REMAPPED_ROWS").len(),
        2,
        "a T4 remaps no rows"
    );
    assert!(gpus("MEMORY_TEMP").is_empty(), "blank");
    let xids = gpus("XID_ERRORS");
    assert_eq!(xids.len(), 1, "who reported none has none: {xids:?}");
    assert!(
        xids[0].contains("{gpu=\"2\"") && xids[0].ends_with(" 43.0"),
        "{xids:?}"
    );
    let part = gpus("FB_USED")
        .into_iter()
        .find(|line| line.contains("GPU_I_PROFILE=\"3g.40gb\""));
    let part = part.unwrap();
    assert!(
        part.ends_with(
            "Hostname=\"node-7\",container=\"main\",namespace=\"team\",pod=\"b\"} 2048.0"
        ),
        "{part}"
    );
    // A shared one is no pod's.
    let shared = gpus("FB_USED")
        .into_iter()
        .find(|line| line.starts_with("DCGM_FI_DEV_FB_USED{gpu=\"0\""));
    let shared = shared.unwrap();
    assert!(
        shared.contains("device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\""),
        "{shared}"
    );
    assert!(
        shared.ends_with("container=\"\",namespace=\"\",pod=\"\"} 40960.0"),
        "{shared}"
    );
}

#[tokio::test]
async fn dcgm_memory_that_two_compute_instances_share_is_no_pods() {
    let mut seen = seen().await;
    let mut usage = (*seen.usage).clone();
    let units = &mut usage.devices[1].units;
    let mut other = units[0].clone();
    let (gi, ci) = other.partition.unwrap();
    other.partition = Some((gi, ci + 1));
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
async fn the_agent_says_who_is_over_the_share_of_a_layout_in_its_log_and_its_metrics() {
    let rig = Rig::new("- {board: H100_80GB_SXM}\n");
    let gpu = rig.gpu(0);
    rig.kubelet
        .give("a", "nvidia.com/gpu", &[format!("{gpu}::0")]);
    rig.is_of(101, "a", Groups::V2Systemd);
    rig.runs(101, 0, None, 40 * 1024);
    let mut command = rig.agent("{replicas: 3}", &["--metrics-listen=127.0.0.1:0"]);
    let mut agent = tokio::task::spawn_blocking(move || {
        let mut agent = Program::start(&mut command);
        let address = agent.metrics();
        let line = agent.says("fair share");
        (agent, address, line)
    })
    .await
    .unwrap();
    let line = &agent.2;
    assert!(
        line.contains(
            "team/a: container main uses 40.0 GiB of an 80 GiB GPU shared by 3; fair share 26."
        ) && line.contains("(GPU 0)"),
        "{line}"
    );
    let over = "octavo_container_memory_over_share{device=\"0\",gi=\"\",ci=\"\",profile=\"\",namespace=\"team\",pod=\"a\",container=\"main\"} 1.0";
    let body = Api::at(agent.1).metrics_with(&[over]).await;
    promtool::finds_no_fault(&body);
    let _said = agent.0.kill();
}
