//! Missing facts of NVML: addresses of switches and of GPUs.

use std::fs;
use std::process::{Command, Output};

use octavo_hardware::Settings;
use octavo_model::inventory::{Condition, Inventory, LinkRemote};
use octavo_model::{id::PciAddress, interconnect};

use crate::machine::{Machine, start};
use crate::time_limits::Finish;

const FABRIC: &str = "fabric: {cluster_uuid: 11111111-2222-3333-4444-555555555555, clique: 3}\n";

/// Four GPUs behind hidden switches.
fn hidden(board: &str, fabric: &str, gpus: &str) -> Machine {
    Machine::new(
        &format!("machine: hidden\nlinks: hidden-nvswitch\n{fabric}gpus: [{gpus}]\n")
            .replace("BOARD", board),
    )
}

/// Kind of the interconnect, and the sizes of its domains.
fn domains(inventory: &Inventory) -> Option<(String, usize, Vec<usize>)> {
    let found = interconnect::of_node(inventory)?;
    let sizes = found.domains.iter().map(Vec::len).collect();
    Some((found.kind.to_string(), found.domain_size, sizes))
}

fn nvswitch(largest: usize, sizes: &[usize]) -> (String, usize, Vec<usize>) {
    ("nvswitch".to_owned(), largest, sizes.to_vec())
}

#[tokio::test]
async fn gpus_behind_hidden_switches_are_grouped_by_fabric() {
    let machine = hidden("GB200_186GB", FABRIC, "{board: BOARD, count: 4}");
    let inventory = machine.observe().await;
    for device in &inventory.devices {
        assert_eq!(device.links.len(), 18);
        let mut links = device.links.iter();
        assert!(links.all(|link| link.remote == LinkRemote::HiddenSwitch));
        // The fabric determines the domain, so peers are not queried.
        assert_eq!(device.p2p_group, None);
    }
    assert_eq!(domains(&inventory), Some(nvswitch(4, &[4])));

    let output = machine.agent_once(&["--log-level=error"]);
    let labels = String::from_utf8(output.stdout).unwrap();
    for label in ["octavo.dev/interconnect=nvswitch", "octavo.dev/interconnect-domain=4"] {
        assert!(labels.lines().any(|line| line == label), "{labels}");
    }
}

#[tokio::test]
async fn gpus_behind_hidden_switches_are_grouped_by_peer_to_peer_status() {
    for board in ["A100_80GB", "H100_80GB_SXM"] {
        let machine = hidden(board, "", "{board: BOARD, count: 4}");
        assert_eq!(domains(&machine.observe().await), Some(nvswitch(4, &[4])), "{board}");
    }
    // A GPU in MIG mode has no peers.
    let machine = hidden("A100_80GB", "", "{board: BOARD, mig: enabled}, {board: BOARD, count: 3}");
    let inventory = machine.observe().await;
    assert_eq!(domains(&inventory), Some(nvswitch(3, &[1, 3])));
    let groups: Vec<Option<u32>> = inventory.devices.iter().map(|one| one.p2p_group).collect();
    assert_eq!(groups, [Some(0), Some(1), Some(1), Some(1)]);
}

#[tokio::test]
async fn interconnect_is_unknown_if_nvml_does_not_report_peers() {
    let machine =
        hidden("A100_80GB", "", "{board: BOARD, count: 2}").without(&["nvmlDeviceGetP2PStatus"]);
    let inventory = machine.observe().await;
    assert_eq!(domains(&inventory), None);
    assert!(inventory.devices.iter().all(|one| one.problems.is_empty()));
}

/// Two GPUs; NVML reports no address of the second.
fn unreported() -> Machine {
    Machine::new(
        "machine: gaps\ngpus: [{board: T4, count: 2}]\nfaults: [{call: nvmlDeviceGetPciInfo_v3, gpu: 1, lie: true}]\n",
    )
}

/// The program on a machine with an empty bus.
fn octavo(machine: &Machine, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(arguments);
    command.arg("--nvml-library").arg(machine.library());
    command.arg("--sys-root").arg(machine.path().join("empty"));
    command.finish()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn gpu_without_address_and_absent_from_bus_is_failing() {
    let machine = unreported();
    let settings = Settings { sys_root: machine.path().join("empty"), ..machine.settings() };
    let devices = start(&settings).observe().await.devices.clone();
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[0].condition, Condition::Working);
    assert_eq!(devices[1].pci, PciAddress::unreported(1));
    let reason = "nvmlDeviceGetPciInfo_v3: no PCI address in the response".to_owned();
    assert_eq!(devices[1].condition, Condition::Failing { reason });
}

#[test]
fn inspect_shows_gpu_without_address_and_fails() {
    let output = octavo(&unreported(), &["inspect"]);
    let shown = text(&output.stdout);
    assert!(
        shown.contains("GPU 1 (ffffffff:01:00.0): failing: nvmlDeviceGetPciInfo_v3"),
        "{shown}"
    );
    assert_eq!(text(&output.stderr), "NVML reports no PCI address for 1 failed GPU(s)\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn doctor_reports_gpu_without_address() {
    let output = octavo(&unreported(), &["doctor"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("failing  device-health"), "{shown}");
    assert!(shown.contains("NVML reports the device without a PCI address"), "{shown}");
}

#[test]
fn agent_logs_gpu_without_address() {
    let machine = unreported();
    fs::remove_dir_all(machine.path().join("sys")).unwrap();
    let output = machine.agent_once(&[]);
    let log = text(&output.stderr);
    assert!(
        log.contains("ffffffff:01:00.0") && log.contains("no PCI address in the response"),
        "{log}"
    );
}
