//! Builds the sharing backend from the settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_agent::LoopSettings;
use octavo_agent::partitioning::Partitioning;
use octavo_agent::settings::{AgentSettings, DeviceProvider};
use octavo_agent::sharing::SharingBackend;
use octavo_agent::sharing::embedded::{EmbeddedBackend, EmbeddedSettings};
use octavo_agent::sharing::machine::{self, HostDevices, HostPaths};
use octavo_engine::durable::DurableError;
use octavo_engine::usage::PodProcesses;
use octavo_kubelet::device_plugin::{AllocationGate, DeviceResponder, Manager, Settings};
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
) -> (Option<Box<dyn SharingBackend>>, Option<Partitioning>) {
    match embedded(settings, tasks) {
        Some((backend, gate)) => {
            if partitioning.is_none() {
                // There is no state directory to acquire first.
                gate.open();
            }
            (Some(backend), partitioning.map(|one| one.with_gate(gate)))
        }
        None => (None, partitioning),
    }
}

/// Builds the settings of the agent's loop.
pub(crate) fn loop_settings(
    settings: &AgentSettings,
    interval: Duration,
    labels: Options,
) -> LoopSettings {
    LoopSettings { interval, labels, xids: xids(settings) }
}

/// Builds the table of Xid effects.
pub(crate) fn xids(settings: &AgentSettings) -> XidTable {
    XidTable::default().ignoring(settings.sharing.ignore_xid.clone().unwrap_or_default())
}

/// Removes the CDI specification if this program maintains it.
pub(crate) fn clean_up(settings: &AgentSettings) -> Result<(), DurableError> {
    let sharing = &settings.sharing;
    if sharing.mode == DeviceProvider::Embedded
        && sharing.device_lists.contains(&InjectionMethod::Cdi)
        && machine::remove_spec(&sharing.cdi_dir)?
    {
        info!(directory = %sharing.cdi_dir.display(), "CDI specification removed");
    }
    Ok(())
}

fn embedded(
    settings: &AgentSettings,
    tasks: &mut JoinSet<()>,
) -> Option<(Box<dyn SharingBackend>, Arc<AllocationGate>)> {
    let sharing = &settings.sharing;
    match sharing.mode {
        DeviceProvider::Embedded => {}
        DeviceProvider::Auto | DeviceProvider::Off | DeviceProvider::HandOff => return None,
    }
    let engine = &settings.engine;
    let gate = Arc::new(AllocationGate::default());
    let paths = HostPaths {
        proc: engine.proc_root.clone(),
        dev: PathBuf::from("/dev"),
        cdi: sharing.cdi_dir.clone(),
    };
    let methods = sharing.device_lists.iter().copied();
    let responder = Arc::new(DeviceResponder::new(methods, Box::new(HostDevices::new(paths))));
    let plugin = Settings {
        directory: sharing.device_plugins.clone(),
        pod_resources: engine.pod_resources().map(ToOwned::to_owned),
        policy: sharing.allocation,
        running_pods: Arc::new(PodProcesses::new(&engine.proc_root)),
    };
    let (manager, report, kubelet_report) =
        Manager::new(&plugin, Arc::clone(&gate), Arc::clone(&responder));
    tasks.spawn(manager.run());
    let embedded_settings = EmbeddedSettings {
        strategy: settings.labels.options(Timestamp::now()).mig_strategy,
        deadline: sharing.sharing_deadline,
        withhold_after: sharing.withhold_after,
        follows_node: settings.watches_node(),
        xids: xids(settings),
        nvidia_smi: engine.nvidia_smi.clone(),
        state: Some(engine.state_dir.clone()),
    };
    let backend = EmbeddedBackend::new(
        (Arc::clone(&gate), responder),
        report,
        kubelet_report,
        embedded_settings,
    );
    Some((Box::new(backend), gate))
}
