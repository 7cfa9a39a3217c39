//! The agent's connections to the cluster: its Node, its NodeFeature, or neither; and the sink for labels.

use std::error::Error;
use std::sync::Arc;
use std::{fs, io};

use octavo_agent::cluster::NodeClient;
use octavo_agent::draining::DrainController;
use octavo_agent::feature_file::FeatureFile;
use octavo_agent::metrics::usage::UsageMetrics;
use octavo_agent::node_sink::{NodeFeatureSink, NodeSink, ONESHOT_TIMEOUT};
use octavo_agent::settings::{
    AgentSettings, ClusterSettings, LabelSink as Target, PublishingSettings,
    SharingMode as GiverName, UsageSettings,
};
use octavo_agent::sharing::SharingBackend;
use octavo_agent::sharing::hand_off::{HandOffBackend, HandOffSettings};
use octavo_agent::sink::{LabelSink, StdoutSink};
use octavo_agent::usage::{self, UsageChannels, UsageObserver};
use octavo_hardware::Handle;
use octavo_kube::client::{self, Client};
use octavo_kube::events::PodEventsHandle;
use octavo_kube::evict::{EvictionHandle, Evictor};
use octavo_kube::node::{NodeController, NodeHandle};
use octavo_kube::node_feature::{NodeFeatureHandle, NodeFeatureWriter};
use octavo_kube::nvidia_plugin::DevicePluginWatcher;
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::node::DesiredNode;
use octavo_node::sharing::hand_off::rollout::Limits;
use octavo_toolkit::telemetry::LogLevelHandle;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

/// Handles of the tasks that talk to the API server.
pub(crate) struct ClusterHandles {
    client: Client,
    link: Option<Arc<NodeHandle>>,
    post: Option<NodeFeatureHandle>,
    door: Option<EvictionHandle>,
    /// Handle for events on pods.
    pub(crate) pods: Option<PodEventsHandle>,
}

/// The sink for labels, and the Node.
type SinkAndNode = (Box<dyn LabelSink>, Option<NodeClient>);

/// Starts the tasks that talk to the API server. The server may be unreachable, but unreadable credentials are an
/// error.
pub(crate) async fn connect(
    settings: &ClusterSettings,
    usage: UsageSettings,
    tasks: &mut JoinSet<()>,
) -> Result<ClusterHandles, Box<dyn Error>> {
    let client = client::connect_agent(settings.kubeconfig.as_deref()).await?;
    let link = settings.watches_node.then(|| {
        let (link, keeper) = NodeController::new(client.clone(), &settings.node);
        tasks.spawn(keeper.run());
        Arc::new(link)
    });
    let door = settings.drain.map(|_| {
        let (door, usher) = Evictor::new(client.clone(), &settings.node);
        tasks.spawn(usher.run());
        door
    });
    let pods = usage.pod_events.then(|| {
        let (pods, herald) = PodEventsHandle::new(client.clone(), &settings.node);
        tasks.spawn(herald.run());
        pods
    });
    let post = settings.writes_node_feature.then(|| {
        let (post, publisher) = NodeFeatureWriter::new(client.clone(), &settings.node);
        tasks.spawn(publisher.run());
        post
    });
    Ok(ClusterHandles {
        client,
        link,
        post,
        door,
        pods,
    })
}

/// Builds the sink for labels, and the Node if it is watched.
pub(crate) fn outputs(
    settings: &AgentSettings,
    node: Option<ClusterHandles>,
    level: LogLevelHandle,
    once: bool,
) -> Result<SinkAndNode, Box<dyn Error>> {
    let (link, post, door) = node
        .map(|node| (node.link, node.post, node.door))
        .unwrap_or_default();
    let cluster = settings.cluster.as_ref().zip(link.clone());
    let cluster = cluster.map(|(settings, link)| {
        // With `once`, the agent would exit before any pod is gone.
        let door = door.filter(|_| !once).zip(settings.drain);
        let draining =
            door.map(|(door, policy)| DrainController::new(policy, settings.compat, door));
        NodeClient::new(link, settings, level, once).with_draining(draining)
    });
    let publishing = &settings.publishing;
    let sink: Box<dyn LabelSink> = match (publishing.label_sink, link, post) {
        (Target::Stdout, ..) => Box::new(StdoutSink::new(io::stdout())),
        (Target::File, ..) => Box::new(FeatureFile::new(
            publishing.feature_file.clone(),
            publishing.feature_file_expiry,
        )),
        (Target::Node, Some(link), _) => Box::new(NodeSink::new(link, once)),
        (Target::NodeFeature, _, Some(post)) => Box::new(NodeFeatureSink::new(post, once)),
        (Target::Node | Target::NodeFeature, ..) => {
            return Err("nobody speaks to the cluster".into());
        }
    };
    Ok((sink, cluster))
}

