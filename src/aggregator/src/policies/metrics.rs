//! Metrics of the policies.

use std::cmp::Reverse;
use std::fmt;

use octavo_kube::policies::PolicyRequests;
use octavo_model::tone::Tone;
use octavo_policy::{Policy, PolicyStatus};
use octavo_store::policies::PolicyView;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use crate::rest::metrics::{counters, gauges};

/// Maximum number of policies with series of their own.
const MAX_POLICIES: usize = 100;

/// Registers the metrics with `registry`, which must have no prefix.
pub fn register(registry: &mut Registry, policies: PolicyView, requests: PolicyRequests) {
    registry.register_collector(Box::new(PolicyMetrics { policies, requests }));
}

#[derive(Debug)]
struct PolicyMetrics {
    policies: PolicyView,
    requests: PolicyRequests,
}

impl Collector for PolicyMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let known = self.policies.known();
        let mut shown: Vec<&Policy> = known.all.values().map(|policy| &**policy).collect();
        // The sort is stable, so policies of the same severity stay in the order of their names.
        shown.sort_by_key(|policy| Reverse(severity(&policy.status)));
        shown.truncate(MAX_POLICIES);
        let shown = || shown.iter();
        let help = "Nodes of each accelerator policy by state";
        let nodes = shown().flat_map(|policy| {
            let nodes = policy.status.nodes;
            let name = policy.name.as_str();
            let states = [
                ("selected", nodes.selected),
                ("updated", nodes.updated),
                ("applied", nodes.applied),
                ("updating", nodes.updating),
                ("failed", nodes.failed),
                ("overridden", nodes.overridden),
                ("conflicting", nodes.conflicting),
                ("unavailable", nodes.unavailable),
            ];
            states.map(|(state, count)| ([("policy", name), ("state", state)], u64::from(count)))
        });
        gauges(&mut encoder, "octavo_policy_nodes", help, nodes)?;
        let help = "State of each accelerator policy: 1 for the current state";
        let states = shown().map(|policy| {
            let state: &'static str = policy.status.state.into();
            ([("policy", policy.name.as_str()), ("state", state)], 1)
        });
        gauges(&mut encoder, "octavo_policy_state", help, states)?;
        let help = "Requests of the controller of accelerator policies to the API server";
        let counts = self.requests.counts().map(|(kind, count)| ([("kind", kind)], count));
        counters(&mut encoder, "octavo_policy_requests", help, counts)
    }
}

/// Severity of the state, and of a conflict during a roll-out.
fn severity(status: &PolicyStatus) -> Tone {
    let is_conflicting = status.nodes.conflicting > 0;
    status.state.tone().max(if is_conflicting { Tone::Warning } else { Tone::Good })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use octavo_kube::policies::KnownPolicies;
    use octavo_policy::PolicyState;
    use octavo_toolkit::telemetry::exposition;
    use tokio::sync::watch;

    use super::*;

    fn policy(name: String, state: PolicyState, conflicting: u32) -> (String, Arc<Policy>) {
        let mut policy = Policy {
            name: name.clone(),
            uid: name.clone(),
            version: "1".to_owned(),
            generation: 1,
            created: None,
            is_deleting: false,
            has_finalizer: true,
            rollback_to: None,
            approved: std::collections::BTreeSet::new(),
            spec: Err(String::new()),
            status: PolicyStatus { state, ..PolicyStatus::default() },
        };
        policy.status.nodes.conflicting = conflicting;
        (name, Arc::new(policy))
    }

    #[test]
    fn policies_that_need_attention_have_series_in_large_clusters() {
        let complete =
            (0..200).map(|number| policy(format!("a-{number:03}"), PolicyState::Complete, 0));
        let others = [
            policy("y".to_owned(), PolicyState::RollingOut, 2),
            policy("z".to_owned(), PolicyState::Stopped, 0),
        ];
        let known =
            KnownPolicies { all: complete.chain(others).collect(), ..KnownPolicies::default() };
        let known = watch::Sender::new(Arc::new(known));
        let cluster = watch::Sender::default();
        let view = PolicyView::new(known.subscribe(), cluster.subscribe());
        let mut registry = Registry::default();
        register(&mut registry, view, PolicyRequests::default());
        let (_, text) = exposition::write(&registry, std::iter::empty()).unwrap();
        for series in [
            "octavo_policy_state{policy=\"z\",state=\"Stopped\"} 1",
            "octavo_policy_nodes{policy=\"y\",state=\"conflicting\"} 2",
            "octavo_policy_state{policy=\"a-097\",state=\"Complete\"} 1",
        ] {
            assert!(text.contains(series), "{series}: {text}");
        }
        assert!(!text.contains("a-098"), "{text}");
    }
}
