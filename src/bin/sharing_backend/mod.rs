//! Builds the sharing backend from the settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_agent::LoopSettings as Looking;
use octavo_agent::partitioning::Partitioning;
use octavo_agent::settings::{AgentSettings, DeviceList, SharingMode};
use octavo_agent::sharing::SharingBackend as Port;
use octavo_agent::sharing::embedded::{EmbeddedBackend, EmbeddedSettings};
use octavo_agent::sharing::machine::{self, HostDevices, HostPaths};
use octavo_engine::durable::DurableError;
use octavo_engine::usage::PodProcesses;
use octavo_kubelet::device_plugin::allocation_response::DeviceResponder;
use octavo_kubelet::device_plugin::{AllocationGate, Answer, Manager, Settings};
use octavo_node::labels::Options;
use octavo_node::sharing::health::XidTable;
use octavo_node::sharing::injection::InjectionMethod;
use tokio::task::JoinSet;
use tracing::info;

/// Starts the built-in device plugin if the settings select it, and connects it to the partitioning.
pub(crate) fn start(
    settings: &AgentSettings,
    partitioning: Option<Partitioning>,
    tasks: &mut JoinSet<()>,
) -> (Option<Box<dyn Port>>, Option<Partitioning>) {
    match embedded(settings, tasks) {
        Some((giver, gate)) => {
            if partitioning.is_none() {
                // There is no state directory to acquire first.
                gate.open();
            }
            (Some(giver), partitioning.map(|one| one.with_gate(gate)))
        }
        None => (None, partitioning),
    }
}

/// Builds the settings of the agent's loop.
pub(crate) fn loop_settings(
    settings: &AgentSettings,
    interval: Duration,
    labels: Options,
) -> Looking {
    Looking {
        interval,
        labels,
        xids: xids(settings),
    }
}

/// Builds the table of Xid effects.
fn xids(settings: &AgentSettings) -> XidTable {
    XidTable::default().ignoring(settings.sharing.ignore_xid.clone().unwrap_or_default())
}

/// Removes the CDI specification if this program maintains it.
pub(crate) fn clean_up(settings: &AgentSettings) -> Result<(), DurableError> {
    let sharing = &settings.sharing;
    let is_told = sharing.device_lists.contains(&DeviceList::Cdi);
    if sharing.mode == SharingMode::Embedded && is_told && machine::remove_spec(&sharing.cdi_dir)? {
        info!(
            "the CDI description in {} is removed",
            sharing.cdi_dir.display()
        );
    }
    Ok(())
}

fn embedded(
    settings: &AgentSettings,
    tasks: &mut JoinSet<()>,
) -> Option<(Box<dyn Port>, Arc<AllocationGate>)> {
    let sharing = &settings.sharing;
    match sharing.mode {
        SharingMode::Embedded => {}
        SharingMode::Auto | SharingMode::Off | SharingMode::HandOff => return None,
    }
    let engine = &settings.engine;
    let gate = Arc::new(AllocationGate::default());
    let places = HostPaths {
        proc: engine.proc_root.clone(),
        dev: PathBuf::from("/dev"),
        cdi: sharing.cdi_dir.clone(),
    };
    let ways = sharing
        .device_lists
        .iter()
        .map(|list| InjectionMethod::from(*list));
    let answer: Arc<dyn Answer> = Arc::new(DeviceResponder::new(
        ways,
        Box::new(HostDevices::new(places)),
    ));
    let plugin = Settings {
        folder: sharing.device_plugins.clone(),
        pod_resources: engine.pod_resources().map(ToOwned::to_owned),
        policy: sharing.policy(),
        running_pods: Arc::new(PodProcesses::new(&engine.proc_root)),
    };
    let (manager, report, told) = Manager::new(&plugin, Arc::clone(&gate), Arc::clone(&answer));
    tasks.spawn(manager.run());
    let rules = EmbeddedSettings {
        strategy: settings.labels.options(Timestamp::now()).mig_strategy,
        deadline: sharing.sharing_deadline,
        withhold_after: sharing.withhold_after,
        follows_node: settings.watches_node(),
        xids: xids(settings),
        nvidia_smi: engine.nvidia_smi.clone(),
        state: Some(engine.state_dir.clone()),
    };
    let giver = EmbeddedBackend::new((Arc::clone(&gate), answer), report, told, rules);
    Some((Box::new(giver), gate))
}
