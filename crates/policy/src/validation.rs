//! Validation of a spec, with the path of each invalid field.
//!
//! The rules of the custom resource definition reject most invalid specs. The controller checks again, because a cluster can have
//! an older definition, and because only the controller knows the time zones.

use std::fmt;
use std::time::Duration;

use octavo_model::text::join;
use octavo_node::node_object::is_demand_layout;

use crate::spec::{OnFailure, PolicySpec};
use crate::window;

/// Invalid field of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecProblem {
    /// Path of the field, such as `spec.taints[1].key`.
    pub field: String,
    /// Explanation.
    pub message: String,
}

impl fmt::Display for SpecProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Reason why a spec is invalid or cannot be read; `None` if it is valid.
pub(crate) fn invalid(spec: &Result<PolicySpec, String>) -> Option<String> {
    match spec {
        Err(error) => Some(error.clone()),
        Ok(spec) => {
            let problems = problems(spec);
            (!problems.is_empty()).then(|| join(&problems, "; "))
        }
    }
}

/// Returns all invalid fields.
pub fn problems(spec: &PolicySpec) -> Vec<SpecProblem> {
    let mut all = Vec::new();
    let mut add =
        |field: String, message: &str| all.push(SpecProblem { field, message: message.to_owned() });
    if spec.layout.is_none()
        && spec.demand.is_none()
        && spec.node_labels.is_empty()
        && spec.taints.is_empty()
    {
        add("spec".to_owned(), "set at least one of layout, demand, nodeLabels and taints");
    }
    if spec.layout.as_deref().is_some_and(is_demand_layout) {
        add("spec.layout".to_owned(), "names that begin with demand- are reserved for spec.demand");
    }
    demand_problems(spec, &mut add);
    if spec.node_selector.is_empty() {
        add("spec.nodeSelector".to_owned(), "select nodes by at least one label");
    }
    for key in spec.node_labels.keys() {
        let field = || format!("spec.nodeLabels[{key}]");
        if is_reserved(key) {
            add(field(), RESERVED);
        }
        if spec.node_selector.uses(key) {
            add(field(), "a policy cannot set a label of its own nodeSelector");
        }
    }
    for (index, taint) in spec.taints.iter().enumerate() {
        let field = || format!("spec.taints[{index}].key");
        if is_reserved(&taint.key) {
            add(field(), RESERVED);
        }
        let is_same = |other: &octavo_fleet::cluster::Taint| {
            other.key == taint.key && other.effect == taint.effect
        };
        if spec.taints.iter().take(index).any(is_same) {
            add(field(), "the key and effect of a taint must be unique");
        }
    }
    if let Some(drain) = &spec.drain {
        if spec.layout.is_none() {
            add("spec.drain".to_owned(), "a drain requires a layout");
        }
        if drain.timeout.get() < Duration::from_secs(1) {
            add("spec.drain.timeout".to_owned(), "use at least 1s");
        }
    }
    if spec.rollout.node_deadline.get().is_zero() {
        add("spec.rollout.nodeDeadline".to_owned(), "use at least 1s");
    }
    for (index, window) in spec.rollout.windows.iter().enumerate() {
        if let Err((name, message)) = window::check(window) {
            add(format!("spec.rollout.windows[{index}].{name}"), &message);
        }
    }
    all
}

/// Finds the invalid fields of `spec.demand`, and of others that depend on it.
fn demand_problems(spec: &PolicySpec, add: &mut impl FnMut(String, &str)) {
    let Some(demand) = &spec.demand else { return };
    if spec.layout.is_some() {
        add("spec.demand".to_owned(), "a policy has either a layout or demand");
    }
    let periods = [("hold", Some(demand.hold)), ("cooldown", Some(demand.cooldown))];
    for (field, period) in periods.into_iter().chain([("reserveAfter", demand.reserve_after)]) {
        if period.is_some_and(|period| period.get().is_zero()) {
            add(format!("spec.demand.{field}"), "use at least 1s");
        }
    }
    if !(1..=60).contains(&demand.changes_per_hour) {
        add("spec.demand.changesPerHour".to_owned(), "use a number from 1 to 60");
    }
    if demand.evictions_per_hour > 60 {
        add("spec.demand.evictionsPerHour".to_owned(), "use a number from 0 to 60");
    }
    if spec.rollout.on_failure == OnFailure::RollBack {
        add(
            "spec.rollout.onFailure".to_owned(),
            "with demand, only Pause is possible, because the instances of a node have no revisions",
        );
    }
}

