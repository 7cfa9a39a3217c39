//! Who gives devices out to pods: builds it out of settings.

use std::sync::Arc;

use jiff::Timestamp;
use octavo::agent::partitioning::Partitioning;
use octavo::agent::sharing::Giver as Port;
use octavo::agent::sharing::embedded::{Embedded, Rules};
use octavo::config::agent::{AgentSettings, ClusterSettings, Giver, PartitioningSettings};
use octavo::config::engine::EngineSettings;
use octavo::k8s::device_plugin::lists::Envvar;
use octavo::k8s::device_plugin::{Answer, Gate, Manager, Settings};

/// Starts what gives devices out, where that is this program, which then knows of it when devices are changed.
pub(crate) fn start(
    settings: &AgentSettings,
    partitioning: Option<Partitioning>,
) -> (Option<Box<dyn Port>>, Option<Partitioning>) {
    match embedded(settings) {
        Some((giver, gate)) => (Some(giver), partitioning.map(|one| one.giving(gate))),
        None => (None, partitioning),
    }
}

fn embedded(settings: &AgentSettings) -> Option<(Box<dyn Port>, Arc<Gate>)> {
    let sharing = settings.sharing();
    match sharing.giver() {
        Giver::Embedded => {}
        Giver::Auto | Giver::Nobody | Giver::HandOff => return None,
    }
    let engine = settings.partitioning().map(PartitioningSettings::engine);
    let socket = engine.and_then(EngineSettings::pod_resources);
    let gate = Arc::new(Gate::default());
    let answer: Arc<dyn Answer> = Arc::new(Envvar);
    let plugin = Settings {
        folder: sharing.device_plugins().to_owned(),
        pod_resources: socket.map(ToOwned::to_owned),
        policy: sharing.policy(),
    };
    let (manager, report, told) = Manager::new(&plugin, Arc::clone(&gate), answer);
    tokio::spawn(manager.run());
    let rules = Rules {
        strategy: settings.labels().options(Timestamp::now()).mig_strategy,
        deadline: sharing.deadline(),
        follows_node: settings.cluster().is_some_and(ClusterSettings::follows),
    };
    let giver = Embedded::new(Arc::clone(&gate), report, told, rules);
    Some((Box::new(giver), gate))
}
