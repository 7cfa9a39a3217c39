//! Operands of the GPU Operator: paused while they block a change, and always resumed.

use nvml_sim::model::{Process, ProcessKind};

use super::Rig;
use crate::cluster::Api;
use crate::process::Program;

pub(crate) const WHOLE: &str = "- {board: A100_40GB}\n";
pub(crate) const MIG: &str = "- {board: A100_40GB, mig: enabled}\n";
pub(crate) const PLUGIN: &str = "nvidia.com/gpu.deploy.device-plugin";
pub(crate) const DCGM: &str = "nvidia.com/gpu.deploy.dcgm";
const NVSM: &str = "nvidia.com/gpu.deploy.nvsm";
pub(crate) const MONITOR: u32 = 4242;
pub(crate) const COMPAT: &str = "--compat=mig-manager";

/// Labels of the operator: one operand that runs, one that does not, one of another owner, and none of the rest.
pub(crate) fn deploy(rig: &Rig<'_>) {
    rig.label(&[
        &format!("{DCGM}=true"),
        &format!("{NVSM}=false"),
        "nvidia.com/gpu.deploy.driver=paused-for-driver-upgrade",
    ]);
}

fn deployed(rig: &Rig<'_>) -> Vec<(String, String)> {
    rig.labels("nvidia.com/gpu.deploy.")
}

/// A monitor that has the GPU open, as dcgm does, until it receives SIGTERM.
pub(crate) fn open_the_gpu(rig: &Rig<'_>) {
    rig.machine.machine.change(|world| {
        let gpu_uuid = world.gpus[0].uuid.clone();
        world.add_process(Process {
            pid: MONITOR,
            name: "nv-hostengine".to_owned(),
            gpu_uuid,
            gi: None,
            ci: None,
            memory_mib: 1,
            kind: ProcessKind::Compute,
        })
    });
}

pub(crate) fn close_the_gpu(rig: &Rig<'_>) {
    rig.machine.machine.change(|world| world.remove_process(MONITOR));
}

/// An agent that has paused operands for a monitor that keeps running, and their previous labels.
fn paused_for_a_monitor() -> (Rig<'static>, Vec<(String, String)>, Program) {
    let rig = Rig::new(Api::shared(), WHOLE);
    deploy(&rig);
    let before = deployed(&rig);
    open_the_gpu(&rig);
    rig.label(&["nvidia.com/mig.config=all-1g.5gb"]);
    let agent = rig.start(&[COMPAT]);
    rig.await_label(DCGM, "paused-for-octavo");
    (rig, before, agent)
}

#[test]
fn operands_pause_while_client_blocks_mode_change_and_then_resume() {
    let rig = Rig::new(Api::shared(), WHOLE);
    rig.machine.install_nvidia_smi();
    deploy(&rig);
    let before = deployed(&rig);
    open_the_gpu(&rig);
    let _agent = rig.start(&[COMPAT]);
    rig.label(&["nvidia.com/mig.config=all-1g.5gb"]);
    rig.await_label(DCGM, "paused-for-octavo");
    let during = deployed(&rig);
    assert_eq!(during.len(), before.len(), "{during:?}");
    assert_eq!(during.iter().filter(|(_, value)| value == "paused-for-octavo").count(), 1);
    // The pod of the operand has exited.
    close_the_gpu(&rig);
    rig.await_label("nvidia.com/mig.config.state", "success");
    rig.await_label(DCGM, "true");
    assert_eq!(deployed(&rig), before);
    assert_eq!(rig.machine.geometry(0).len(), 7);
    rig.await_event("OperandsPaused");
    rig.await_event("OperandsRestored");
}

#[test]
fn i11_next_agent_resumes_operands_paused_by_killed_agent() {
    let (rig, before, mut agent) = paused_for_a_monitor();
    agent.kill();
    assert_ne!(deployed(&rig), before);
    rig.label(&["nvidia.com/mig.config-"]);
    let agent = rig.start(&[COMPAT]);
    rig.await_label(DCGM, "true");
    assert_eq!(deployed(&rig), before);
    drop(agent);
}

#[test]
fn i11_terminated_agent_resumes_paused_operands() {
    let (rig, before, agent) = paused_for_a_monitor();
    assert!(agent.stop().success());
    assert_eq!(deployed(&rig), before);
}

#[test]
fn default_settings_change_no_operand() {
    let rig = Rig::new(Api::shared(), WHOLE);
    deploy(&rig);
    let before = deployed(&rig);
    open_the_gpu(&rig);
    rig.label(&["octavo.dev/layout=all-1g.5gb"]);
    let _agent = rig.start(&[]);
    rig.await_event("LayoutBlocked");
    assert_eq!(deployed(&rig), before);
}

#[test]
fn new_partitions_restart_device_plugin_and_check_allocatable() {
    let rig = Rig::new(Api::shared(), MIG);
    rig.label(&[&format!("{PLUGIN}=true")]);
    let offer = |resource: &str| {
        let patch = format!(
            r#"{{"status": {{"allocatable": {{"nvidia.com/mig-1g.5gb": "0", "{resource}": "7"}}}}}}"#
        );
        rig.api.kubectl(&[
            "patch",
            "node",
            rig.name(),
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ]);
    };
    offer("nvidia.com/mig-3g.20gb");
    let _agent = rig.start(&[COMPAT, "--mig-strategy=mixed"]);
    rig.label(&["nvidia.com/mig.config=all-1g.5gb"]);
    rig.await_label(PLUGIN, "paused-for-octavo");
    // The plugin has exited, and kubelet has noticed.
    offer("nvidia.com/mig-3g.20gb\": \"0\", \"nvidia.com/none");
    let patch = r#"{"status": {"allocatable": {"nvidia.com/none": "0"}}}"#;
    rig.api.kubectl(&[
        "patch",
        "node",
        rig.name(),
        "--subresource=status",
        "--type=merge",
        "-p",
        patch,
    ]);
    rig.await_label(PLUGIN, "true");
    rig.await_event("DevicePluginRefreshed");
    offer("nvidia.com/mig-1g.5gb");
    rig.await_event("PartitionsOffered");
}

#[test]
fn config_manager_plugin_receives_alternate_configuration_name() {
    let rig = Rig::new(Api::shared(), MIG);
    rig.label(&[&format!("{PLUGIN}=true"), "nvidia.com/device-plugin.config=a"]);
    let _agent = rig.start(&[COMPAT, "--device-plugin-configs=a,b"]);
    rig.label(&["nvidia.com/mig.config=all-1g.5gb"]);
    rig.await_label("nvidia.com/device-plugin.config", "b");
    rig.await_event("DevicePluginRefreshed");
    assert_eq!(deployed(&rig), [(PLUGIN.to_owned(), "true".to_owned())]);
}
