//! The agent's connections to the cluster: its Node, its NodeFeature, or neither; and the sink for labels.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use octavo_agent::cluster::NodeClient;
use octavo_agent::dra::claim_specs::ClaimSpecs;
use octavo_agent::dra::claim_store::ClaimStore;
use octavo_agent::dra::plugin::ClaimPlugin;
use octavo_agent::dra::{ClaimBackend, DraPublisher};
use octavo_agent::draining::DrainController;
use octavo_agent::feature_file::FeatureFile;
use octavo_agent::metrics::claims::ClaimMetrics;
use octavo_agent::metrics::usage::UsageMetrics;
use octavo_agent::node_sink::{NodeFeatureSink, NodeSink, ONESHOT_TIMEOUT};
use octavo_agent::partitioning::Partitioning;
use octavo_agent::settings::{
    AgentSettings, ClusterSettings, DeviceProvider, LabelSink as LabelTarget, PublishingSettings,
    SharingSettings,
};
use octavo_agent::sharing::SharingBackend;
use octavo_agent::sharing::hand_off::{HandOffBackend, HandOffSettings};
use octavo_agent::sharing::machine::HostPaths;
use octavo_agent::sink::{LabelSink, StdoutSink};
use octavo_agent::usage::{ClaimAllocations, UsageChannels, UsageObserver};
use octavo_dra::slices::pool_name;
use octavo_hardware::DriverHandle;
use octavo_kube::claim_status::ClaimStatusWriter;
use octavo_kube::client::{self, Client, Program};
use octavo_kube::events::PodEventsHandle;
use octavo_kube::evict::{EvictionHandle, Evictor};
use octavo_kube::node::{NodeController, NodeHandle};
use octavo_kube::node_feature::{NodeFeatureHandle, NodeFeatureWriter};
use octavo_kube::nvidia_plugin::DevicePluginWatcher;
use octavo_kube::resource_claims::ResourceClaimClient;
use octavo_kube::resource_slices::{ResourceSlicePublisher, ResourceSlicesHandle};
use octavo_kubelet::dra::Settings;
use octavo_node::mig_strategy::MigStrategy;
use octavo_node::node_object::DesiredNode;
use octavo_node::sharing::hand_off::rollout::Limits;
use octavo_toolkit::telemetry::LogLevelHandle;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::sharing_backend;

/// Handles of the tasks that talk to the API server.
pub(crate) struct ClusterHandles {
    client: Client,
    node_handle: Option<Arc<NodeHandle>>,
    feature_handle: Option<NodeFeatureHandle>,
    eviction_handle: Option<EvictionHandle>,
    dra: Option<DraHandles>,
    /// Handle for events on pods.
    pub(crate) pods: Option<PodEventsHandle>,
}

/// Access to the devices of claims and to the claims.
#[derive(Clone)]
struct DraHandles {
    slices: Arc<ResourceSlicesHandle>,
    /// Not delayed by the agent's other requests, because a kubelet waits for the answer.
    claims: ResourceClaimClient,
}

/// Parts of resource claims that the agent's loop and its metrics use.
pub(crate) struct ClaimParts {
    /// Publication of the devices that claims can be allocated.
    pub(crate) publisher: DraPublisher,
    /// Metrics of claims.
    pub(crate) metrics: ClaimMetrics,
    /// Status of the allocation to claims.
    pub(crate) backend: Box<dyn SharingBackend>,
}

/// The sink for labels, and the Node.
type SinkAndNode = (Box<dyn LabelSink>, Option<NodeClient>);

/// Starts the tasks that talk to the API server. The server may be unreachable, but unreadable credentials are an
/// error.
pub(crate) async fn connect(
    settings: &ClusterSettings,
    sharing: &SharingSettings,
    tasks: &mut JoinSet<()>,
) -> Result<ClusterHandles, Box<dyn Error>> {
    let client = client::connect_agent(settings.kubeconfig.as_deref()).await?;
    let node_handle = settings.watches_node.then(|| {
        let (node_handle, controller) = NodeController::new(client.clone(), &settings.node);
        tasks.spawn(controller.run());
        Arc::new(node_handle)
    });
    // An annotation of the Node can enable drains at any time.
    let eviction_handle = settings.watches_node.then(|| {
        let (eviction_handle, evictor) = Evictor::new(client.clone(), &settings.node);
        tasks.spawn(evictor.run());
        eviction_handle
    });
    let pods = sharing.usage.pod_events.then(|| {
        let (pods, recorder) = PodEventsHandle::new(client.clone(), &settings.node);
        tasks.spawn(recorder.run());
        pods
    });
    let feature_handle = settings.writes_node_feature.then(|| {
        let (feature_handle, writer) = NodeFeatureWriter::new(client.clone(), &settings.node);
        tasks.spawn(writer.run());
        feature_handle
    });
    let mut dra = None;
    if sharing.dra {
        let (slices, publisher) = ResourceSlicePublisher::new(client.clone(), &settings.node);
        tasks.spawn(publisher.run());
        let reader = client::connect(settings.kubeconfig.as_deref(), Program::Agent).await?;
        let claims = ResourceClaimClient::new(reader, octavo_dra::DRIVER);
        dra = Some(DraHandles { slices: Arc::new(slices), claims });
    }
    Ok(ClusterHandles { client, node_handle, feature_handle, eviction_handle, dra, pods })
}

