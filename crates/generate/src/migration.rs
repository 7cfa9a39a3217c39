//! Migration of a cluster with NVIDIA's GPU Operator: layouts, policies and chart values that continue its configuration.
//!
//! ```text
//! ClusterPolicy, ConfigMaps --> configs: MIG configurations, time-slicing ---+
//! Nodes: labels, product -----> rules: for the GPUs of each node ------------+--> layouts, policies, values
//!                                                                            +--> comparison with the labels
//! ```

mod comparison;
mod configs;
mod finding;
mod names;
mod objects;
mod planned;
mod rules;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::cluster::{Operator, Requirement};
use octavo_fleet::hardware_profile::TYPE_LABEL;
use octavo_model::source_position::SourcePosition;
use octavo_model::text::{first_names, join};
use octavo_node::node_object::operands::PLUGIN_CONFIG_LABEL;
use octavo_node::node_object::{MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL};
use octavo_planner::layout::{Dialect, Layout, Layouts};
use octavo_policy::{NodeSelector, PolicySpec, crd};
use thiserror::Error;

pub use self::comparison::{LabelComparison, NO_CHANGE};
pub use self::configs::ParseConfig;
use self::configs::{Configs, NamedSharing, policy_object};
pub use self::finding::Finding;
use self::names::Names;
use self::objects::{ClusterPolicy, NodeObject, Operand};
pub use self::objects::{DEFAULT_NAMESPACE, ObjectError, OperatorObjects};
pub use self::planned::PlannedChange;
use self::rules::{NodeRule, Product, node_rules, octavo_rules};
use self::values::{ValueFacts, values};
use crate::manifest::{CustomObject, named};
use crate::pools::name_part;

/// Label of the nodes that the operator manages.
const GPU_LABEL: &str = "nvidia.com/gpu.present";
/// Retained revisions of a policy, which is the default of the resource type.
const REVISIONS: u32 = 10;
/// Maximum number of names in a message.
const SHOWN: usize = 5;

/// Configuration that continues the configuration of the operator.
#[derive(Debug)]
pub struct Migration {
    /// Name of the `ClusterPolicy`.
    pub source: String,
    /// The layouts, in the dialect of the file that contains them.
    pub layouts: Layouts,
    /// The policies, ordered by name.
    pub policies: Vec<CustomObject<PolicySpec>>,
    /// Text of the values file.
    pub values: String,
    /// The nodes with NVIDIA GPUs, ordered by name.
    pub nodes: Vec<NodeMigration>,
    /// Settings that need attention.
    pub findings: BTreeSet<Finding>,
    /// Notes on settings that Octavo does not use.
    pub notes: BTreeSet<String>,
}

/// A node before and after the migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMigration {
    /// Name of the node.
    pub name: String,
    /// Selected MIG configuration.
    pub mig_config: Option<String>,
    /// Selected configuration of the device plugin.
    pub plugin_config: Option<String>,
    /// NVIDIA's allocatable resources, without their domain, such as `gpu=8`.
    pub resources: String,
    /// Policy, layout and change; `None` if no policy selects the node.
    pub managed: Option<ManagedNode>,
}

/// Result of the migration of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedNode {
    /// Name of the policy.
    pub policy: String,
    /// Name of the layout.
    pub layout: String,
    /// Comparison of the layout with the labels of the node.
    pub comparison: LabelComparison,
}

/// Reason why a cluster cannot be migrated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MigrationError {
    /// There are no settings of the operator.
    #[error(
        "no ClusterPolicy (nvidia.com/v1); the GPU Operator is not installed, or the files do not contain it"
    )]
    NoPolicy,
    /// There are several settings, of which the operator uses only one.
    #[error("several ClusterPolicies: {}; pass only the one in use with -f", first_names(.0, SHOWN))]
    SeveralPolicies(Vec<String>),
    /// There are no nodes.
    #[error("no Node has the label {GPU_LABEL}=true")]
    NoNodes,
}

/// Labels that select the configuration of a node.
type LabelPair<'a> = (Option<&'a str>, Option<&'a str>);
/// Names of the configurations that are in effect on a node.
type ConfigPair = (Option<String>, Option<String>);

/// A node with its desired configuration.
#[derive(Debug)]
struct Candidate<'a> {
    node: &'a NodeObject,
    product: Product,
    labels: LabelPair<'a>,
    /// `None` if the node is not migrated.
    desired: Option<Desired>,
}

/// Configuration that is in effect on a node.
#[derive(Debug)]
struct Desired {
    mig: Option<String>,
    sharing: Option<NamedSharing>,
    rules: Vec<NodeRule>,
}

