//! The generated CDI specification, read by the library that container runtimes use.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use octavo_files::cdi::{DriverEdits, write_spec};
use octavo_model::device_file::{DeviceFile, DeviceFiles, DeviceNumber};
use octavo_model::id::PciAddress;
use octavo_node::sharing::injection::{InjectionMethod, inject};
use octavo_node::sharing::{Partition, Unit};
use serde_json::{Value, json};

use crate::cdi_runtime::RUNTIME;
use crate::time_limits::Finish;

/// Shortened output of `nvidia-ctk cdi generate`.
const NVIDIA: &str = "---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: '0'
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void, NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64]
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib64]
  mounts:
  - {hostPath: /usr/lib64/libcuda.so.570.133.20, containerPath: /usr/lib64/libcuda.so.570.133.20, options: [ro, nosuid, nodev, rbind, rprivate]}
";

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
const MIG: &str = "MIG-1b2c3d4e-86f3-5a43-b711-4771313afc50";

fn pci(bus: u8) -> PciAddress {
    PciAddress::new(0, bus, 0, 0).unwrap()
}

fn file(path: &str, major: u32, minor: u32) -> DeviceFile {
    DeviceFile { path: path.to_owned(), number: DeviceNumber { major, minor } }
}

fn files() -> DeviceFiles {
    let cap = |minor: u32| file(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), 235, minor);
    DeviceFiles {
        common: vec![file("/dev/nvidiactl", 195, 255), file("/dev/nvidia-uvm", 510, 0)],
        devices: [(pci(7), file("/dev/nvidia0", 195, 0)), (pci(8), file("/dev/nvidia1", 195, 1))]
            .into(),
        instances: [((pci(8), 3, None), cap(30)), ((pci(8), 3, Some(0)), cap(31))].into(),
    }
}

fn units() -> Vec<Unit> {
    let unit = |uuid: &str, bus: u8, partition| Unit {
        uuid: uuid.to_owned(),
        pci: pci(bus),
        partition,
        replicas: Some(3),
        memory: None,
        memory_per_replica: None,
        numa_node: None,
    };
    let partition =
        Partition { gpu_instance: 3, compute_instance: 0, profile: "1g.10gb".parse().unwrap() };
    vec![unit(GPU, 7, None), unit(MIG, 8, Some(partition))]
}

/// Creates a container with these units and returns the output.
fn runtime(directory: &Path, units: &[Unit]) -> Output {
    let injection = inject(units, &BTreeSet::from([InjectionMethod::Cdi]), &files()).unwrap();
    let mut runtime = Command::new(RUNTIME.build());
    runtime.arg(directory).args(injection.cdi).finish()
}

#[track_caller]
fn container(directory: &Path, units: &[Unit]) -> Value {
    let output = runtime(directory, units);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn nodes(container: &Value) -> Vec<String> {
    let devices = container["linux"]["devices"].as_array().unwrap();
    let shown = devices.iter().map(|device| {
        let text = |key: &str| device[key].as_str().unwrap().to_owned();
        format!("{} {} {}:{}", text("path"), text("type"), device["major"], device["minor"])
    });
    shown.collect()
}

#[test]
fn runtime_gives_container_read_write_access_to_files_of_its_units() {
    let directory = tempfile::tempdir().unwrap();
    let text = write_spec(&units(), &files(), None).unwrap();
    fs::write(directory.path().join("octavo.dev-gpu.json"), text).unwrap();
    let whole = container(directory.path(), &units()[..1]);
    assert_eq!(
        nodes(&whole),
        ["/dev/nvidiactl c 195:255", "/dev/nvidia-uvm c 510:0", "/dev/nvidia0 c 195:0"]
    );
    assert_eq!(whole["process"]["env"], json!(["NVIDIA_VISIBLE_DEVICES=void"]));
    let allowed = whole["linux"]["resources"]["devices"].as_array().unwrap();
    let gpu = json!({"allow": true, "type": "c", "major": 195, "minor": 0, "access": "rw"});
    assert!(allowed.contains(&gpu), "{allowed:?}");
    let partition = container(directory.path(), &units()[1..]);
    assert_eq!(
        nodes(&partition)[2..],
        [
            "/dev/nvidia1 c 195:1",
            "/dev/nvidia-caps/nvidia-cap30 c 235:30",
            "/dev/nvidia-caps/nvidia-cap31 c 235:31"
        ]
    );
}

#[test]
fn runtime_mounts_driver_libraries_as_nvidia_specification_does() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("nvidia.yaml"), NVIDIA).unwrap();
    let driver = DriverEdits::parse(NVIDIA).unwrap();
    let text = write_spec(&units(), &files(), Some(&driver)).unwrap();
    fs::write(directory.path().join("octavo.dev-gpu.json"), text).unwrap();
    let container = container(directory.path(), &units());
    let mounts = container["mounts"].as_array().unwrap();
    assert_eq!(mounts[0]["destination"], "/usr/lib64/libcuda.so.570.133.20");
    let hooks = container["hooks"]["createContainer"].as_array().unwrap();
    assert_eq!(hooks[0]["args"][1], "update-ldcache");
    // Only Octavo's entries of two devices, none of NVIDIA's.
    assert_eq!(nodes(&container).len(), 6, "{container:#}");
    let variables = container["process"]["env"].as_array().unwrap();
    assert!(variables.contains(&json!("NVIDIA_VISIBLE_DEVICES=void")), "{variables:?}");
}

#[test]
fn runtime_creates_no_container_for_unknown_device() {
    let directory = tempfile::tempdir().unwrap();
    let text = write_spec(&units()[..1], &files(), None).unwrap();
    fs::write(directory.path().join("octavo.dev-gpu.json"), &text).unwrap();
    let output = runtime(directory.path(), &units());
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(MIG), "{errors}");
    // The library is strict: it rejects unknown fields and a version that is too low for the content.
    let wrong = text.replace("\"permissions\"", "\"permission\"");
    fs::write(directory.path().join("octavo.dev-gpu.json"), wrong).unwrap();
    assert!(!runtime(directory.path(), &units()[..1]).status.success());
}
