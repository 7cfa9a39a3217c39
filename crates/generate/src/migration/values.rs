//! Values of the Helm chart for a cluster with the GPU Operator.

use octavo_node::mig_strategy::MigStrategy;

use super::objects::{ClusterPolicy, Operand};

/// Facts that determine the values.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueFacts<'a> {
    pub(super) policy: &'a ClusterPolicy,
    /// True if a node has a MIG configuration.
    pub(super) has_mig: bool,
    /// True if a node offers NVIDIA's resources.
    pub(super) has_resources: bool,
}

/// Returns the text of the values file, without its header.
pub(super) fn values(facts: ValueFacts<'_>) -> String {
    let spec = &facts.policy.spec;
    let strategy = facts.policy.strategy();
    let mut text = format!(
        "tier: applier\nagent:\n  # mig.strategy of ClusterPolicy {}.\n  migStrategy: {}\n",
        facts.policy.metadata.name,
        // An empty value is the default of the agent, which is another one with `embedded`.
        if strategy == MigStrategy::None { "none" } else { strategy.as_ref() },
    );
    if facts.has_mig {
        text.push_str(
            "  # The agent replaces mig-manager: it pauses operands that hold GPUs, restarts NVIDIA's device plugin after a change, and\n  \
             # reports nvidia.com/mig.config.state. Disable mig-manager in the GPU Operator first: migManager.enabled=false.\n  \
             compat: mig-manager\n",
        );
    }
    text.push_str("  sharing:\n");
    let has_plugin = Operand::is_enabled(spec.device_plugin.as_ref(), true);
    text.push_str(if has_plugin || facts.has_resources {
        "    # NVIDIA's device plugin continues to offer and share the devices, as the label nvidia.com/device-plugin.config selects. For\n    \
         # the agent's device plugin, first set devicePlugin.enabled=false in the GPU Operator, and then embedded here. Do not use\n    \
         # hand-off with these policies: it changes the label by which they select their nodes.\n    \
         mode: \"off\"\n"
    } else {
        "    # The GPU Operator runs no device plugin, and no node offers devices. If a DRA driver offers them, set \"off\".\n    \
         mode: embedded\n"
    });
    text.push_str("aggregator:\n  followCluster: true\n  policies:\n    enabled: true\n");
    text
}
