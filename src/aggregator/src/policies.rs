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

mod memory;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_access::audit::AuditLog;
use octavo_fleet::cluster::{ClusterSnapshot, PodKey};
use octavo_kube::lease::{LeadershipHandle, LeaseHolder};
use octavo_kube::policies::{EventObject, PolicyClient, PolicyRequestError};
use octavo_ledger::audit::PolicyEvent;
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_policy::{
    ChangeEvent, Decision, DemandMode, NodeProposal, Policy, PolicyNode, PolicyState, PolicyStatus,
    Step, World, next, release_orphan,
};
use octavo_store::policies::{FeasibilityCache, PolicyView, world};
use octavo_store::startup::awaits_agents;
use octavo_store::view::FleetView;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use self::memory::Memory;
pub use self::metrics::register;
use crate::settings::WorkloadSettings;

/// Name of the Lease.
const LEASE_NAME: &str = "octavo-policies";
/// Interval between two decisions, so that changes in quick succession are combined.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time between two decisions: the use of devices has no notification here.
const MAX_INTERVAL: Duration = Duration::from_secs(15);

/// Maximum number of events about pods after one write, which bounds the time until the next write.
const MAX_POD_EVENTS: usize = 100;

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
        let is_known = cluster.current_at.is_some() && !awaits_agents(self.view, &cluster.snapshot);
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

    /// Instances that pending pods need, if a policy has demand; `None` if they are not known.
    async fn proposals(&self) -> Option<BTreeMap<String, NodeProposal>> {
        let known = self.policies.known();
        let specs = known.all.values().filter_map(|policy| policy.spec.as_ref().ok());
        if specs.filter_map(|spec| spec.demand).all(|demand| demand.mode == DemandMode::Observe) {
            return Some(BTreeMap::new());
        }
        match self.view.demand().await {
            Ok(proposals) => (!proposals.report.stale).then(|| proposals.nodes.clone()),
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
        let active = policies.iter().filter(|one| one.spec.is_ok() && !one.is_deleting);
        let named = active.flat_map(|policy| {
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
        if !unreported.is_empty() {
            self.record_success();
        }
        Ok((policies, snapshot))
    }

    fn decide(
        &mut self,
        policies: &[Policy],
        snapshot: &ClusterSnapshot,
        proposals: Option<BTreeMap<String, NodeProposal>>,
    ) -> Decision {
        let fleet = self.view.fleet();
        let fleet = (&fleet, self.view.clock().now());
        let layouts = self.view.layouts();
        let infeasible = self.feasibility.infeasible(policies, snapshot, &layouts, fleet);
        let world = world(policies, snapshot, fleet, infeasible);
        next(&World { proposals, ..world })
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
                self.announce(policy, status, events).await;
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

    /// Creates an event if the state of a policy differs. The status has the same information, so a lost event is not repeated.
    async fn announce(&self, before: &Policy, status: &PolicyStatus, events: &[ChangeEvent]) {
        let about = EventObject::Policy(before);
        for event in events {
            let ChangeEvent { reason, message, is_warning, .. } = event;
            info!(policy = %before.name, reason, %message, "instances for pending pods");
            self.create_event(about, (reason, *is_warning), message).await;
        }
        self.announce_to_pods(events).await;
        let (old, new) = (before.status.state, status.state);
        if old == new || new == PolicyState::Unknown {
            return;
        }
        let is_warning = matches!(
            new,
            PolicyState::Refused
                | PolicyState::Stopped
                | PolicyState::Conflict
                | PolicyState::RollingBack
        );
        let why = match (&status.stop, status.condition("Accepted")) {
            (Some(stop), _) => stop.message.clone(),
            (None, Some(accepted)) if accepted.status == "False" => accepted.message.clone(),
            (None, _) => status
                .waits_for
                .as_ref()
                .map(|what| format!("waits for {what}"))
                .unwrap_or_default(),
        };
        let nodes = status.nodes;
        let message = format!(
            "revision {}: {} of {} nodes applied; {why}",
            status.revision, nodes.applied, nodes.selected
        );
        let message = message.trim_end_matches("; ");
        info!(policy = %before.name, state = %new, %message, "accelerator policy");
        self.audit.record_policy(PolicyEvent {
            policy: before.name.clone(),
            revision: status.revision.clone(),
            before: old.to_string(),
            after: new.to_string(),
            message: message.to_owned(),
        });
        self.create_event(about, (new.into(), is_warning), message).await;
    }

    /// Creates events about the pods of changes. Only a pod that the cluster has, and that waits for a node or is on the node of the
    /// change, has an event: the names in a stored status are not trusted.
    async fn announce_to_pods(&self, events: &[ChangeEvent]) {
        let cluster = self.policies.cluster();
        let mut count = 0;
        for event in events {
            for (pod, message) in &event.pods {
                let Some((key, uid)) = changed_pod(&cluster.snapshot, pod, &event.node) else {
                    continue;
                };
                let reason = (event.reason, event.is_warning);
                let is_answered =
                    self.create_event(EventObject::Pod(key, uid), reason, message).await;
                count += 1;
                if !is_answered || count == MAX_POD_EVENTS {
                    return;
                }
            }
        }
    }

    /// Creates an event. Returns whether the API server answered.
    async fn create_event(
        &self,
        about: EventObject<'_>,
        (reason, is_warning): (&str, bool),
        message: &str,
    ) -> bool {
        match self.client.create_event(about, reason, message, is_warning).await {
            Ok(()) => true,
            Err(error) => {
                debug!(%error, "event not created");
                error.is_refusal() || error.is_outdated()
            }
        }
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

/// Key and UID of a pod, as `namespace/name`, that requests devices and waits for a node or is on this node.
fn changed_pod<'a>(
    snapshot: &'a ClusterSnapshot,
    pod: &str,
    node: &str,
) -> Option<(&'a PodKey, &'a str)> {
    let (namespace, name) = pod.split_once('/')?;
    let key = PodKey { namespace: namespace.to_owned(), name: name.to_owned() };
    let pod = snapshot.pods.get(&key)?;
    let is_here = pod.is_pending() || pod.node.as_deref() == Some(node);
    Some((&pod.key, pod.uid.as_deref()?)).filter(|_| is_here)
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::{ClusterPod, Phase};

    use super::*;

    #[test]
    fn m21_only_a_waiting_pod_or_one_of_the_node_has_events() {
        let pod = |name: &str, phase: Phase, node: Option<&str>| ClusterPod {
            key: PodKey { namespace: "team".to_owned(), name: name.to_owned() },
            uid: Some(format!("uid-{name}")),
            phase,
            node: node.map(str::to_owned),
            ..ClusterPod::default()
        };
        let plain = ClusterPod { uid: None, ..pod("plain", Phase::Pending, None) };
        let pods = [
            pod("waits", Phase::Pending, None),
            pod("here", Phase::Bound, Some("gpu-1")),
            pod("elsewhere", Phase::Bound, Some("gpu-2")),
            pod("ended", Phase::Finished, None),
            plain,
        ];
        let snapshot = ClusterSnapshot::new([], pods);
        let uid = |pod: &str| changed_pod(&snapshot, pod, "gpu-1").map(|(_, uid)| uid.to_owned());
        assert_eq!(uid("team/waits").as_deref(), Some("uid-waits"));
        assert_eq!(uid("team/here").as_deref(), Some("uid-here"));
        for other in ["team/elsewhere", "team/ended", "team/plain", "kube-system/waits", "waits"] {
            assert_eq!(uid(other), None, "{other}");
        }
    }
}
