//! Tasks that watch and write the cluster; each is optional.
//!
//! They use a separate runtime and read the fleet like other readers, so the number of readers does not delay the
//! cluster's watches.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::info;

use super::StartError;
use crate::aggregator::access::Guard;
use crate::aggregator::availability::Counter;
use crate::aggregator::creation::Maker;
use crate::aggregator::plugin_configs::Keeper;
use crate::aggregator::pod_types::Writer;
use crate::aggregator::profiles::Profiles;
use crate::aggregator::view::View;
use crate::book::profiles::ProfileBook;
use crate::config::aggregator::{AggregatorSettings, ClusterSettings, PluginConfigs, PodTypes};
use crate::config::kubernetes::ConfigMapName;
use crate::k8s::client::Program;
use crate::k8s::cluster::{Followed, Follower};
use crate::k8s::hardware_profiles::{ProfileFollower, Writer as ProfileWriter};
use crate::k8s::plugin_config::Shelf;
use crate::k8s::pod_types::Pods;

/// The tasks, and the data for their readers.
#[derive(Debug)]
pub(super) struct Cluster {
    availability: Counter,
    follower: Option<Follower>,
    profiles: Option<ProfileFollower>,
    keeper: Option<Keeper>,
    writer: Option<Writer>,
}

impl Cluster {
    /// Creates the tasks that `settings` enable, without sending a request.
    pub(super) fn connect(
        runtime: &Runtime,
        settings: &AggregatorSettings,
        view: View,
    ) -> Result<Self, StartError> {
        let follower = follower(runtime, settings.cluster())?;
        let profiles = profile_follower(runtime, settings.cluster())?;
        let book = settings.profiles().map(ProfileBook::open).transpose()?;
        let sights = follower.as_ref().map(Follower::followed);
        let known = profiles.as_ref().map(ProfileFollower::known);
        let view = view.with_profiles(Profiles::new(known, sights.clone(), book));
        let view = view.with_cluster(sights.clone());
        Ok(Self {
            availability: Counter::new(view.clone(), sights),
            keeper: plugin_configs(runtime, settings.plugin_configs(), view.clone())?,
            writer: pod_types(runtime, settings.pod_types(), view)?,
            follower,
            profiles,
        })
    }

    /// The availability counter, which also contains the view of the fleet.
    pub(super) fn availability(&self) -> Counter {
        self.availability.clone()
    }

    /// The watched nodes and pods.
    pub(super) fn followed(&self) -> Option<watch::Receiver<Arc<Followed>>> {
        self.follower.as_ref().map(Follower::followed)
    }

    /// Runs the tasks until `stopped` is true or its sender is dropped, or until a task panics.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) -> Result<(), JoinError> {
        let mut tasks = JoinSet::new();
        if let Some(keeper) = self.keeper {
            tasks.spawn(keeper.run());
        }
        if let Some(follower) = self.follower {
            tasks.spawn(follower.run());
        }
        if let Some(profiles) = self.profiles {
            tasks.spawn(profiles.run());
        }
        tasks.spawn(self.availability.watch_holders());
        let mut writing = JoinSet::new();
        if let Some(writer) = self.writer {
            writing.spawn(writer.run(stopped.clone()));
        }
        tokio::select! {
            _stopped = stopped.wait_for(|stopped| *stopped) => {}
            error = panicked(&mut tasks) => return Err(error),
            error = panicked(&mut writing) => return Err(error),
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
pub(super) async fn panicked<T: 'static>(tasks: &mut JoinSet<T>) -> JoinError {
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
fn follower(
    runtime: &Runtime,
    settings: Option<&ClusterSettings>,
) -> Result<Option<Follower>, StartError> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let connect = Follower::connect(settings.kubeconfig.as_deref());
    let follower = runtime.block_on(connect).map_err(StartError::Cluster)?;
    info!("the nodes and pods of the cluster are followed");
    Ok(Some(follower))
}

/// Creates the watcher of hardware profiles, which runs whenever the cluster is watched.
fn profile_follower(
    runtime: &Runtime,
    settings: Option<&ClusterSettings>,
) -> Result<Option<ProfileFollower>, StartError> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let connect = ProfileFollower::connect(settings.kubeconfig.as_deref());
    let follower = runtime.block_on(connect).map_err(StartError::Cluster)?;
    Ok(Some(follower))
}

/// Creates the creator of hardware profiles for users whom `guard` authorizes.
pub(super) fn maker(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    guard: &Guard,
) -> Result<Option<Maker>, StartError> {
    let wanted = settings.cluster().filter(|cluster| cluster.create_profiles);
    let Some(cluster) = wanted else {
        return Ok(None);
    };
    let connect = ProfileWriter::connect(cluster.kubeconfig.as_deref(), Program::Aggregator);
    let writer = runtime.block_on(connect).map_err(StartError::Cluster)?;
    info!("hardware profiles are made in the cluster, for people who may make them there");
    Ok(Some(Maker::new(writer, guard.clone())))
}

/// Creates the controller of the `ConfigMap` of NVIDIA's device plugin.
fn plugin_configs(
    runtime: &Runtime,
    settings: Option<&PluginConfigs>,
    view: View,
) -> Result<Option<Keeper>, StartError> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let ConfigMapName { namespace, name } = &settings.config_map;
    let connect = Shelf::connect(settings.kubeconfig.as_deref(), (namespace, name));
    let shelf = runtime
        .block_on(connect)
        .map_err(StartError::PluginConfigs)?;
    Ok(Some(Keeper::new(shelf, view)))
}

/// Creates the writer of pod annotations.
fn pod_types(
    runtime: &Runtime,
    settings: Option<&PodTypes>,
    view: View,
) -> Result<Option<Writer>, StartError> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let connect = Pods::connect(settings.kubeconfig.as_deref());
    let pods = runtime.block_on(connect).map_err(StartError::PodTypes)?;
    Ok(Some(Writer::new(pods, view, settings)))
}