const RESERVED: &str =
    "keys of octavo.dev, kubernetes.io, k8s.io and nvidia.com/mig.config are reserved";

/// Returns whether only Kubernetes, Octavo or the layout itself may set this key.
pub fn is_reserved(key: &str) -> bool {
    let (domain, name) = key.split_once('/').unwrap_or(("", key));
    let is_of = |root: &str| {
        domain == root || domain.strip_suffix(root).is_some_and(|sub| sub.ends_with('.'))
    };
    let is_role =
        domain == "node-role.kubernetes.io" && !matches!(name, "control-plane" | "master");
    is_of("octavo.dev")
        || is_of("k8s.io")
        || (is_of("kubernetes.io") && !is_role)
        || key.starts_with("nvidia.com/mig.config")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p2_reserved_keys_are_refused_and_site_keys_are_not() {
        for key in [
            "octavo.dev/layout",
            "type.octavo.dev/a100",
            "nvidia.com/mig.config",
            "nvidia.com/mig.config.state",
            "kubernetes.io/hostname",
            "node.kubernetes.io/unschedulable",
            "topology.k8s.io/zone",
            "node-role.kubernetes.io/control-plane",
        ] {
            assert!(is_reserved(key), "{key}");
        }
        for key in [
            "workload-type",
            "gpu",
            "nvidia.com/gpu",
            "node-role.kubernetes.io/gpu",
            "notoctavo.dev/x",
            "example.com/kubernetes.io",
        ] {
            assert!(!is_reserved(key), "{key}");
        }
    }

    #[test]
    fn i12_every_invalid_field_is_named() {
        let spec: PolicySpec = serde_json::from_value(json!({
            "nodeSelector": {"matchLabels": {"pool": "a"}},
            "nodeLabels": {"octavo.dev/x": "1", "pool": "b"},
            "taints": [
                {"key": "gpu", "value": "a", "effect": "NoSchedule"},
                {"key": "gpu", "value": "b", "effect": "NoSchedule"},
                {"key": "kubernetes.io/x", "effect": "NoExecute"},
            ],
            "drain": {"scope": "affected", "timeout": "0s"},
            "rollout": {"nodeDeadline": "0s", "windows": [
                {"start": "25:00", "duration": "1h"}, {"start": "22:00", "duration": "1h", "timeZone": "Mars/Base"},
                {"start": "22:00", "duration": "25h"}, {"start": "22:00", "duration": "6h", "timeZone": "Europe/Berlin", "days": ["Mon"]},
            ]},
        }))
        .unwrap();
        let fields: Vec<String> = problems(&spec).into_iter().map(|one| one.field).collect();
        assert_eq!(
            fields,
            [
                "spec.nodeLabels[octavo.dev/x]",
                "spec.nodeLabels[pool]",
                "spec.taints[1].key",
                "spec.taints[2].key",
                "spec.drain",
                "spec.drain.timeout",
                "spec.rollout.nodeDeadline",
                "spec.rollout.windows[0].start",
                "spec.rollout.windows[1].timeZone",
                "spec.rollout.windows[2].duration",
            ]
        );
        let empty: PolicySpec = serde_json::from_value(json!({"nodeSelector": {}})).unwrap();
        let fields: Vec<String> = problems(&empty).into_iter().map(|one| one.field).collect();
        assert_eq!(fields, ["spec", "spec.nodeSelector"]);
    }
}
