//! Unmodified third-party clients: C by `dlopen`, `nvidia-ml-py`, `go-nvml`, `nvml-wrapper`.
//!
//! The first three print the same text, which is compared with `tests/expected`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Brand, TemperatureSensor, TopologyLevel};
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use serde_json::Value;

use crate::support::{HGX_A100, Machine, ONE_H100, build, finish, here, succeeded};

/// The version of nvidia-ml-py, the newest of 2026-11.
const PYNVML: &str = "13.615.71";

/// Runs a client on a new machine and compares its output with the expected text.
#[track_caller]
fn prints(scenario: &str, expected: &str, client: impl Fn(&Machine) -> Command) {
    let machine = Machine::new(scenario);
    let printed = succeeded(&client(&machine).output().unwrap());
    let path = here().join("tests/expected").join(expected);
    let wanted = std::fs::read_to_string(&path).unwrap();
    assert_eq!(printed, wanted, "against {}", path.display());
}

#[test]
fn c_program_walks_partitions_and_restores_the_machine() {
    let client = |machine: &Machine| machine.client(&["walk"]);
    prints(HGX_A100, "hgx-a100.txt", client);
    prints(ONE_H100, "one-h100.txt", client);
}

#[test]
fn python_sees_the_same_through_nvidia_ml_py() {
    let script = here().join("clients/python/walk.py");
    let client = |machine: &Machine| {
        let mut command = Command::new(&*PYTHON);
        let directory = machine.library();
        command.arg(&script).env("LD_LIBRARY_PATH", directory.parent().unwrap());
        command
    };
    prints(HGX_A100, "hgx-a100.txt", client);
    prints(ONE_H100, "one-h100.txt", client);
}

/// Values of a machine that the simulator does not derive from the board: a virtual machine with one GPU has another
/// address and subsystem, and the driver's reserve depends on its settings.
const OF_THE_MACHINE: [&str; 2] = ["nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo_v2"];

#[test]
fn simulator_returns_what_a_real_driver_returned() {
    for (board, recording) in
        [("H100_80GB_SXM", "h100-580.159.04.json"), ("H200_141GB", "h200-580.159.04.json")]
    {
        let machine = Machine::new(&format!(
            "machine: recorded\ndriver: 580.159.04\ncuda: '13.0'\ngpus: [{{board: {board}}}]\n"
        ));
        let mut command = Command::new(&*PYTHON);
        command.arg(here().join("clients/python/probe.py"));
        command.env("LD_LIBRARY_PATH", machine.library().parent().unwrap());
        let simulated = results(&succeeded(&command.output().unwrap()));
        let recorded = std::fs::read_to_string(here().join("data/recorded").join(recording));
        let recorded = results(&recorded.unwrap());
        assert!(recorded.len() > 80, "{} calls of {recording}", recorded.len());
        let mut wrong = Vec::new();
        for (call, (code, value)) in &recorded {
            match simulated.get(call) {
                Some((ours, _)) if OF_THE_MACHINE.contains(&call.as_str()) && ours == code => {}
                Some(ours) if *ours == (code.clone(), value.clone()) => {}
                ours => wrong.push(format!("{call}: recorded {code} {value}, simulated {ours:?}")),
            }
        }
        assert!(wrong.is_empty(), "{recording}:\n{}", wrong.join("\n"));
    }
}

/// Return code and value of each call of a recording.
fn results(recording: &str) -> BTreeMap<String, (Value, Value)> {
    let recording: Value = serde_json::from_str(recording).unwrap();
    let calls = recording["calls"].as_object().unwrap().iter();
    calls
        .map(|(call, result)| (call.clone(), (result["code"].clone(), result["value"].clone())))
        .collect()
}

#[test]
fn go_sees_the_same_through_go_nvml() {
    let client = |machine: &Machine| {
        let mut command = Command::new(&*GO_CLIENT);
        command.arg(machine.library());
        command
    };
    prints(HGX_A100, "hgx-a100.txt", client);
    prints(ONE_H100, "one-h100.txt", client);
}

#[test]
fn c_program_that_misuses_handles_gets_errors() {
    let machine = Machine::new(ONE_H100);
    let output = machine.client(&["misuse"]).output().unwrap();
    assert_eq!(succeeded(&output), "ok\n");
}