impl Desired {
    fn pair(&self) -> ConfigPair {
        (self.mig.clone(), self.sharing.as_ref().map(|(key, _)| key.clone()))
    }
}

/// Converts the configuration of a cluster.
pub fn migrate(
    objects: &OperatorObjects,
    parse: ParseConfig<'_>,
) -> Result<Migration, MigrationError> {
    let policy = match objects.policies.as_slice() {
        [] => return Err(MigrationError::NoPolicy),
        [one] => one,
        several => {
            let names = several.iter().map(|one| one.metadata.name.clone());
            return Err(MigrationError::SeveralPolicies(names.collect()));
        }
    };
    let mut nodes: Vec<&NodeObject> =
        objects.nodes.iter().filter(|node| node.label(GPU_LABEL) == Some("true")).collect();
    if nodes.is_empty() {
        return Err(MigrationError::NoNodes);
    }
    nodes.sort_by_key(|node| &node.metadata.name);
    let mut configs = Configs::new(objects, policy, parse);
    check_policy(policy, &mut configs.findings);
    let mut candidates: Vec<Candidate<'_>> =
        nodes.iter().map(|node| candidate(node, &mut configs)).collect();
    let has_mig = candidates.iter().any(|one| one.labels.0.is_some());
    let layouts = assigned_layouts(&mut candidates, &mut configs);
    let (mut policies, mut rows) = assigned_policies(&candidates, &layouts, policy);
    drop_shared(&candidates, &mut policies, &mut rows, &mut configs.findings);
    let has_resources = nodes.iter().any(|node| !node.resources().is_empty());
    Ok(Migration {
        source: policy.metadata.name.clone(),
        layouts: layouts.file,
        policies,
        values: values(ValueFacts { policy, has_mig, has_resources }),
        nodes: rows,
        findings: configs.findings,
        notes: configs.notes,
    })
}

/// Records operands that manage GPUs for virtual machines.
fn check_policy(policy: &ClusterPolicy, findings: &mut BTreeSet<Finding>) {
    let spec = &policy.spec;
    let remedy =
        "Octavo does not manage GPUs of virtual machines; keep the GPU Operator for these nodes";
    for (field, operand) in [
        ("sandboxWorkloads", &spec.sandbox_workloads),
        ("vgpuManager", &spec.vgpu_manager),
        ("vgpuDeviceManager", &spec.vgpu_device_manager),
    ] {
        if Operand::is_enabled(operand.as_ref(), false) {
            let path = format!("spec.{field}.enabled");
            let problem = "GPUs can be passed through to virtual machines".to_owned();
            findings.insert(Finding::new(policy_object(policy), path, problem, remedy));
        }
    }
}

fn candidate<'a>(node: &'a NodeObject, configs: &mut Configs<'_>) -> Candidate<'a> {
    let product = Product::of_node(node);
    let labels = (node.label(MIG_CONFIG_LABEL), node.label(PLUGIN_CONFIG_LABEL));
    let desired = desired(node, &product, labels, configs);
    Candidate { node, product, labels, desired }
}

fn desired(
    node: &NodeObject,
    product: &Product,
    (mig, plugin): LabelPair<'_>,
    configs: &mut Configs<'_>,
) -> Option<Desired> {
    let name = node.metadata.name.as_str();
    let virtual_gpu =
        [("nvidia.com/gpu.workload.config", "vm-"), ("nvidia.com/vgpu.present", "true")];
    for (label, prefix) in virtual_gpu {
        if let Some(value) = node.label(label).filter(|value| value.starts_with(prefix)) {
            let remedy = "no policy selects the node; keep the GPU Operator for it";
            let problem = format!("{value}: the GPUs are virtual or belong to virtual machines");
            configs.findings.insert(Finding::of_label(name, label, problem, remedy));
            return None;
        }
    }
    let state = node.label(MIG_CONFIG_STATE_LABEL).filter(|state| *state != "success");
    if let Some(state) = state.filter(|_| mig.is_some()) {
        let remedy =
            "let mig-manager finish, or set the previous configuration, before you disable it";
        let problem = format!("mig-manager has not applied the configuration: {state}");
        configs.findings.insert(Finding::of_label(name, MIG_CONFIG_STATE_LABEL, problem, remedy));
    }
    let sharing = configs.sharing(name, plugin);
    let rules = match mig {
        None => Vec::new(),
        Some(mig) => {
            let layout = configs.mig(name, mig)?;
            let Some(rules) = node_rules(&layout, product) else {
                let product = product.type_name.as_deref().unwrap_or("of this node");
                let problem = format!(
                    "{mig} selects GPUs by PCI ids, and those of the product {product} are not known"
                );
                let remedy = "write a layout for the node: docs/reference/layouts.md";
                configs.findings.insert(Finding::of_label(name, MIG_CONFIG_LABEL, problem, remedy));
                return None;
            };
            rules
        }
    };
    let sharing = sharing?;
    let mig = mig.map(str::to_owned);
    (mig.is_some() || sharing.is_some()).then_some(Desired { mig, sharing, rules })
}

