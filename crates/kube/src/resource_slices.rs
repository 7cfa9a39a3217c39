//! The `ResourceSlices` of this node, from which the scheduler allocates its devices to claims.
//!
//! The slices belong to the Node. They are watched, because the kubelet deletes all slices of its node when it starts, and
//! those of a driver whose plugin it lost. Source: Kubernetes `pkg/kubelet/cm/dra/plugin`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use octavo_dra::{
    DRIVER, PoolUpdate, SHARES, dropped_fields, has_shared_devices, without_shared_devices,
};
use octavo_model::id::NodeName;
use octavo_node::node_object::FIELD_MANAGER;
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_toolkit::desired::{self, Desired, TaskHandle, TaskState};
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tokio_stream::StreamExt;
use tracing::{debug, info, warn};

use crate::backoff::ReconnectBackoff;
use crate::client::{self, RequestError, describe_watch_error};
use crate::write_status::WriteStatus;

/// Desired slices; `None` until they are known.
type DesiredSlices = Option<Arc<Vec<ResourceSlice>>>;

/// Handle that sets the desired slices.
#[derive(Debug)]
pub struct ResourceSlicesHandle {
    task: TaskHandle<DesiredSlices, WriteStatus>,
}

/// Keeps the slices in their desired state; run it as a task.
#[derive(Debug)]
pub struct ResourceSlicePublisher {
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    node: String,
    state: TaskState<DesiredSlices, WriteStatus>,
    /// The slices of this node by name; `None` before they were listed.
    published: Option<BTreeMap<String, ResourceSlice>>,
    /// The slices of a list that is not complete yet.
    listed: BTreeMap<String, ResourceSlice>,
    /// The Node as owner; `None` if it must be read.
    owner: Option<OwnerReference>,
    /// True if the API server stores shared devices; `None` before this is known, and after each new list.
    stores_shares: Option<bool>,
}

/// Reason why the slices are not published.
#[derive(Debug, Error)]
enum PublishError {
    #[error("cannot read the Node")]
    Node(#[source] RequestError),
    #[error("the Node does not exist")]
    NoNode,
    #[error("cannot write ResourceSlice {name}")]
    Write { name: String, source: RequestError },
    #[error("cannot delete ResourceSlice {name}")]
    Delete { name: String, source: RequestError },
    #[error(
        "the API server dropped {fields} from ResourceSlice {name}: enable the feature gate, or disable --dra"
    )]
    Dropped { name: String, fields: String },
}

impl PublishError {
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Node(source) | Self::Write { source, .. } | Self::Delete { source, .. } => {
                source.retry_after()
            }
            Self::NoNode | Self::Dropped { .. } => None,
        }
    }
}

impl ResourceSlicesHandle {
    /// Sets the desired slices; none to delete all.
    pub fn set(&self, slices: Vec<ResourceSlice>) {
        self.task.set(Some(Arc::new(slices)));
    }

    /// Waits until the API server has the desired slices. Has no timeout.
    pub async fn wait_until_published(&self) {
        self.task.wait_until(|status, generation| status.generation >= Some(generation)).await;
    }

    /// Returns the current error.
    pub fn error(&self) -> Option<String> {
        self.task.observed.borrow().error.clone()
    }
}

impl ResourceSlicePublisher {
    /// Creates a publisher for the node. Sends no request before it runs.
    pub fn new(client: Client, node: &NodeName) -> (ResourceSlicesHandle, Self) {
        let (task, state) = desired::channel();
        let publisher = Self {
            slices: Api::all(client.clone()),
            nodes: Api::all(client),
            node: node.as_str().to_owned(),
            state,
            published: None,
            listed: BTreeMap::new(),
            owner: None,
            stores_shares: None,
        };
        (ResourceSlicesHandle { task }, publisher)
    }