#[test]
fn nvml_wrapper_reads_every_supported_fact() {
    let machine = Machine::new(HGX_A100);
    let nvml = Nvml::builder().lib_path(machine.library().as_os_str()).init().unwrap();
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.95.05");
    assert_eq!(nvml.device_count().unwrap(), 8);
    let device = nvml.device_by_index(3).unwrap();
    assert_eq!(device.brand().unwrap(), Brand::Nvidia);
    assert_eq!(device.architecture().unwrap(), DeviceArchitecture::Ampere);
    assert_eq!(device.minor_number().unwrap(), 3);
    let pci = device.pci_info().unwrap();
    let again = nvml.device_by_pci_bus_id(pci.bus_id.as_str()).unwrap();
    assert_eq!(again.uuid().unwrap(), device.uuid().unwrap());
    let memory = device.memory_info().unwrap();
    assert_eq!(memory.total, memory.free + memory.used + memory.reserved);
    assert_eq!(device.running_compute_processes().unwrap(), []);
    assert!(device.temperature(TemperatureSensor::Gpu).unwrap() > 0);
    assert!(device.is_ecc_enabled().unwrap().currently_enabled);
    assert_eq!(device.mig_device_count().unwrap(), 0);
    let other = nvml.device_by_index(0).unwrap();
    let level = device.topology_common_ancestor(other).unwrap();
    assert!(
        [TopologyLevel::Node, TopologyLevel::System, TopologyLevel::HostBridge].contains(&level)
    );
    let values = device.field_values_for(&[FieldId(230), FieldId(91)]).unwrap();
    let numbers: Vec<_> = values.into_iter().map(|value| value.unwrap().value).collect();
    assert_eq!(format!("{numbers:?}"), "[Ok(U32(0)), Ok(U32(12))]");
    assert_eq!(device.set_mig_mode(true).unwrap(), 0);
    assert!(device.mig_mode().unwrap().current == 1);
    assert_eq!(device.mig_device_count().unwrap(), 7);
    assert!(matches!(device.mig_device_by_index(0), Err(NvmlError::NotFound)));
    assert_eq!(device.profile_info(2).unwrap().multiprocessor_count, 42);
    let set = nvml.create_event_set().unwrap();
    let set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap();
    assert!(matches!(set.wait(20), Err(NvmlError::Timeout)));
}

/// A Python with nvidia-ml-py: the one of `NVML_SIM_PYTHON`, or a cached virtual environment.
static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(python) = variable("NVML_SIM_PYTHON") {
        return python.into();
    }
    let home = variable("XDG_CACHE_HOME")
        .map_or_else(|| Path::new(&variable("HOME").unwrap()).join(".cache"), PathBuf::from);
    let environment = home.join(format!("octavo/python-nvidia-ml-py-{PYNVML}"));
    if !environment.exists() {
        make_python(&environment);
    }
    environment.join("bin/python3")
});

/// Creates the environment under another name first, so that parallel runs see only a complete one.
fn make_python(environment: &Path) {
    let draft = environment.with_extension(format!("draft-{}", std::process::id()));
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&draft);
    finish(&mut make, "Python 3 with venv (Debian: apt-get install python3-venv)");
    let mut install = Command::new(draft.join("bin/python3"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    install.arg(format!("nvidia-ml-py=={PYNVML}"));
    finish(
        &mut install,
        "a package index with nvidia-ml-py, or NVML_SIM_PYTHON set to a Python that has it",
    );
    if std::fs::rename(&draft, environment).is_err() {
        std::fs::remove_dir_all(&draft).unwrap();
    }
}

static GO_CLIENT: LazyLock<PathBuf> = LazyLock::new(|| {
    let needs =
        "Go 1.21 or newer with cgo and a module proxy (Debian: apt-get install golang-go gcc)";
    build("walk-go", needs, |program| {
        let mut build = Command::new("go");
        build
            .current_dir(here().join("clients/go"))
            .args(["build", "-mod=readonly", "-o"])
            .arg(program)
            // The bindings cover deprecated functions, and each causes a warning of several lines.
            .env("CGO_CFLAGS", "-O1 -Wno-deprecated-declarations")
            .env("CGO_ENABLED", "1");
        build
    })
});

#[expect(clippy::disallowed_methods, reason = "the tests have no other configuration")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
