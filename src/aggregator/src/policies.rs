//! Executes the decisions of `octavo_policy`: the only writer of policies and of the values that they set on nodes.
//!
//! ```text
//!  PolicyView: policies, nodes --+
//!  FleetView: use of devices ----+--> octavo_policy::next --> steps --> API server
//!  Lease: leader election ----------------------------------------^
//! ```
//!
//! Without the Lease, nothing is written. A new leader lists the policies first, because their status is the memory of its predecessor.
//! The watch of the nodes may lag behind: every node is read before it is changed, and counts as changed from the time at which the
//! status names it.

mod events;
mod memory;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_access::audit::AuditLog;
use octavo_fleet::cluster::ClusterSnapshot;
use octavo_kube::lease::{LeadershipHandle, LeaseHolder};
use octavo_kube::policies::{PolicyClient, PolicyRequestError};
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_policy::{
    Decision, DemandMode, NodeProposal, Policy, PolicyNode, Step, World, next, release_orphan,
};
use octavo_store::policies::{FeasibilityCache, PolicyView, waiting_pods, world};
use octavo_store::view::FleetView;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use self::events::Announcement;
use self::memory::Memory;
pub use self::metrics::register;
use crate::settings::WorkloadSettings;

/// Name of the Lease.
const LEASE_NAME: &str = "octavo-policies";
/// Interval between two decisions, so that changes in quick succession are combined.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time between two decisions: the use of devices has no notification here.
const MAX_INTERVAL: Duration = Duration::from_secs(15);

/// Controller of the policies.
#[derive(Debug)]
pub struct PolicyController {
    client: PolicyClient,
    policies: PolicyView,
    view: FleetView,
    lead: LeadershipHandle,
    holder: LeaseHolder,
    audit: AuditLog,
}

/// State while the Lease is held.
struct Leader<'a> {
    client: &'a PolicyClient,
    policies: PolicyView,
    view: &'a FleetView,
    audit: AuditLog,
    lead: LeadershipHandle,
    memory: Memory,
    /// Written changes of policies that have no events yet.
    announcements: Vec<Announcement>,
    feasibility: FeasibilityCache,
    began: Instant,
    pace: WriteBackoff<()>,
    last_error: Option<String>,
}

impl PolicyController {
    /// Creates a controller. Sends no request before it runs.
    pub fn new(
        client: PolicyClient,
        policies: PolicyView,
        view: FleetView,
        settings: &WorkloadSettings,
        audit: AuditLog,
    ) -> Self {
        let place = (settings.lease_namespace.as_str(), LEASE_NAME);
        let (lead, holder) = LeaseHolder::new(client.client(), place, &settings.holder_prefix);
        // Proposals depend on the policies of the nodes.
        let view = view.with_policies(Some(policies.clone()));
        Self { client, policies, view, lead, holder, audit }
    }

    /// Runs until `stop`, and then releases the Lease.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let Self { client, policies, view, mut lead, holder, audit } = self;
        let write = async {
            loop {
                if lead.until().is_some() {
                    let mut leader =
                        Leader::new(&client, policies.clone(), &view, lead.clone(), audit.clone());
                    tokio::select! {
                        biased;
                        () = lead.lost() => {}
                        () = leader.run() => {}
                    }
                } else if !lead.changed().await {
                    return;
                }
            }
        };
        // The holder announces the end of all writing before it releases the Lease.
        tokio::join!(holder.run(stop), write);
    }
}

impl<'a> Leader<'a> {
    fn new(
        client: &'a PolicyClient,
        policies: PolicyView,
        view: &'a FleetView,
        lead: LeadershipHandle,
        audit: AuditLog,
    ) -> Self {
        Self {
            client,
            policies,
            view,
            audit,
            lead,
            memory: Memory::default(),
            announcements: Vec::new(),
            feasibility: FeasibilityCache::default(),
            began: Instant::now(),
            pace: WriteBackoff::default(),
            last_error: None,
        }
    }

    /// Runs until the policies are no longer watched. Dropping it cancels a request in progress.
    async fn run(&mut self) {
        while !self.begin().await {
            sleep(self.wait()).await;
        }
        loop {
            let wake_at = self.work().await;
            // Combines the changes that follow one another.
            sleep(MIN_INTERVAL.max(self.wait())).await;
            let until_wake = wake_at.map_or(MAX_INTERVAL, |at| {
                Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
            });
            let changed = timeout(until_wake.min(MAX_INTERVAL), self.policies.changed()).await;
            if changed == Ok(false) {
                return;
            }
        }
    }