    /// Runs until the handle is dropped. The slices remain.
    pub async fn run(mut self) {
        let own = format!("spec.nodeName={},spec.driver={DRIVER}", self.node);
        let config = watcher::Config::default().fields(&own);
        let watched = watcher(self.slices.clone(), config).backoff(ReconnectBackoff::default());
        let mut watched = Box::pin(watched);
        let began = Instant::now();
        let mut backoff = WriteBackoff::default();
        let mut last_error = None;
        loop {
            let desired = self.state.desired.borrow_and_update().clone();
            let wait = self.reconcile(&desired, began, &mut backoff).await;
            tokio::select! {
                changed = self.state.desired.changed() => if changed.is_err() {
                    return;
                },
                Some(event) = watched.next() => match event {
                    Ok(event) => {
                        // A started list was not answered yet.
                        if !matches!(event, Event::Init) && last_error.take().is_some() {
                            info!("the API server responds again");
                        }
                        self.apply_event(event);
                    }
                    Err(error) => {
                        let error = describe_watch_error(&error);
                        if last_error.as_ref() != Some(&error) {
                            warn!(%error, "cannot watch ResourceSlices; retrying");
                            self.publish_status(None, Some(error.clone()));
                            last_error = Some(error);
                        }
                    }
                },
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    /// Writes the differences, if a write is permitted now. Returns the delay until the next attempt.
    async fn reconcile(
        &mut self,
        desired: &Desired<DesiredSlices>,
        began: Instant,
        backoff: &mut WriteBackoff<Arc<Vec<ResourceSlice>>>,
    ) -> Option<Duration> {
        let slices = desired.state.as_ref()?;
        self.published.as_ref()?;
        if let Some(wait) = backoff.wait(began.elapsed(), slices) {
            return Some(wait);
        }
        match self.write(slices).await {
            Ok(0) => {
                debug!("the ResourceSlices are up to date");
                self.publish_status(Some(desired.generation), None);
                None
            }
            Ok(count) => {
                info!(count, "ResourceSlices updated");
                backoff.record_write(began.elapsed(), Arc::clone(slices));
                Some(Duration::ZERO)
            }
            Err(error) => {
                backoff.record_failure(began.elapsed(), error.retry_after());
                self.publish_status(None, Some(octavo_toolkit::error::chain(&error)));
                backoff.wait(began.elapsed(), slices)
            }
        }
    }

    /// Returns whether the API server stores the fields of shared devices. Without these, claims would have the devices
    /// exclusively. Writes nothing.
    async fn stores_shares(&mut self, shared: &ResourceSlice) -> Result<bool, PublishError> {
        if let Some(known) = self.stores_shares {
            return Ok(known);
        }
        let name = shared.metadata.name.clone().unwrap_or_default();
        let params = PatchParams { dry_run: true, ..PatchParams::apply(FIELD_MANAGER).force() };
        let tried = client::request(self.slices.patch(&name, &params, &Patch::Apply(shared))).await;
        let tried = tried.map_err(|source| PublishError::Write { name, source })?;
        let is_dropped = dropped_fields(&tried, shared).contains(&SHARES);
        if is_dropped {
            warn!(
                dropped = SHARES,
                "shared devices are not published: enable the feature gate of the API server and the scheduler"
            );
        }
        self.stores_shares = Some(!is_dropped);
        Ok(!is_dropped)
    }

    /// Takes the slices to the desired state. Returns the number of writes.
    async fn write(&mut self, desired: &[ResourceSlice]) -> Result<usize, PublishError> {
        let owner = self.owner().await?;
        let mut slices = desired.to_vec();
        for slice in &mut slices {
            slice.metadata.owner_references = Some(vec![owner.clone()]);
        }
        if let Some(shared) = slices.iter().find(|slice| has_shared_devices(slice))
            && !self.stores_shares(shared).await?
        {
            slices = without_shared_devices(slices);
        }
        let published = self.published.get_or_insert_default();
        let PoolUpdate { apply, delete } = PoolUpdate::new(published, &slices);
        let count = apply.len().saturating_add(delete.len());
        for slice in apply {
            let name = slice.metadata.name.clone().unwrap_or_default();
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let patch = Patch::Apply(&slice);
            let written = client::request(self.slices.patch(&name, &params, &patch)).await;
            let stored = match written {
                Ok(stored) => stored,
                Err(source) => return Err(PublishError::Write { name, source }),
            };
            let dropped = dropped_fields(&stored, &slice);
            published.insert(name.clone(), stored);
            // Devices without their counters could be combined at will.
            if !dropped.is_empty() {
                return Err(PublishError::Dropped { name, fields: dropped.join(" and ") });
            }
        }
        for name in delete {
            match client::request(self.slices.delete(&name, &DeleteParams::default())).await {
                Ok(_) => {}
                Err(source) if source.code() == Some(404) => {}
                Err(source) => return Err(PublishError::Delete { name, source }),
            }
            published.remove(&name);
        }
        Ok(count)
    }

    /// Returns the Node as owner, so that its slices are deleted with it.
    async fn owner(&mut self) -> Result<OwnerReference, PublishError> {
        if let Some(owner) = &self.owner {
            return Ok(owner.clone());
        }
        let found = client::request(self.nodes.get_opt(&self.node)).await;
        let node = found.map_err(PublishError::Node)?.ok_or(PublishError::NoNode)?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: node.metadata.uid.unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        self.owner = Some(owner.clone());
        Ok(owner)
    }

    fn apply_event(&mut self, event: Event<ResourceSlice>) {
        match event {
            Event::Init => {
                self.listed.clear();
                self.stores_shares = None;
            }
            Event::InitApply(slice) => {
                self.listed.insert(name(&slice), slice);
            }
            Event::InitDone => self.published = Some(std::mem::take(&mut self.listed)),
            Event::Apply(slice) => {
                let published = self.published.get_or_insert_default();
                let is_older =
                    published.get(&name(&slice)).is_some_and(|known| is_older(&slice, known));
                if !is_older {
                    published.insert(name(&slice), slice);
                }
            }
            Event::Delete(slice) => {
                let published = self.published.get_or_insert_default();
                let name = name(&slice);
                if published.get(&name).is_some_and(|known| !is_older(&slice, known)) {
                    published.remove(&name);
                }
                // The slices of a deleted Node are deleted with it, and a new one has another UID.
                self.owner = None;
            }
        }
    }

    fn publish_status(&self, generation: Option<u64>, error: Option<String>) {
        WriteStatus::publish(
            &self.state.observed,
            generation,
            error,
            "cannot publish the ResourceSlices; retrying",
        );
    }
}

fn name(slice: &ResourceSlice) -> String {
    slice.metadata.name.clone().unwrap_or_default()
}

/// Returns whether `new` precedes `known`: a watch may lag behind the response to our own write. Source: Kubernetes
/// KEP-5504, resource versions of one object can be compared as numbers.
fn is_older(new: &ResourceSlice, known: &ResourceSlice) -> bool {
    let version =
        |slice: &ResourceSlice| slice.metadata.resource_version.as_ref()?.parse::<u128>().ok();
    version(new).is_some_and(|new| version(known).is_some_and(|known| new < known))
}
