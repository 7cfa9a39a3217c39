//! Tasks that watch and write the cluster; each is optional.
//!
//! They use a separate runtime and read the fleet like other readers, so the number of readers does not delay the
//! cluster's watches.

use std::sync::Arc;

use octavo_access::audit::{AuditLog, AuditQueue};
use octavo_access::creation::ProfileCreator;
use octavo_access::guard::Guard;
use octavo_files::config_files::profiles::HardwareProfileFile;
use octavo_kube::client::connect_policies;
use octavo_kube::cluster::{ClusterWatcher, WatchedCluster};
use octavo_kube::hardware_profiles::{ProfileWatcher, ProfileWriter};
use octavo_kube::nvidia_plugin_config::PluginConfigMap;
use octavo_kube::pod_annotations::PodAnnotationClient;
use octavo_kube::policies::{PolicyClient, PolicyRequests, PolicyWatcher};
use octavo_settings::kubernetes::ConfigMapName;
use octavo_store::availability::Counter;
use octavo_store::ledger::LedgerReader;
use octavo_store::policies::PolicyView;
use octavo_store::profiles::Profiles;
use octavo_store::view::FleetView;
use octavo_toolkit::tasks::first_panic;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::info;

use super::{StartError, kube_client};
use crate::budgets::{BudgetMetrics, BudgetMonitor};
use crate::ledger::{LedgerMetrics, LedgerRecorder};
use crate::opencost::{OpenCostMetrics, OpenCostMonitor};
use crate::plugin_configs::PluginConfigController;
use crate::pod_types::PodTypeWriter;
use crate::policies::PolicyController;
use crate::settings::AggregatorSettings;

/// The tasks, and the data for their readers.
#[derive(Debug)]
pub(super) struct ClusterTasks {
    availability: Counter,
    watcher: Option<ClusterWatcher>,
    profiles: Option<ProfileWatcher>,
    plugin_configs: Option<PluginConfigController>,
    pod_types: Option<PodTypeWriter>,
    policies: Option<PolicyTasks>,
    ledger: Option<(LedgerRecorder, AuditQueue)>,
    budgets: Option<BudgetMonitor>,
    opencost: Option<OpenCostMonitor>,
}

/// The watch and the controller of policies.
#[derive(Debug)]
struct PolicyTasks {
    watcher: PolicyWatcher,
    controller: PolicyController,
    view: PolicyView,
    requests: PolicyRequests,
}

impl ClusterTasks {
    /// Creates the tasks that `settings` enable, without sending a request.
    pub(super) fn connect(
        runtime: &Runtime,
        settings: &AggregatorSettings,
        view: FleetView,
        audit: &AuditLog,
        queue: Option<AuditQueue>,
    ) -> Result<Self, StartError> {
        let client = settings.cluster.follow_cluster.then(|| kube_client(runtime, settings));
        let client = client.transpose().map_err(StartError::Cluster)?;
        if client.is_some() {
            info!("watching the nodes and pods of the cluster");
        }
        let watcher = client.clone().map(ClusterWatcher::new);
        let profiles = client.map(ProfileWatcher::new);
        let file = settings.fleet.profiles.as_deref();
        let file = file.map(HardwareProfileFile::open).transpose().map_err(StartError::Profiles)?;
        let snapshots = watcher.as_ref().map(ClusterWatcher::subscribe);
        let known = profiles.as_ref().map(ProfileWatcher::known);
        let view = view.with_profiles(Profiles::new(known, snapshots.clone(), file));
        let view = view.with_cluster(snapshots.clone());
        let policies = policies(runtime, settings, (&view, snapshots.as_ref()), audit)?;
        let view = view.with_policies(policies.as_ref().map(|policies| policies.view.clone()));
        let ledger = &settings.ledger;
        // Connections of its own: this runtime drives them.
        let reader = ledger.ledger.clone().map(LedgerReader::new);
        let budgets = ledger.budgets.as_ref();
        let budgets = budgets.map(|_| BudgetMonitor::new(view.clone().with_ledger(reader)));
        let recorder =
            |url| LedgerRecorder::new(url, view.clone(), snapshots.clone(), ledger.clone());
        let ledger = ledger.ledger.clone().map(recorder).zip(queue);
        let opencost = settings.fleet.opencost_metrics;
        let opencost = opencost.then(|| OpenCostMonitor::new(view.clone(), snapshots.clone()));
        Ok(Self {
            policies,
            ledger,
            budgets,
            opencost,
            availability: Counter::new(view.clone(), snapshots),
            plugin_configs: plugin_configs(runtime, settings, view.clone())?,
            pod_types: pod_types(runtime, settings, view)?,
            watcher,
            profiles,
        })
    }