    /// Delay after a failure.
    fn wait(&self) -> Duration {
        self.pace.wait(self.began.elapsed(), &()).unwrap_or_default()
    }

    /// Reads the memory of the predecessor. Returns whether everything that a decision needs is known.
    async fn begin(&mut self) -> bool {
        // Before the agents have reported, the use and the types of their nodes are unknown.
        let cluster = self.policies.cluster();
        let is_known = cluster.current_at.is_some() && !self.view.awaits_agents(&cluster.snapshot);
        if !is_known || self.policies.known().presence.is_none() {
            sleep(MIN_INTERVAL).await;
            return false;
        }
        match self.client.list().await {
            Ok(listed) => {
                self.record_success();
                self.memory.begin(listed);
                true
            }
            Err(error) => {
                self.pace.record_failure(self.began.elapsed(), error.retry_after());
                self.log_failure(&error);
                false
            }
        }
    }

    /// Decides and writes until nothing is left to do. Returns when time alone leads to another decision.
    async fn work(&mut self) -> Option<Timestamp> {
        loop {
            // Every further decision begins with the current state, so a slow API server delays no outdated step.
            let announcements = std::mem::take(&mut self.announcements);
            events::create(self.client, &self.policies.cluster().snapshot, announcements).await;
            // An interrupted watch can hide unavailable nodes and a changed spec.
            if self.policies.cluster().error.is_some() || self.policies.known().error.is_some() {
                return None;
            }
            let proposals = self.proposals().await;
            let (policies, snapshot) = match self.current().await {
                Ok(current) => current,
                Err(error) => {
                    self.pace.record_failure(self.began.elapsed(), error.retry_after());
                    self.log_failure(&error);
                    return None;
                }
            };
            let decision = self.decide(&policies, &snapshot, proposals);
            let mut is_changed = false;
            let mut refused = None;
            for step in decision.steps {
                if self.lead.until().is_none() || !self.wait().is_zero() {
                    return decision.wake_at;
                }
                match self.execute(&policies, &step).await {
                    Ok(written) => {
                        is_changed |= written;
                        self.record_success();
                    }
                    Err(error) if error.is_outdated() => {
                        debug!(%error, "object changed in the meantime");
                    }
                    // Only this object is refused, so the others need not wait.
                    Err(error) if error.is_refusal() => refused = Some(error),
                    Err(error) => {
                        self.pace.record_failure(self.began.elapsed(), error.retry_after());
                        self.log_failure(&error);
                        return decision.wake_at;
                    }
                }
            }
            if !is_changed {
                if let Some(error) = refused {
                    self.log_failure(&error);
                }
                return decision.wake_at;
            }
        }
    }

    /// Instances that pending pods need by node, if a policy has demand, and the nodes for which they are not known; `None` if they are
    /// not known for any node.
    async fn proposals(&self) -> Option<(BTreeMap<String, NodeProposal>, BTreeSet<String>)> {
        let known = self.policies.known();
        let specs = known.all.values().filter_map(|policy| policy.spec.as_ref().ok());
        if specs.filter_map(|spec| spec.demand).all(|demand| demand.mode == DemandMode::Observe) {
            return Some((BTreeMap::new(), BTreeSet::new()));
        }
        match self.view.demand().await {
            Ok(found) => {
                (!found.report.stale).then(|| (found.nodes.clone(), found.unknown_nodes.clone()))
            }
            Err(error) => {
                debug!(%error, "proposals for pending pods unknown");
                None
            }
        }
    }

    /// Policies and nodes, including nodes that a status names and the watch does not report: either it is behind, or they were deleted.
    async fn current(&mut self) -> Result<(Vec<Policy>, ClusterSnapshot), PolicyRequestError> {
        let cluster = self.policies.cluster();
        let (policies, mut snapshot) =
            self.memory.current(&self.policies.known(), &cluster.snapshot);
        let readable = policies.iter().filter(|policy| policy.spec.is_ok());
        let named = readable.flat_map(|policy| {
            let failed = policy.status.failures.iter().map(|failure| &failure.node);
            policy.status.updating.iter().chain(failed)
        });
        let unreported = named.filter(|name| !snapshot.nodes.contains_key(*name));
        let unreported: BTreeSet<String> = unreported.cloned().collect();
        for name in &unreported {
            if let Some((node, _)) = self.client.read_node(name).await? {
                snapshot.nodes.insert(name.clone(), Arc::new(node));
            }
        }
        Ok((policies, snapshot))
    }

