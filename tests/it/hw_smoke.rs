//! The smoke test for real hardware: on a simulated machine it passes and can fail, and its recordings of real machines
//! still match.
//!
//! A script replaces `nvidia-smi` and prints the output for a T4 (in the form of driver 535's `nvidia-smi -q`), because
//! the real program uses internals of the library and cannot run on a simulated one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::machine::Machine;
use crate::time_limits::Finish;

const T4: &str = "
machine: smoke
driver: 535.183.01
cuda: '12.2'
gpus:
  - board: T4
    uuid: GPU-34ef97b8-1ec1-46e6-baf6-8302a56a2c61
    pci: '0000:1b:00.0'
    serial: '1320221012345'
    minor: 0
processes:
  - {pid: 4711, gpu: 0, name: secret-project, memory_mib: 1024}
";

fn nvidia_smi(memory_mib: u32) -> String {
    format!(
        "
==============NVSMI LOG==============

Timestamp                                 : Sat Nov 21 12:00:00 2026
Driver Version                            : 535.183.01
CUDA Version                              : 12.2

Attached GPUs                             : 1
GPU 00000000:1B:00.0
    Product Name                          : Tesla T4
    Product Brand                         : NVIDIA
    MIG Mode
        Current                           : N/A
        Pending                           : N/A
    Serial Number                         : 1320221012345
    GPU UUID                              : GPU-34ef97b8-1ec1-46e6-baf6-8302a56a2c61
    Minor Number                          : 0
    FB Memory Usage
        Total                             : {memory_mib} MiB
        Reserved                          : 442 MiB
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : secret-project
"
    )
}

fn smoke(machine: &Machine, nvidia_smi: &str, record: &Path) -> Output {
    let tools = machine.path().join("tools");
    fs::create_dir_all(&tools).unwrap();
    fs::write(tools.join("text"), nvidia_smi).unwrap();
    let script = tools.join("nvidia-smi");
    fs::write(&script, "#!/bin/sh\ncat \"$(dirname \"$0\")/text\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    Command::new("bash")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/hw-smoke.sh"))
        .args(["--record", "t4", "--out"])
        .arg(record)
        .arg("--")
        .arg("--nvml-library")
        .arg(machine.library())
        .arg("--sys-root")
        .arg(machine.path().join("sys"))
        .env("PATH", path)
        .env("OCTAVO", env!("CARGO_BIN_EXE_octavo"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .finish()
}

#[test]
fn hardware_smoke_test_agrees_with_nvidia_smi_and_records_no_name() {
    let machine = Machine::new(T4);
    let out = machine.path().join("fixtures");
    let output = smoke(&machine, &nvidia_smi(15_360), &out);
    let reported = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{reported}{}", String::from_utf8_lossy(&output.stderr));
    assert!(reported.contains("facts match, 0 differ"), "{reported}");
    for name in ["inventory.json", "labels.txt", "nvidia-smi-q.txt"] {
        let text = fs::read_to_string(out.join("t4").join(name)).unwrap();
        for secret in ["34ef97b8", "1320221012345", "4711", "secret-project"] {
            assert!(!text.contains(secret), "{name} holds {secret}:\n{text}");
        }
    }
    let again = fs::read_to_string(out.join("t4/inventory.json")).unwrap();
    octavo_files::inventory::parse(&again).unwrap();
}

#[test]
fn hardware_smoke_test_reports_differences() {
    let machine = Machine::new(T4);
    let output = smoke(&machine, &nvidia_smi(16_384), &machine.path().join("fixtures"));
    let reported = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(
        reported.contains("DIFF 0000:1b:00.0 memoryMiB: octavo 15360, nvidia-smi 16384"),
        "{reported}"
    );
}

#[test]
fn recorded_machines_match_nvidia_smi_and_their_labels() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, product) in
        [("h100-580.159.04", "nvidia-h100-80gb"), ("h200-580.159.04", "nvidia-h200-141gb")]
    {
        let machine = root.join("tests/golden/machines").join(name);
        let compared = Command::new("python3")
            .arg(root.join("hack/hw_smoke.py"))
            .arg("compare")
            .arg(&machine)
            .finish();
        let report = String::from_utf8(compared.stdout).unwrap();
        assert!(compared.status.success(), "{name}: {report}");
        assert!(report.ends_with("10 facts match, 0 differ\n"), "{name}: {report}");
        let labels = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(["labels", "--mig-strategy", "mixed", "--from"])
            .arg(machine.join("inventory.json"))
            .finish();
        let recorded = fs::read_to_string(machine.join("labels.txt")).unwrap();
        assert_eq!(String::from_utf8(labels.stdout).unwrap(), recorded, "{name}");
        assert!(recorded.contains(&format!("octavo.dev/type={product}\n")), "{name}");
    }
}