    /// The availability counter, which also contains the view of the fleet.
    pub(super) fn availability(&self) -> Counter {
        self.availability.clone()
    }

    /// The watched nodes and pods.
    pub(super) fn snapshots(&self) -> Option<watch::Receiver<Arc<WatchedCluster>>> {
        self.watcher.as_ref().map(ClusterWatcher::subscribe)
    }

    /// The policies and the requests of their controller, if it is enabled.
    pub(super) fn policies(&self) -> Option<(PolicyView, PolicyRequests)> {
        self.policies.as_ref().map(|policies| (policies.view.clone(), policies.requests.clone()))
    }

    /// Metrics of the ledger, if it is enabled.
    pub(super) fn ledger(&self) -> Option<LedgerMetrics> {
        self.ledger.as_ref().map(|(ledger, _)| ledger.metrics())
    }

    /// Metrics of the budgets, if there are any.
    pub(super) fn budgets(&self) -> Option<BudgetMetrics> {
        self.budgets.as_ref().map(BudgetMonitor::metrics)
    }

    /// Metrics for OpenCost, if they are enabled.
    pub(super) fn opencost(&self) -> Option<OpenCostMetrics> {
        self.opencost.as_ref().map(OpenCostMonitor::metrics)
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
        if let Some(budgets) = self.budgets {
            tasks.spawn(budgets.run());
        }
        if let Some(opencost) = self.opencost {
            tasks.spawn(opencost.run());
        }
        tasks.spawn(self.availability.watch_holders());
        let mut writing = JoinSet::new();
        if let Some(writer) = self.pod_types {
            writing.spawn(writer.run(stopped.clone()));
        }
        if let Some((ledger, audit)) = self.ledger {
            writing.spawn(ledger.run(audit, stopped.clone()));
        }
        if let Some(policies) = self.policies {
            tasks.spawn(policies.watcher.run());
            writing.spawn(policies.controller.run(stopped.clone()));
        }
        tokio::select! {
            _stopped = stopped.wait_for(|stopped| *stopped) => {}
            error = first_panic(&mut tasks) => return Err(error),
            error = first_panic(&mut writing) => return Err(error),
        }
        tasks.shutdown().await;
        // The writers release their Leases, within a deadline.
        while let Some(ended) = writing.join_next().await {
            ended?;
        }
        Ok(())
    }
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
    let client = kube_client(runtime, settings).map_err(StartError::Cluster)?;
    info!("creation of hardware profiles is enabled for users with the permission in the cluster");
    Ok(Some(ProfileCreator::new(ProfileWriter::new(client), guard.clone())))
}

/// Creates the controller of the `ConfigMap` of NVIDIA's device plugin.
fn plugin_configs(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    view: FleetView,
) -> Result<Option<PluginConfigController>, StartError> {
    let Some(ConfigMapName { namespace, name }) = &settings.plugin_config_map else {
        return Ok(None);
    };
    let client = kube_client(runtime, settings).map_err(StartError::PluginConfigs)?;
    let config_map = PluginConfigMap::new(client, (namespace, name));
    Ok(Some(PluginConfigController::new(config_map, view)))
}

/// Creates the watch and the controller of policies.
fn policies(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    (view, nodes): (&FleetView, Option<&watch::Receiver<Arc<WatchedCluster>>>),
    audit: &AuditLog,
) -> Result<Option<PolicyTasks>, StartError> {
    let Some(nodes) = nodes.filter(|_| settings.cluster.policies) else {
        return Ok(None);
    };
    let kubeconfig = settings.kubernetes.kubeconfig.as_deref();
    let client = runtime.block_on(connect_policies(kubeconfig)).map_err(StartError::Cluster)?;
    let watcher = PolicyWatcher::new(client.clone());
    let client = PolicyClient::new(client);
    let policies = PolicyView::new(watcher.known(), nodes.clone());
    let requests = client.requests();
    info!("rolling out accelerator policies");
    let controller = PolicyController::new(
        client,
        policies.clone(),
        view.clone(),
        &settings.workload,
        audit.clone(),
    );
    Ok(Some(PolicyTasks { watcher, controller, view: policies, requests }))
}

/// Creates the writer of pod annotations.
fn pod_types(
    runtime: &Runtime,
    settings: &AggregatorSettings,
    view: FleetView,
) -> Result<Option<PodTypeWriter>, StartError> {
    if !settings.workload.annotate_pods {
        return Ok(None);
    }
    let client = kube_client(runtime, settings).map_err(StartError::PodTypes)?;
    Ok(Some(PodTypeWriter::new(PodAnnotationClient::new(client), view, &settings.workload)))
}
