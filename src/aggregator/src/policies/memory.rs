//! Own writes that the watches have not reported yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_fleet::cluster::{ClusterNode, ClusterSnapshot};
use octavo_kube::policies::KnownPolicies;
use octavo_policy::Policy;

/// Policies and nodes as this leader wrote them.
#[derive(Debug, Default)]
pub(super) struct Memory {
    policies: BTreeMap<String, Policy>,
    nodes: BTreeMap<String, ClusterNode>,
    /// Records of the nodes that the watch still reports.
    outdated: BTreeMap<String, Option<String>>,
}

impl Memory {
    /// Starts with the policies that a new leader listed.
    pub(super) fn begin(&mut self, listed: Vec<Policy>) {
        self.policies = listed.into_iter().map(|policy| (policy.name.clone(), policy)).collect();
    }

    /// Records a policy after a write.
    pub(super) fn record_policy(&mut self, written: Policy) {
        self.policies.insert(written.name.clone(), written);
    }

    /// Records a node after a write.
    pub(super) fn record_node(&mut self, written: ClusterNode) {
        self.nodes.insert(written.name.clone(), written);
    }

    /// The watched policies and nodes, with newer ones from own writes.
    pub(super) fn current(
        &mut self,
        known: &KnownPolicies,
        watched: &ClusterSnapshot,
    ) -> (Vec<Policy>, ClusterSnapshot) {
        let own = &mut self.policies;
        let policies = known.all.values().map(|watched| match own.get(&watched.name) {
            Some(written) if is_newer(written, watched) => written.clone(),
            Some(_) | None => Policy::clone(watched),
        });
        let policies: Vec<Policy> = policies.collect();
        own.retain(|name, written| {
            known.all.get(name).is_some_and(|watched| is_newer(written, watched))
        });
        // The pods are not needed.
        let mut snapshot = ClusterSnapshot::with_nodes(watched.nodes.clone());
        let outdated = &mut self.outdated;
        self.nodes.retain(|name, written| {
            let Some(reported) = snapshot.nodes.get(name) else {
                outdated.remove(name);
                return false;
            };
            let before =
                outdated.entry(name.clone()).or_insert_with(|| reported.policy_record.clone());
            // Every write changes the record. A recreated node has another UID; its record can equal the one before our write.
            let is_ours = written.uid == reported.uid
                && *before == reported.policy_record
                && reported.policy_record != written.policy_record;
            if is_ours {
                snapshot.nodes.insert(name.clone(), Arc::new(written.clone()));
            } else {
                outdated.remove(name);
            }
            is_ours
        });
        (policies, snapshot)
    }
}

/// Returns whether one version of a policy is newer than another. Source: Kubernetes, KEP-5504: resource versions of one kind are
/// comparable as numbers. Otherwise, the watch is believed.
fn is_newer(written: &Policy, watched: &Policy) -> bool {
    let number = |policy: &Policy| policy.version.parse::<u128>().ok();
    written.uid == watched.uid
        && number(written).zip(number(watched)).is_some_and(|(written, watched)| written > watched)
}

#[cfg(test)]
mod tests {
    use octavo_policy::PolicyStatus;

    use super::*;

    fn policy(version: &str) -> Policy {
        Policy {
            name: "a".to_owned(),
            uid: "u".to_owned(),
            version: version.to_owned(),
            generation: 1,
            created: None,
            is_deleting: false,
            has_finalizer: true,
            rollback_to: None,
            approved: std::collections::BTreeSet::new(),
            spec: Err(String::new()),
            status: PolicyStatus::default(),
        }
    }

    fn node(record: Option<&str>, cordoned: bool) -> ClusterNode {
        let policy_record = record.map(str::to_owned);
        ClusterNode {
            name: "n".to_owned(),
            policy_record,
            is_cordoned: cordoned,
            ..ClusterNode::default()
        }
    }

    #[test]
    fn own_write_counts_until_the_watch_reports_it_or_a_newer_one() {
        let mut memory = Memory::default();
        let known = |version: &str| KnownPolicies {
            all: [("a".to_owned(), Arc::new(policy(version)))].into(),
            ..KnownPolicies::default()
        };
        let none = ClusterSnapshot::default();
        memory.record_policy(policy("10"));
        let mut version =
            |watched: &str| memory.current(&known(watched), &none).0[0].version.clone();
        assert_eq!(version("9"), "10");
        assert_eq!(version("11"), "11");
        assert_eq!(version("9"), "9");
        let record = |memory: &mut Memory, watched: ClusterNode| {
            let (_, snapshot) =
                memory.current(&KnownPolicies::default(), &ClusterSnapshot::new([watched], []));
            snapshot.nodes["n"].policy_record.clone()
        };
        memory.record_node(node(Some("new"), false));
        assert_eq!(record(&mut memory, node(Some("old"), false)).as_deref(), Some("new"));
        // Another change of the node does not end it, but that of the record does.
        assert_eq!(record(&mut memory, node(Some("old"), true)).as_deref(), Some("new"));
        assert_eq!(record(&mut memory, node(Some("new"), true)).as_deref(), Some("new"));
        assert_eq!(record(&mut memory, node(None, true)), None);
    }

    #[test]
    fn own_write_ends_with_the_node_object() {
        let mut memory = Memory::default();
        let mut record = |written: Option<ClusterNode>, watched: ClusterNode| {
            if let Some(written) = written {
                memory.record_node(written);
            }
            let watched = ClusterSnapshot::new([watched], []);
            let (_, snapshot) = memory.current(&KnownPolicies::default(), &watched);
            snapshot.nodes["n"].policy_record.clone()
        };
        assert_eq!(
            record(Some(node(Some("new"), false)), node(None, false)).as_deref(),
            Some("new")
        );
        let again = ClusterNode { uid: "again".to_owned(), ..node(None, false) };
        assert_eq!(record(None, again.clone()), None);
        // The write to the earlier object does not return.
        assert_eq!(record(None, node(None, false)), None);
        let written = ClusterNode { policy_record: Some("new".to_owned()), ..again.clone() };
        assert_eq!(record(Some(written), again).as_deref(), Some("new"));
    }
}
