//! The targets.

mod api;
mod cluster;
mod files;
mod node;
mod stream;
mod sysfs;

use super::fuzzer::Target;
use super::seeds;

/// Name and constructor of a target.
type NamedTarget = (&'static str, fn() -> Target);

/// All targets.
pub(crate) const TARGETS: &[NamedTarget] = &[
    ("aggregator-messages", stream::aggregator_messages),
    ("audit-chain", files::audit_chain),
    ("budgets", files::budgets),
    ("cdi", files::cdi),
    ("cgroup-paths", node::cgroup_paths),
    ("checkpoint", files::checkpoint),
    ("control-requests", node::control_requests),
    ("elf", node::elf),
    ("hardware-profiles", files::hardware_profiles),
    ("history", files::history),
    ("hooks", files::hooks),
    ("instances", cluster::instances),
    ("inventory", files::inventory),
    ("journal", files::journal),
    ("kubelet-checkpoint", node::kubelet_checkpoint),
    ("label-set", files::label_set),
    ("layouts", files::layouts),
    ("measured-rows", files::measured_rows),
    ("names", api::names),
    ("nodes", cluster::nodes),
    ("opencost", files::opencost),
    ("plugin-config", files::plugin_config),
    ("pod-resources", node::pod_resources),
    ("pods", cluster::pods),
    ("policy", cluster::policy),
    ("policy-record", cluster::policy_record),
    ("prices", files::prices),
    ("query", api::query),
    ("rest", api::rest),
    ("selector", api::selector),
    ("status", stream::status),
    ("sysfs", sysfs::sysfs),
    ("tokens", cluster::tokens),
    ("trace", files::trace),
    ("watch-events", stream::watch_events),
];

/// The target with this name, with the inputs that once violated its properties as further seeds.
///
/// # Panics
/// If there is no such target.
pub(crate) fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, new) = found.unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        panic!("no target {name}; the targets are {}", names.join(", "))
    });
    let mut target = new();
    target.seeds.extend(seeds::violations(name));
    target
}
