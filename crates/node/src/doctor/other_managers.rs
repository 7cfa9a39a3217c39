//! Checks of other software that partitions devices, writes the same labels, or has paused components that use them.

use std::collections::BTreeSet;

use super::drivers::NVIDIA;
use super::facts::{Facts, FeatureLabels, Processes};
use super::{Check, Finding, format_list};
use crate::node_object::operands::{DEPLOY_PREFIX, PAUSED};
use crate::node_object::{LAYOUT_LABEL, MIG_CONFIG_STATE_LABEL};

/// Program name of NVIDIA's MIG manager. Source: NVIDIA mig-parted and k8s-device-plugin, directories of `cmd`.
pub const MIG_MANAGER: &str = "nvidia-mig-manager";
/// Program name of gpu-feature-discovery, with the same source.
pub const GFD: &str = "gpu-feature-discovery";

/// Label value by which mig-manager pauses operands. Source: NVIDIA mig-parted, `cmd/nvidia-mig-manager/reconfigure`.
const PAUSED_BY_MIG_MANAGER: &str = "paused-for-mig-change";
/// Label of GPU Operator that deploys mig-manager.
const DEPLOY_MIG_MANAGER: &str = "nvidia.com/gpu.deploy.mig-manager";

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let check = Check::OtherManagers;
    if !NVIDIA.status(facts).is_working() {
        let evidence = "no NVIDIA driver is known to be loaded, and Octavo does not conflict with \
                        other managers on devices of other vendors";
        return vec![check.not_applicable(evidence)];
    }
    let labels = facts.labels.as_ref().ok().and_then(Option::as_ref);
    let found = [
        mig_manager_finding(facts, labels),
        duplicate_labels_finding(facts, labels),
        labels.and_then(paused_operands_finding),
    ];
    let found: Vec<Finding> = found.into_iter().flatten().collect();
    if found.is_empty() {
        return vec![no_other_manager_finding(facts, labels)];
    }
    found
}

/// Returns `true` if a program is known to be running.
fn is_running(facts: &Facts<'_>, program: &str) -> bool {
    let processes = facts.processes.as_ref();
    processes.is_ok_and(|processes| processes.programs.contains(program))
}

fn no_other_manager_finding(facts: &Facts<'_>, labels: Option<&FeatureLabels>) -> Finding {
    let check = Check::OtherManagers;
    let node = labels.filter(|labels| labels.is_node());
    let why = match &facts.processes {
        Ok(Processes { hidden: None, .. }) => None,
        Ok(Processes { hidden: Some(_), .. }) => Some("not all processes are visible"),
        Err(why) => Some(why.as_str()),
    };
    match (why, node) {
        (Some(why), None) => {
            check.unknown(format!("{why}, and no Node labels were specified (--labels)"))
        }
        (None, _) => check.ok(format!("neither {MIG_MANAGER} nor {GFD} is running here")),
        (Some(_), Some(node)) => {
            check.ok(format!("{} shows no other program that partitions or labels", node.place))
        }
    }
}

/// Finding for mig-manager beside a layout of Octavo: each reverts the other's changes.
fn mig_manager_finding(facts: &Facts<'_>, labels: Option<&FeatureLabels>) -> Option<Finding> {
    let get = |key: &str| labels.and_then(|labels| labels.get(key));
    let place = labels.map_or("", |labels| labels.place.as_str());
    let manager = if is_running(facts, MIG_MANAGER) {
        format!("{MIG_MANAGER} is running here")
    } else if get(DEPLOY_MIG_MANAGER) == Some("true") {
        format!("{place} has {DEPLOY_MIG_MANAGER}=true")
    } else {
        return None;
    };
    let check = Check::OtherManagers;
    let manager = match get(MIG_CONFIG_STATE_LABEL) {
        Some(state) => format!("{manager} ({MIG_CONFIG_STATE_LABEL}={state})"),
        None => manager,
    };
    let agent = facts.layout.as_ref().ok().and_then(Option::as_ref);
    let agent = agent.filter(|layout| layout.is_agent);
    let ours = agent.and_then(|layout| layout.name.as_deref()).or_else(|| get(LAYOUT_LABEL));
    Some(match ours {
        None => check.ok(format!("{manager}, and no Octavo layout is known to be selected")),
        Some(layout) => check.warning(
            format!(
                "{manager}, and the Octavo layout {layout} is selected: both partition the \
                     GPUs"
            ),
            "use only one of them: disable mig-manager (GPU Operator: migManager.enabled=false; \
             with --compat mig-manager the agent replaces it), or remove the layout (`kubectl \
             label node NODE octavo.dev/layout-`)",
        ),
    })
}

/// Finding for two feature files with the same keys: the last one read takes precedence.
fn duplicate_labels_finding(facts: &Facts<'_>, labels: Option<&FeatureLabels>) -> Option<Finding> {
    let labels = labels.filter(|labels| !labels.is_node())?;
    let is_nvidias = |key: &&String| key.starts_with("nvidia.com/");
    let first = labels.labels.keys().find(is_nvidias)?;
    let other = match &labels.gfd {
        Some(path) => format!("{path} exists"),
        None if is_running(facts, GFD) => format!("{GFD} is running here"),
        None => return None,
    };
    let evidence = format!(
        "{} has {first} and similar labels, and {other}: two programs write the same labels",
        labels.place
    );
    let remedy = "use only one writer: set --nvidia-labels off for the agent, or remove \
                  gpu-feature-discovery and its feature file";
    Some(Check::OtherManagers.warning(evidence, remedy))
}

/// Finding for operands that were paused for a change and have not been resumed.
fn paused_operands_finding(labels: &FeatureLabels) -> Option<Finding> {
    let is_paused = |value: &str| [PAUSED, PAUSED_BY_MIG_MANAGER].contains(&value);
    let all = labels.labels.iter();
    let all = all.filter(|(key, value)| key.starts_with(DEPLOY_PREFIX) && is_paused(value));
    let keys: BTreeSet<String> = all.map(|(key, value)| format!("{key}={value}")).collect();
    if keys.is_empty() {
        return None;
    }
    let keys: Vec<String> = keys.into_iter().collect();
    let evidence =
        format!("{} has {}: these operands are paused here", labels.place, format_list(&keys));
    let remedy = "operands are paused for at most two minutes during a change of partitions. If \
                  they stay paused, check that the agent or mig-manager that paused them is \
                  running, or resume them: `kubectl label node NODE KEY=true --overwrite`";
    Some(Check::OtherManagers.warning(evidence, remedy))
}
