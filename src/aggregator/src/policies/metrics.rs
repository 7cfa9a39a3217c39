//! Metrics of the policies.

use std::fmt;

use octavo_kube::policies::PolicyRequests;
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
        let shown = || known.all.values().take(MAX_POLICIES);
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
