//! What the aggregator does with the cluster around it, each part of it only where that is wanted.
//!
//! All of it asks the API server from a runtime of its own, and reads the fleet as other readers do: however many read, what is known of
//! the cluster is not late for that.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::watch;
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
use crate::k8s::cluster::{Followed, Follower};
use crate::k8s::hardware_profiles::{ProfileFollower, Writer as ProfileWriter};
use crate::k8s::plugin_config::Shelf;
use crate::k8s::pod_types::Pods;

/// All of it, to be run, and what is read of it.
#[derive(Debug)]
pub(super) struct Cluster {
    availability: Counter,
    follower: Option<Follower>,
    profiles: Option<ProfileFollower>,
    keeper: Option<Keeper>,
    writer: Option<Writer>,
}

impl Cluster {
    /// Of what `settings` want. Nothing is asked yet.
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

    /// What counts what is to be had; it has the view of the fleet too.
    pub(super) fn availability(&self) -> Counter {
        self.availability.clone()
    }

    /// The nodes and pods that are followed.
    pub(super) fn followed(&self) -> Option<watch::Receiver<Arc<Followed>>> {
        self.follower.as_ref().map(Follower::followed)
    }

    /// Runs it until `stopped` is true or gone.
    pub(super) async fn run(self, mut stopped: watch::Receiver<bool>) {
        // They end with this runtime.
        drop(self.keeper.map(|keeper| tokio::spawn(keeper.run())));
        drop(self.follower.map(|follower| tokio::spawn(follower.run())));
        drop(tokio::spawn(self.availability.watch_holders()));
        drop(self.profiles.map(|profiles| tokio::spawn(profiles.run())));
        let writing = self
            .writer
            .map(|writer| tokio::spawn(writer.run(stopped.clone())));
        drop(stopped.wait_for(|stopped| *stopped).await);
        // It has a Lease to give back, and a deadline for that.
        if let Some(writing) = writing {
            let _ended = writing.await;
        }
    }
}

/// What follows nodes and pods.
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

/// What follows hardware profiles, which is done wherever the cluster is followed.
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

/// What makes hardware profiles, for whom `guard` lets.
pub(super) fn maker(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    guard: &Guard,
) -> Result<Option<Maker>, StartError> {
    let wanted = settings.cluster().filter(|cluster| cluster.create_profiles);
    let Some(cluster) = wanted else {
        return Ok(None);
    };
    let connect = ProfileWriter::connect(cluster.kubeconfig.as_deref());
    let writer = runtime.block_on(connect).map_err(StartError::Cluster)?;
    info!("hardware profiles are made in the cluster, for people who may make them there");
    Ok(Some(Maker::new(writer, guard.clone())))
}

/// What keeps the `ConfigMap` of NVIDIA's device plugin.
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

/// What tells pods which type they were given.
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
