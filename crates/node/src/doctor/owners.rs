//! Checks of devices with several owners: two resource names, two device plugins, or time-slicing.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::resource::ShareId;
use octavo_model::text::join;

use super::allocatable::nvidia_resources;
use super::facts::{Facts, FeatureLabels, Kubelet};
use super::{Check, Finding, count_noun, format_list};
use crate::node_object::LAYOUT_LABEL;
use crate::node_object::operands::PLUGIN_CONFIG_LABEL;

/// Prefixes of the sockets and configurations of Octavo's agent, and of the sockets of NVIDIA's plugin.
const OCTAVO_PREFIX: &str = "octavo-";
const NVIDIA_PREFIX: &str = "nvidia-";
const SOCKET: &str = ".sock";
const RESOURCES: &str = "nvidia.com/";

/// Findings for devices behind two resources, whose plugins allocate them independently. `claimed` are findings for
/// devices that DRA claims can be allocated too.
pub(super) fn owners(facts: &Facts<'_>, kubelet: &Kubelet, claimed: Vec<Finding>) -> Vec<Finding> {
    let check = Check::ResourceOwners;
    let duplicates = duplicate_ids(kubelet);
    let mut found = claimed;
    if let Ok(twice) = &duplicates
        && !twice.is_empty()
    {
        let remedy = "two device plugins allocate the same devices, so pods can get the same \
                      device: remove one plugin. If a resource was just renamed, wait until the \
                      pods of the old resource have terminated";
        found.push(check.failing(format_list(twice), remedy));
    }
    let rivals = resources_with_two_plugins(kubelet);
    if !rivals.is_empty() {
        let directory = &facts.roots.kubelet;
        let evidence = format!(
            "{directory}/device-plugins has sockets of NVIDIA's device plugin and of Octavo's agent for {}",
            format_list(&rivals)
        );
        let remedy = "use only one device plugin: remove NVIDIA's from this node (GPU Operator: \
                      devicePlugin.enabled=false), or run the agent with --sharing hand-off";
        found.push(check.warning(evidence, remedy));
    }
    match duplicates {
        _ if !found.is_empty() => found,
        Ok(_) => vec![
            check.ok("no device is offered by two resources or allocated by two device plugins"),
        ],
        Err(why) => vec![check.unknown(why)],
    }
}

/// Device ids that are offered under several resource names, with these names.
fn duplicate_ids(kubelet: &Kubelet) -> Result<Vec<String>, String> {
    let all = match &kubelet.allocatable {
        Ok(Some(all)) => nvidia_resources(all),
        Ok(None) | Err(_) => return Err(kubelet.unknown_reason()),
    };
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, ids) in &all {
        for id in ids {
            names.entry(ShareId::uuid_part(id)).or_default().insert(name);
        }
    }
    let twice = names.iter().filter(|(_, names)| names.len() > 1);
    let twice =
        twice.map(|(id, names)| format!("{id} is offered as {}", join(names.iter(), " and ")));
    Ok(twice.collect())
}

/// Resources for which both the agent and NVIDIA's plugin have a socket.
fn resources_with_two_plugins(kubelet: &Kubelet) -> Vec<String> {
    let Ok(sockets) = &kubelet.sockets else {
        return Vec::new();
    };
    let ours = sockets.iter();
    let names = ours.filter_map(|name| name.strip_prefix(OCTAVO_PREFIX)?.strip_suffix(SOCKET));
    let both = names.filter(|name| sockets.contains(&format!("{NVIDIA_PREFIX}{name}{SOCKET}")));
    both.map(|name| format!("{RESOURCES}{name}")).collect()
}