/// Builds the delegation to NVIDIA's plugin if the settings select it; it requires a watched Node.
pub(crate) fn hand_off(
    settings: &AgentSettings,
    node: Option<&ClusterHandles>,
    strategy: MigStrategy,
    tasks: &mut JoinSet<()>,
) -> Result<Option<Box<dyn SharingBackend>>, Box<dyn Error>> {
    let sharing = &settings.sharing;
    let is_certain = match sharing.mode {
        GiverName::Auto => false,
        GiverName::HandOff => true,
        GiverName::Off | GiverName::Embedded => return Ok(None),
    };
    let cluster = settings
        .cluster
        .as_ref()
        .filter(|cluster| cluster.watches_node);
    let Some((cluster, node)) = cluster.zip(node) else {
        return if is_certain {
            Err("--sharing hand-off needs --follow-node or --label-sink node".into())
        } else {
            Ok(None)
        };
    };
    let map = sharing.plugin_config_map.as_ref();
    let watch = map.map(|map| {
        let place = (map.namespace.as_str(), map.name.as_str());
        let (watch, scout) = DevicePluginWatcher::new(node.client.clone(), place, &cluster.node);
        tasks.spawn(scout.run());
        watch
    });
    let terms = HandOffSettings {
        config_map: map.map(ToString::to_string),
        limits: Limits {
            deadline: sharing.sharing_deadline,
            settle: sharing.plugin_config_delay,
        },
        strategy,
        is_certain,
    };
    Ok(Some(Box::new(HandOffBackend::new(terms, watch))))
}

/// Starts observing usage if the settings enable it.
pub(crate) fn observe(
    settings: &AgentSettings,
    hardware: &Handle,
    pods: Option<PodEventsHandle>,
    tasks: &mut JoinSet<()>,
) -> Option<UsageChannels> {
    let sharing = &settings.sharing;
    let interval = sharing.usage.usage_interval?;
    if sharing.usage.pod_events && pods.is_none() {
        warn!("pods are told nothing in events: nobody speaks to the cluster");
    }
    let folder = sharing.device_plugins.clone();
    let looking = usage::UsageObserverSettings::new(interval, &settings.engine, folder);
    let (observer, views) = UsageObserver::new(hardware.clone(), looking, pods);
    tasks.spawn(observer.run());
    Some(views)
}

/// Builds the metrics of usage, in dcgm-exporter's format too if the settings enable it.
pub(crate) fn usage_metrics(settings: &AgentSettings, views: &UsageChannels) -> UsageMetrics {
    let host = settings.node.as_ref().map(ToString::to_string);
    let dcgm = settings.sharing.usage.dcgm_metrics;
    let host = dcgm.then(|| host.unwrap_or_default());
    UsageMetrics::new(views.seen.clone(), host)
}

/// Removes the agent's fields from the Node, if it exists.
async fn clear_node_fields(link: &NodeHandle) {
    let mut report = link.report.clone();
    // The awaited value is borrowed while it is held, which would block updates.
    if report.wait_for(|report| report.is_read).await.is_err() {
        return;
    }
    let uid = link.view.borrow().as_ref().map(|view| view.uid.clone());
    // Without a Node there is nothing to remove.
    if uid.is_none() {
        return;
    }
    let nothing = DesiredNode {
        uid,
        ..DesiredNode::default()
    };
    link.update_desired(|wanted| *wanted = nothing);
    link.wait_until_applied().await;
}

/// Removes everything that an agent with these settings has written.
pub(crate) async fn clean_up(
    publishing: &PublishingSettings,
    node: Option<ClusterHandles>,
) -> Result<(), Box<dyn Error>> {
    if publishing.label_sink == Target::File {
        let path = publishing.feature_file.display();
        match fs::remove_file(&publishing.feature_file) {
            Ok(()) => info!("{path} is removed"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(format!("cannot remove {path}: {error}").into());
            }
        }
    }
    let Some(node) = node else { return Ok(()) };
    if let Some(link) = node.link {
        if timeout(ONESHOT_TIMEOUT, clear_node_fields(&link))
            .await
            .is_err()
        {
            return Err(format!("the Node still has what was written: {}", link.trouble()).into());
        }
        info!("the Node has nothing of ours any more");
    }
    if let Some(post) = node.post {
        post.delete();
        if timeout(ONESHOT_TIMEOUT, post.wait_until_applied())
            .await
            .is_err()
        {
            let trouble = post.said().trouble.unwrap_or_default();
            return Err(format!("the NodeFeature is still there: {trouble}").into());
        }
        info!("there is no NodeFeature of ours any more");
    }
    Ok(())
}