/// The layouts file, and the names of its layouts.
#[derive(Debug)]
struct AssignedLayouts {
    file: Layouts,
    /// Name of the layout of these configurations on nodes of a type; the type is `None` if it is the same for all types.
    names: BTreeMap<(ConfigPair, Option<String>), String>,
}

/// Creates the layouts. Nodes whose layout would not be determined by their labels are excluded.
fn assigned_layouts(
    candidates: &mut [Candidate<'_>],
    configs: &mut Configs<'_>,
) -> AssignedLayouts {
    let mut all = candidates.iter().filter_map(|one| one.desired.as_ref()).peekable();
    // Without time-slicing, each of them has a MIG configuration.
    let is_mig_only = all.peek().is_some() && all.all(|desired| desired.sharing.is_none());
    if is_mig_only && let Some(common) = configs.common_mig() {
        return unchanged_layouts(candidates, common);
    }
    exclude_ambiguous(candidates, configs);
    let mut variants: BTreeMap<ConfigPair, BTreeMap<&str, &Desired>> = BTreeMap::new();
    for one in candidates.iter() {
        if let Some(desired) = &one.desired {
            let type_name = one.product.type_name.as_deref().unwrap_or_default();
            variants.entry(desired.pair()).or_default().entry(type_name).or_insert(desired);
        }
    }
    let mut taken = Names::default();
    let mut names = BTreeMap::new();
    let mut layouts = Vec::new();
    for (pair, by_type) in variants {
        let parts = [&pair.0, &pair.1].into_iter().flatten().map(String::as_str);
        let parts: Vec<&str> = parts.collect();
        let mut rules = by_type.values().map(|desired| &desired.rules);
        let first = rules.next();
        let is_common = rules.all(|other| Some(other) == first);
        for (type_name, desired) in by_type {
            let own_type = (!is_common).then_some(type_name);
            let key = (pair.clone(), own_type.map(str::to_owned));
            if names.contains_key(&key) {
                continue;
            }
            let identity = [pair.0.as_deref(), pair.1.as_deref(), own_type];
            let name = taken.name(&[&parts[..], own_type.as_slice()].concat(), &identity);
            let sharing = desired.sharing.as_ref().map(|(_, sharing)| sharing);
            let rules = octavo_rules(&desired.rules, sharing);
            let position = SourcePosition::default();
            layouts.push(Layout { name: name.clone(), position, rules });
            names.insert(key, name);
        }
    }
    layouts.sort_by(|one, other| one.name.cmp(&other.name));
    AssignedLayouts { file: Layouts { dialect: Dialect::Octavo, layouts }, names }
}

/// Keeps the used configurations of mig-parted, with their names.
fn unchanged_layouts(candidates: &[Candidate<'_>], mut common: Layouts) -> AssignedLayouts {
    let used = candidates.iter().filter_map(|one| one.desired.as_ref()?.mig.clone());
    let used: BTreeSet<String> = used.collect();
    common.layouts.retain(|layout| used.contains(&layout.name));
    let names = used.into_iter().map(|name| (((Some(name.clone()), None), None), name));
    AssignedLayouts { names: names.collect(), file: common }
}

/// Excludes nodes of one type whose rules differ although their labels are equal: mig-manager generated them for each node.
fn exclude_ambiguous(candidates: &mut [Candidate<'_>], configs: &mut Configs<'_>) {
    let mut known: BTreeMap<(ConfigPair, Option<String>), (String, Vec<NodeRule>)> =
        BTreeMap::new();
    for one in candidates {
        let Some(desired) = &one.desired else { continue };
        let key = (desired.pair(), one.product.type_name.clone());
        let node = one.node.metadata.name.clone();
        let (first, rules) =
            known.entry(key).or_insert_with(|| (node.clone(), desired.rules.clone()));
        if *rules != desired.rules {
            let problem =
                format!("the configuration differs from that of Node {first}, of the same type");
            let remedy = "use another configuration for one of the nodes";
            configs.findings.insert(Finding::of_label(&node, MIG_CONFIG_LABEL, problem, remedy));
            one.desired = None;
        }
    }
}

/// Creates the policies and the rows of the nodes.
fn assigned_policies(
    candidates: &[Candidate<'_>],
    layouts: &AssignedLayouts,
    cluster_policy: &ClusterPolicy,
) -> (Vec<CustomObject<PolicySpec>>, Vec<NodeMigration>) {
    let mut taken = Names::default();
    let mut policies: BTreeMap<String, CustomObject<PolicySpec>> = BTreeMap::new();
    let mut rows = Vec::new();
    for one in candidates {
        let managed = one.desired.as_ref().and_then(|desired| {
            let type_name = one.product.type_name.as_deref();
            let of = |type_name: Option<&str>| {
                layouts.names.get(&(desired.pair(), type_name.map(str::to_owned)))
            };
            let (layout, own_type) = match of(None) {
                Some(layout) => (layout, None),
                None => (of(type_name)?, type_name),
            };
            let policy = policy(one.labels, own_type, layout, &mut taken);
            let name = policy.metadata.name.clone().unwrap_or_default();
            policies.entry(name.clone()).or_insert(policy);
            let sharing = desired.sharing.as_ref().map(|(_, sharing)| sharing);
            let strategy = cluster_policy.strategy();
            let comparison = comparison::compare(one.node, strategy, &desired.rules, sharing);
            Some(ManagedNode { policy: name, layout: layout.clone(), comparison })
        });
        let resources = one.node.resources().into_iter();
        let resources = resources.map(|(name, units)| format!("{name}={units}"));
        rows.push(NodeMigration {
            name: one.node.metadata.name.clone(),
            mig_config: one.labels.0.map(str::to_owned),
            plugin_config: one.labels.1.map(str::to_owned),
            resources: join(resources, ","),
            managed,
        });
    }
    (policies.into_values().collect(), rows)
}

/// Drops policies that also select a node that cannot be migrated, because its labels are those of other nodes.
fn drop_shared(
    candidates: &[Candidate<'_>],
    policies: &mut Vec<CustomObject<PolicySpec>>,
    rows: &mut [NodeMigration],
    findings: &mut BTreeSet<Finding>,
) {
    policies.retain(|policy| {
        let selector = &policy.spec.node_selector;
        let mut excluded = candidates.iter().filter(|one| one.desired.is_none());
        let Some(excluded) = excluded.find(|one| selector.matches(&one.node.metadata.labels)) else {
            return true;
        };
        let is_own = |row: &&mut NodeMigration| {
            row.managed.as_ref().is_some_and(|own| policy.metadata.name.as_ref() == Some(&own.policy))
        };
        for row in rows.iter_mut().filter(is_own) {
            let name = &excluded.node.metadata.name;
            let problem = format!("Node {name}, which cannot be migrated, has the same labels");
            let remedy = "give one of the nodes another configuration, so that a policy can select them separately";
            findings.insert(Finding::of_label(&row.name, MIG_CONFIG_LABEL, problem, remedy));
            row.managed = None;
        }
        false
    });
}

/// Policy that selects nodes by the labels that select their configuration today.
fn policy(
    (mig, plugin): LabelPair<'_>,
    own_type: Option<&str>,
    layout: &str,
    taken: &mut Names,
) -> CustomObject<PolicySpec> {
    let mut node_selector = NodeSelector::default();
    for (key, value) in [(MIG_CONFIG_LABEL, mig), (PLUGIN_CONFIG_LABEL, plugin)] {
        match value {
            Some(value) => {
                node_selector.match_labels.insert(key.to_owned(), value.to_owned());
            }
            None => node_selector.match_expressions.push(Requirement {
                key: key.to_owned(),
                operator: Operator::DoesNotExist,
                values: Vec::new(),
            }),
        }
    }
    if let Some(own_type) = own_type {
        node_selector.match_labels.insert(TYPE_LABEL.to_owned(), own_type.to_owned());
    }
    if node_selector.match_labels.is_empty() {
        node_selector.match_labels.insert(GPU_LABEL.to_owned(), "true".to_owned());
    }
    let parts = [mig, plugin].into_iter().flatten();
    let mut parts: Vec<String> = parts.chain(own_type).map(name_part).collect();
    parts.retain(|part| !part.is_empty());
    if mig.is_none() && plugin.is_none() {
        parts.insert(0, "default".to_owned());
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let name = taken.name(&parts, &[mig, plugin, own_type]);
    CustomObject {
        api_version: "octavo.dev/v1alpha1",
        kind: crd::KIND,
        metadata: named(&name),
        spec: PolicySpec {
            node_selector,
            layout: Some(layout.to_owned()),
            revision_history_limit: REVISIONS,
            ..PolicySpec::default()
        },
    }
}