/// Builds the sink for labels, and the Node if it is watched.
pub(crate) fn outputs(
    settings: &AgentSettings,
    node: Option<ClusterHandles>,
    level: LogLevelHandle,
    once: bool,
) -> Result<SinkAndNode, Box<dyn Error>> {
    let (node_handle, feature_handle, eviction_handle) = node
        .map(|node| (node.node_handle, node.feature_handle, node.eviction_handle))
        .unwrap_or_default();
    let cluster = settings.cluster.as_ref().zip(node_handle.clone());
    let cluster = cluster.map(|(settings, node_handle)| {
        // With `once`, the agent would exit before any pod is gone.
        let draining = eviction_handle.filter(|_| !once).map(|eviction_handle| {
            DrainController::new(settings.drain, settings.compat, eviction_handle)
        });
        NodeClient::new(node_handle, settings, level, once).with_draining(draining)
    });
    let publishing = &settings.publishing;
    let sink: Box<dyn LabelSink> = match (publishing.label_sink, node_handle, feature_handle) {
        (LabelTarget::Stdout, ..) => Box::new(StdoutSink::new(io::stdout())),
        (LabelTarget::File, ..) => Box::new(FeatureFile::new(
            publishing.feature_file.clone(),
            publishing.feature_file_expiry,
        )),
        (LabelTarget::Node, Some(node_handle), _) => {
            Box::new(NodeSink { node: node_handle, waits: once })
        }
        (LabelTarget::NodeFeature, _, Some(feature_handle)) => {
            Box::new(NodeFeatureSink { feature: feature_handle, waits: once })
        }
        (LabelTarget::Node | LabelTarget::NodeFeature, ..) => {
            return Err("no cluster access is configured".into());
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
        DeviceProvider::Auto => false,
        DeviceProvider::HandOff => true,
        DeviceProvider::Off | DeviceProvider::Embedded => return Ok(None),
    };
    let cluster = settings.cluster.as_ref().filter(|cluster| cluster.watches_node);
    let Some((cluster, node)) = cluster.zip(node) else {
        return if is_certain {
            Err("--sharing hand-off requires --follow-node or --label-sink node".into())
        } else {
            Ok(None)
        };
    };
    let map = sharing.plugin_config_map.as_ref();
    let handle = map.map(|map| {
        let object = (map.namespace.as_str(), map.name.as_str());
        let (handle, watcher) =
            DevicePluginWatcher::new(node.client.clone(), object, &cluster.node);
        tasks.spawn(watcher.run());
        handle
    });
    let hand_off_settings = HandOffSettings {
        config_map: map.map(ToString::to_string),
        limits: Limits { deadline: sharing.sharing_deadline, settle: sharing.plugin_config_delay },
        strategy,
        is_certain,
    };
    Ok(Some(Box::new(HandOffBackend::new(hand_off_settings, handle))))
}

/// Starts the kubelet plugin for resource claims if the settings enable it, and connects it to the partitioning. Also
/// builds the other parts of resource claims.
pub(crate) fn dra(
    settings: &AgentSettings,
    node: Option<&ClusterHandles>,
    hardware: &DriverHandle,
    partitioning: Option<Partitioning>,
    tasks: &mut JoinSet<()>,
) -> (Option<Partitioning>, Option<ClaimParts>) {
    let handles = node.and_then(|node| Some((node.client.clone(), node.dra.clone()?)));
    let enabled = settings.cluster.as_ref().zip(handles);
    let (partitioning, (cluster, (client, DraHandles { slices, claims }))) =
        match (partitioning, enabled) {
            (Some(partitioning), Some(enabled)) => (partitioning, enabled),
            (partitioning, _) => return (partitioning, None),
        };
    let store = Arc::new(ClaimStore::new(pool_name(&cluster.node), settings.dra.release));
    let partitioning = partitioning.with_claims(Arc::clone(&store));
    let paths = HostPaths {
        proc: settings.engine.proc_root.clone(),
        dev: PathBuf::from("/dev"),
        cdi: settings.sharing.cdi_dir.clone(),
    };
    tasks.spawn(ClaimStatusWriter::new(client, store.statuses()).run());
    let metrics = ClaimMetrics::default();
    let plugin = ClaimPlugin::new(
        (Arc::clone(&store), metrics.clone()),
        claims,
        hardware.clone(),
        partitioning.usage_probe(),
        ClaimSpecs::new(paths),
    );
    let kubelet = &settings.dra.kubelet_dir;
    tasks.spawn(plugin.run(Settings {
        driver: octavo_dra::DRIVER.to_owned(),
        registry: kubelet.join("plugins_registry"),
        plugins: kubelet.join("plugins"),
    }));
    let sys_root = settings.hardware.sys_root.clone();
    let xids = sharing_backend::xids(settings);
    let backend = Box::new(ClaimBackend::new(Arc::clone(&slices), Arc::clone(&store)));
    let publisher = DraPublisher::new(slices, cluster.node.clone(), sys_root, store, xids);
    (Some(partitioning), Some(ClaimParts { publisher, metrics, backend }))
}

/// Starts observing usage if the settings enable it.
pub(crate) fn observe(
    settings: &AgentSettings,
    hardware: &DriverHandle,
    (pods, claims): (Option<PodEventsHandle>, Option<Arc<ClaimStore>>),
    tasks: &mut JoinSet<()>,
) -> Option<UsageChannels> {
    let sharing = &settings.sharing;
    let interval = sharing.usage.usage_interval?;
    if sharing.usage.pod_events && pods.is_none() {
        warn!("pod events are disabled: no cluster access is configured");
    }
    let engine = settings.engine.clone();
    let (observer, views) = UsageObserver::new(hardware.clone(), engine, interval, pods);
    let claims = claims.map(|claims| claims as Arc<dyn ClaimAllocations>);
    tasks.spawn(observer.with_claims(claims).run());
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
async fn clear_node_fields(node_handle: &NodeHandle) {
    let mut report = node_handle.task.observed.clone();
    // The awaited value is borrowed while it is held, which would block updates.
    if report.wait_for(|report| report.is_read).await.is_err() {
        return;
    }
    let uid = node_handle.view.borrow().as_ref().map(|view| view.uid.clone());
    // Without a Node there is nothing to remove.
    if uid.is_none() {
        return;
    }
    let nothing = DesiredNode { uid, ..DesiredNode::default() };
    node_handle.task.set(nothing);
    node_handle.wait_until_applied().await;
}

/// Removes everything that an agent with these settings has written.
pub(crate) async fn clean_up(
    publishing: &PublishingSettings,
    node: Option<ClusterHandles>,
) -> Result<(), Box<dyn Error>> {
    if publishing.label_sink == LabelTarget::File {
        let path = publishing.feature_file.display();
        match fs::remove_file(&publishing.feature_file) {
            Ok(()) => info!(%path, "file removed"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(format!("cannot remove {path}: {error}").into());
            }
        }
    }
    let Some(node) = node else { return Ok(()) };
    if let Some(node_handle) = node.node_handle {
        if timeout(ONESHOT_TIMEOUT, clear_node_fields(&node_handle)).await.is_err() {
            return Err(format!(
                "fields of this agent are still on the Node: {}",
                node_handle.error()
            )
            .into());
        }
        info!("all fields of this agent removed from the Node");
    }
    if let Some(DraHandles { slices, .. }) = node.dra {
        slices.set(Vec::new());
        if timeout(ONESHOT_TIMEOUT, slices.wait_until_published()).await.is_err() {
            let error = slices.error().unwrap_or_default();
            return Err(format!("the ResourceSlices still exist: {error}").into());
        }
        info!("ResourceSlices of this agent removed");
    }
    if let Some(feature_handle) = node.feature_handle {
        feature_handle.delete();
        if timeout(ONESHOT_TIMEOUT, feature_handle.wait_until_applied()).await.is_err() {
            let error = feature_handle.error().unwrap_or_default();
            return Err(format!("the NodeFeature still exists: {error}").into());
        }
        info!("NodeFeature of this agent removed");
    }
    Ok(())
}