pub(super) fn time_slicing(facts: &Facts<'_>, kubelet: &Kubelet) -> Finding {
    let check = Check::TimeSlicing;
    let Ok(Some(all)) = &kubelet.allocatable else {
        let finding = time_slicing_from_labels(facts);
        return finding.unwrap_or_else(|| check.unknown(kubelet.unknown_reason()));
    };
    let all = nvidia_resources(all);
    let mut shared = Vec::new();
    let mut are_ours = true;
    for (name, ids) in &all {
        let replicas = ids.iter().filter(|id| id.contains("::"));
        let devices: BTreeSet<&str> = replicas.clone().map(|id| ShareId::uuid_part(id)).collect();
        let devices = count_noun(devices.len(), "device", "devices");
        let count = replicas.count();
        if count > 0 {
            let replicas = count_noun(count, "replica", "replicas");
            shared.push(format!("{name}: {replicas} of {devices}"));
            let resource = name.strip_prefix(RESOURCES).unwrap_or(name);
            let ours = format!("{OCTAVO_PREFIX}{resource}{SOCKET}");
            are_ours &= kubelet.sockets.as_ref().is_ok_and(|all| all.contains(&ours));
        }
    }
    let summary = format_list(&shared);
    if shared.is_empty() {
        return check.not_applicable("no device is time-sliced");
    }
    if are_ours {
        return check.ok(format!("{summary}, through Octavo's device plugin"));
    }
    if let Err(why) = &kubelet.sockets {
        let evidence = format!("{summary}; the device plugin is unknown: {why}");
        return check.ok(evidence);
    }
    nvidia_time_slicing_finding(facts, &summary)
}

/// Finding for time-slicing by NVIDIA's plugin, with Octavo's configuration or another one.
fn nvidia_time_slicing_finding(facts: &Facts<'_>, summary: &str) -> Finding {
    let check = Check::TimeSlicing;
    let labels = facts.labels.as_ref().ok().and_then(Option::as_ref);
    let node = labels.filter(|labels| labels.is_node());
    let Some(node) = node else {
        let evidence = format!(
            "{summary}, through NVIDIA's device plugin; a Node label contains its configuration \
             (--labels)"
        );
        return check.ok(evidence);
    };
    let which = match node.get(PLUGIN_CONFIG_LABEL) {
        Some(ours) if ours.starts_with(OCTAVO_PREFIX) => {
            let evidence = format!(
                "{summary}, through NVIDIA's device plugin, configured by the layout \
                 ({PLUGIN_CONFIG_LABEL}={ours})"
            );
            return check.ok(evidence);
        }
        Some(other) => {
            format!("a configuration not written by Octavo ({PLUGIN_CONFIG_LABEL}={other})")
        }
        None => "its own configuration".to_owned(),
    };
    let evidence = format!("{summary}, through NVIDIA's device plugin with {which}");
    let agent = facts.layout.as_ref().ok().and_then(Option::as_ref);
    let chosen = agent.and_then(|layout| layout.name.as_deref().filter(|_| layout.is_agent));
    let Some(layout) = chosen.or_else(|| node.get(LAYOUT_LABEL)) else {
        return check.ok(evidence);
    };
    let remedy = "the layout's time-slicing has no effect with this configuration. Run `kubectl \
                  label node NODE nvidia.com/device-plugin.config-` and remove replicas from the \
                  plugin's default configuration, or remove timeSlicing from the layout";
    check.warning(format!("{evidence}, while layout {layout} is selected"), remedy)
}

/// Finding from labels of gpu-feature-discovery or Octavo, if the kubelet's data is unavailable.
pub(super) fn time_slicing_from_labels(facts: &Facts<'_>) -> Option<Finding> {
    let labels: &FeatureLabels = facts.labels.as_ref().ok()?.as_ref()?;
    let strategies = labels.labels.iter().filter(|(key, value)| {
        key.starts_with(RESOURCES) && key.ends_with(".sharing-strategy") && *value != "none"
    });
    let summary: Vec<String> = strategies
        .map(|(key, value)| {
            let resource = key.trim_end_matches(".sharing-strategy");
            let replicas = labels.get(&format!("{resource}.replicas")).unwrap_or("?");
            format!("{resource}: {value}, {replicas} replicas each")
        })
        .collect();
    if summary.is_empty() {
        return None;
    }
    let summary = format!("{} shows {}", labels.place, format_list(&summary));
    if labels.get(PLUGIN_CONFIG_LABEL).is_some() {
        return Some(nvidia_time_slicing_finding(facts, &summary));
    }
    // The labels may stem from Octavo's device plugin or from the default of NVIDIA's plugin.
    let evidence = format!(
        "{summary}; only the kubelet's directory shows which device plugin \
                            allocates them"
    );
    Some(Check::TimeSlicing.ok(evidence))
}
