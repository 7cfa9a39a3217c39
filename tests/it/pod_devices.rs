//! `octavo pod-devices` in containers of each vendor: device files and environment of a container, and the sysfs of
//! the whole machine.

use std::fs;
use std::path::Path;

use octavo_node::validation::{ContainerReport, VisibleUnit};

use crate::machine::Machine;
use crate::time_limits::Finish;

const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");

/// Runs the command in a container with these device files.
fn seen(machine: &Machine, files: &[&str], environment: &[(&str, &str)]) -> ContainerReport {
    let dev = machine.path().join("container-dev");
    for file in files {
        let path = dev.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let report = machine.path().join("termination-log");
    fs::write(&report, "an old and longer content of the file".repeat(99)).unwrap();
    let mut command = machine.command(OCTAVO);
    command.arg("--dev-root").arg(&dev).arg("--output-file").arg(&report);
    let output = with_subcommand(&command).envs(environment.iter().copied()).finish();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"");
    read(&report)
}

/// The same command with the subcommand as its first argument.
fn with_subcommand(command: &std::process::Command) -> std::process::Command {
    let mut ordered = std::process::Command::new(command.get_program());
    ordered.arg("pod-devices").args(command.get_args());
    ordered
}

fn read(path: &Path) -> ContainerReport {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn ids(report: &ContainerReport) -> Vec<&str> {
    report.units.iter().map(|unit| unit.id.as_str()).collect()
}

#[test]
fn f3_container_reports_partitions_that_only_privileged_processes_can_list() {
    let machine = Machine::new(
        "machine: part\ngpus: [{board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb}]}]\n\
         faults: [{call: nvmlDeviceGetGpuInstances, return: NO_PERMISSION}]\n",
    );
    let world = machine.world();
    let uuid = &world.gpus[0].mig.as_ref().unwrap().instances[0].compute[0].uuid;
    let report = seen(&machine, &["nvidia0", "nvidiactl"], &[("NVIDIA_VISIBLE_DEVICES", uuid)]);
    assert_eq!(ids(&report), [uuid]);
    let VisibleUnit { memory_mib, type_name, error, .. } = &report.units[0];
    assert_eq!((*memory_mib, error), (Some(40_192), &None));
    assert_eq!(type_name.as_deref(), Some("nvidia-a100-80gb"));
    assert_eq!(report.environment["NVIDIA_VISIBLE_DEVICES"], *uuid);
    assert_eq!(report.device_files, ["nvidia0", "nvidiactl"]);
    assert_eq!(report.nvml, None);
}

#[test]
fn f3_containers_of_amd_and_neuron_report_the_units_of_their_device_files() {
    let machine = Machine::without_driver(
        "machine: mixed\ndriver_loaded: false\n\
         neuron: {chip: trainium2, count: 16, unhealthy: {11: [hbm]}}\namd:\n- {chip: mi300x, count: 2}\n",
    );
    fs::write(machine.library(), "not a library").unwrap();
    let report =
        seen(&machine, &["kfd", "dri/renderD136", "dri/card1", "neuron3", "neuron11", "null"], &[]);
    assert_eq!(report.device_files, ["dri/renderD136", "kfd", "neuron11", "neuron3"]);
    assert_eq!(ids(&report), ["dri/renderD136", "neuron11", "neuron3"]);
    let [amd, sick, chip] = report.units.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(amd.type_name.as_deref(), Some("amd-mi300x-192gb"));
    assert_eq!(amd.memory_mib, Some(196_592));
    assert_eq!(chip.type_name.as_deref(), Some("aws-trainium2-96gb"));
    assert_eq!(sick.error.as_deref(), Some("unhealthy: hbm"));
    assert!(report.nvml.is_some());
}
