//! Tasks that watch and write the cluster; each is optional.
//!
//! They use a separate runtime and read the fleet like other readers, so the number of readers does not delay the
//! cluster's watches.

use std::sync::Arc;

use octavo_access::access::Guard;
use octavo_access::creation::ProfileCreator;
use octavo_files::config_files::profiles::HardwareProfileFile;
use octavo_kube::client::Program;
use octavo_kube::cluster::{ClusterWatcher, Followed};
use octavo_kube::hardware_profiles::{ProfileWatcher, ProfileWriter};
use octavo_kube::nvidia_plugin_config::PluginConfigMap;
use octavo_kube::pod_annotations::PodAnnotationClient;
use octavo_settings::kubernetes::ConfigMapName;
use octavo_store::availability::Counter;
use octavo_store::profiles::Profiles;
use octavo_store::view::View;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::info;

use super::StartError;
use crate::plugin_configs::PluginConfigController;
use crate::pod_types::PodTypeWriter;
use crate::settings::AggregatorSettings;

/// The tasks, and the data for their readers.
#[derive(Debug)]
pub(super) struct ClusterTasks {
    availability: Counter,
    watcher: Option<ClusterWatcher>,
    profiles: Option<ProfileWatcher>,
    plugin_configs: Option<PluginConfigController>,
    pod_types: Option<PodTypeWriter>,
}

impl ClusterTasks {
    /// Creates the tasks that `settings` enable, without sending a request.
    pub(super) fn connect(
        runtime: &Runtime,
        settings: &AggregatorSettings,
        view: View,
    ) -> Result<Self, StartError> {
        let follower = cluster_watcher(runtime, settings)?;
        let profiles = profile_watcher(runtime, settings)?;
        let book = settings.fleet.profiles.as_deref();
        let book = book.map(HardwareProfileFile::open).transpose()?;
        let sights = follower.as_ref().map(ClusterWatcher::followed);
        let known = profiles.as_ref().map(ProfileWatcher::known);
        let view = view.with_profiles(Profiles::new(known, sights.clone(), book));
        let view = view.with_cluster(sights.clone());
        Ok(Self {
            availability: Counter::new(view.clone(), sights),
            plugin_configs: plugin_configs(runtime, settings, view.clone())?,
            pod_types: pod_types(runtime, settings, view)?,
            watcher: follower,
            profiles,
        })
    }

    /// The availability counter, which also contains the view of the fleet.
    pub(super) fn availability(&self) -> Counter {
        self.availability.clone()
    }

    /// The watched nodes and pods.
    pub(super) fn followed(&self) -> Option<watch::Receiver<Arc<Followed>>> {
        self.watcher.as_ref().map(ClusterWatcher::followed)
    }

    /// Runs the tasks until `stopped` is true or its sender is dropped, or until a task panics.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) -> Result<(), JoinError> {
        let mut tasks = JoinSet::new();
        if let Some(keeper) = self.plugin_configs {
            tasks.spawn(keeper.run());
        }
        if let Some(follower) = self.watcher {
            tasks.spawn(follower.run());
        }
        if let Some(profiles) = self.profiles {
            tasks.spawn(profiles.run());
        }
        tasks.spawn(self.availability.watch_holders());
        let mut writing = JoinSet::new();
        if let Some(writer) = self.pod_types {
            writing.spawn(writer.run(stopped.clone()));
        }
        tokio::select! {
            _stopped = stopped.wait_for(|stopped| *stopped) => {}
            error = first_panic(&mut tasks) => return Err(error),
            error = first_panic(&mut writing) => return Err(error),
        }
        tasks.shutdown().await;
        // The writer releases its Lease, within a deadline.
        while let Some(ended) = writing.join_next().await {
            ended?;
        }
        Ok(())
    }
}

/// Resolves when one of `tasks` panics. Tasks may end before the program does.
pub(super) async fn first_panic<T: 'static>(tasks: &mut JoinSet<T>) -> JoinError {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            return error;
        }
    }
    std::future::pending().await
}

/// Creates the watcher of nodes and pods.
fn cluster_watcher(
    runtime: &Runtime,
    settings: &AggregatorSettings,
) -> Result<Option<ClusterWatcher>, StartError> {
    if !settings.cluster.follow_cluster {
        return Ok(None);
    }
    let connect = ClusterWatcher::connect(settings.kubernetes.kubeconfig.as_deref());
    let follower = runtime.block_on(connect).map_err(StartError::Cluster)?;
    info!("the nodes and pods of the cluster are followed");
    Ok(Some(follower))
}

/// Creates the watcher of hardware profiles, which runs whenever the cluster is watched.
fn profile_watcher(
    runtime: &Runtime,
    settings: &AggregatorSettings,
) -> Result<Option<ProfileWatcher>, StartError> {
    if !settings.cluster.follow_cluster {
        return Ok(None);
    }
    let connect = ProfileWatcher::connect(settings.kubernetes.kubeconfig.as_deref());
    let follower = runtime.block_on(connect).map_err(StartError::Cluster)?;
    Ok(Some(follower))
}

/// Creates the creator of hardware profiles for users whom `guard` authorizes.
pub(super) fn profile_creator(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    guard: &Guard,
) -> Result<Option<ProfileCreator>, StartError> {
    if !settings.cluster.create_profiles {
        return Ok(None);
    }
    let kubeconfig = settings.kubernetes.kubeconfig.as_deref();
    let connect = ProfileWriter::connect(kubeconfig, Program::Aggregator);
    let writer = runtime.block_on(connect).map_err(StartError::Cluster)?;
    info!("hardware profiles are made in the cluster, for people who may make them there");
    Ok(Some(ProfileCreator::new(writer, guard.clone())))
}

/// Creates the controller of the `ConfigMap` of NVIDIA's device plugin.
fn plugin_configs(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    view: View,
) -> Result<Option<PluginConfigController>, StartError> {
    let Some(ConfigMapName { namespace, name }) = &settings.plugin_config_map else {
        return Ok(None);
    };
    let kubeconfig = settings.kubernetes.kubeconfig.as_deref();
    let connect = PluginConfigMap::connect(kubeconfig, (namespace, name));
    let shelf = runtime
        .block_on(connect)
        .map_err(StartError::PluginConfigs)?;
    Ok(Some(PluginConfigController::new(shelf, view)))
}

/// Creates the writer of pod annotations.
fn pod_types(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    view: View,
) -> Result<Option<PodTypeWriter>, StartError> {
    if !settings.workload.annotate_pods {
        return Ok(None);
    }
    let connect = PodAnnotationClient::connect(settings.kubernetes.kubeconfig.as_deref());
    let pods = runtime.block_on(connect).map_err(StartError::PodTypes)?;
    Ok(Some(PodTypeWriter::new(pods, view, &settings.workload)))
}