    fn decide(
        &mut self,
        policies: &[Policy],
        snapshot: &ClusterSnapshot,
        proposals: Option<(BTreeMap<String, NodeProposal>, BTreeSet<String>)>,
    ) -> Decision {
        let fleet = self.view.fleet();
        let fleet = (&fleet, self.view.clock().now());
        let layouts = self.view.layouts();
        let infeasible = self.feasibility.infeasible(policies, snapshot, &layouts, fleet);
        let world = world(policies, snapshot, fleet, infeasible);
        let waiting = waiting_pods(policies, &self.policies.cluster().snapshot);
        let (proposals, unknown_nodes) = proposals.unzip();
        let unknown_nodes = unknown_nodes.unwrap_or_default();
        next(&World { proposals, unknown_nodes, waiting, ..world })
    }

    /// Executes a step. Returns whether something was written.
    async fn execute(
        &mut self,
        policies: &[Policy],
        step: &Step,
    ) -> Result<bool, PolicyRequestError> {
        let named = |name: &str| policies.iter().find(|policy| policy.name == name);
        match step {
            Step::AddFinalizer { policy } | Step::RemoveFinalizer { policy } => {
                let Some(policy) = named(policy) else { return Ok(false) };
                let is_set = matches!(step, Step::AddFinalizer { .. });
                let written = self.client.set_finalizer(policy, is_set).await?;
                info!(policy = %policy.name, is_set, "finalizer of an accelerator policy changed");
                self.memory.record_policy(written);
                Ok(true)
            }
            Step::WriteStatus { policy, status, events } => {
                let Some(policy) = named(policy) else { return Ok(false) };
                let written = self.client.write_status(policy, status).await?;
                self.memory.record_policy(written);
                let announcement = Announcement::new(policy, status, events, &self.audit);
                self.announcements.push(announcement);
                Ok(true)
            }
            Step::ChangeNode { policy, node } => {
                let Some(policy) = named(policy) else { return Ok(false) };
                self.change(policies, policy, node).await
            }
            Step::ReleaseOrphan { policy, uid, node } => {
                if self.client.exists(policy, uid).await? {
                    return Ok(false);
                }
                let Some((fresh, version)) = self.client.read_node(node).await? else {
                    return Ok(false);
                };
                let orphan = PolicyNode::new(&fresh, None);
                if orphan.record.of(uid).is_none() {
                    return Ok(false);
                }
                info!(%node, %policy, "removing the record of a policy that does not exist");
                let patch = release_orphan(&orphan);
                let written = self.client.patch_node(node, &version, &patch).await?;
                self.memory.record_node(written);
                Ok(true)
            }
        }
    }

    /// Reads a node, and writes the changes of the policy to it.
    async fn change(
        &mut self,
        policies: &[Policy],
        policy: &Policy,
        node: &str,
    ) -> Result<bool, PolicyRequestError> {
        let Some((fresh, version)) = self.client.read_node(node).await? else { return Ok(false) };
        let fleet = self.view.fleet();
        let snapshot = ClusterSnapshot::new([fresh], []);
        let moment = self.view.clock().now();
        let now = world(policies, &snapshot, (&fleet, moment), BTreeMap::new());
        let patch = now.nodes.get(node).and_then(|fresh| now.patch(policy, fresh));
        let Some(patch) = patch.filter(|_| self.lead.until().is_some()) else { return Ok(false) };
        let written = self.client.patch_node(node, &version, &patch).await?;
        let revision = patch.record.as_ref().map_or("none", |record| record.revision.as_str());
        info!(%node, policy = %policy.name, revision, "node changed by an accelerator policy");
        self.memory.record_node(written);
        Ok(true)
    }

    fn record_success(&mut self) {
        self.pace = WriteBackoff::default();
        if self.last_error.take().is_some() {
            info!("the API server accepts the changes of accelerator policies again");
        }
    }

    fn log_failure(&mut self, error: &PolicyRequestError) {
        let text = error.to_string();
        if self.last_error.as_ref() != Some(&text) {
            warn!(error = %text, "change of an accelerator policy failed; retrying");
            self.last_error = Some(text);
        }
    }
}
