//! Rules of mig-parted for the GPUs of one node, as rules of Octavo's format.
//!
//! In mig-parted's format, rules can select GPUs by PCI ids, and the last rule that selects a GPU takes precedence. Octavo's format has
//! no PCI ids, and each GPU has only one rule. So PCI ids are resolved for the product of the node, and overlaps are removed.

use std::collections::BTreeSet;

use octavo_fleet::type_labels::parse_product_label;
use octavo_model::accelerators::{Facts, identify, products};
use octavo_model::id::Sku;
use octavo_model::inventory::{Identity, PciIds};
use octavo_model::quantity::Mebibytes;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{
    Criteria, DeviceFilter, IndexRange, Layout, MigSpec, Rule, Selector, TimeSlicing,
};

use super::objects::NodeObject;

/// PCI vendor id of NVIDIA.
const NVIDIA: u16 = 0x10de;
/// Maximum number of GPUs of a node that a rule selects by index.
const MAX_INDICES: u32 = 1024;

/// A rule for some GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeRule {
    pub(super) gpus: Gpus,
    pub(super) mig: MigSpec,
}

/// GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gpus {
    /// Those with these indices.
    Listed(BTreeSet<u32>),
    /// Those that no other rule selects.
    Others,
}

/// Product of the GPUs of a node, as its labels report it.
#[derive(Debug, Clone)]
pub(super) struct Product {
    /// Type.
    pub(super) type_name: Option<String>,
    /// Catalog entries that the product can be.
    entries: Vec<&'static Facts>,
}

impl Product {
    /// Returns the product of a node: an agent reports the type, and GPU Feature Discovery the driver's name, with words for
    /// partitions and sharing.
    pub(super) fn of_node(node: &NodeObject) -> Self {
        let (named, sku) = named_product(node);
        let type_name = node.label("octavo.dev/type").map(str::to_owned).or(named);
        let sku = sku.as_ref().map(Sku::as_str);
        let of_type =
            products().iter().filter(|facts| Some(facts.type_name) == type_name.as_deref());
        let (same, others): (Vec<_>, Vec<_>) = of_type.partition(|facts| Some(facts.sku) == sku);
        Self { entries: if same.is_empty() { others } else { same }, type_name }
    }

    /// Returns whether the filters match the product; `None` if this depends on ids that no label reports.
    fn matches(&self, filters: &[DeviceFilter]) -> Option<bool> {
        let patterns: Vec<_> = self.entries.iter().flat_map(|facts| facts.pci_ids).collect();
        let matching = patterns.iter().filter(|pattern| {
            filters.iter().any(|filter| {
                let subsystem = filter.subsystem.map(|(device, vendor)| (vendor, device));
                pattern.device == (filter.vendor, filter.device)
                    && subsystem.is_none_or(|wanted| pattern.subsystem == Some(wanted))
            })
        });
        match matching.count() {
            _ if patterns.is_empty() => None,
            0 => Some(false),
            count if count == patterns.len() => Some(true),
            _ => None,
        }
    }
}

/// Returns type and catalog id of the product that GPU Feature Discovery reports.
fn named_product(node: &NodeObject) -> (Option<String>, Option<Sku>) {
    let label = node.label("nvidia.com/gpu.product").unwrap_or_default();
    let (name, partition, _) = parse_product_label(label);
    // With the strategy `single`, the label has the memory of a partition.
    let memory = node.count("nvidia.com/gpu.memory").filter(|_| partition.is_none());
    let ids =
        PciIds { vendor: NVIDIA, device: 0, subsystem_vendor: 0, subsystem_device: 0, class: None };
    let name = Some(name).filter(|name| !name.is_empty());
    match identify(ids, name, memory.map(Mebibytes::new)) {
        Identity::Known { type_name, sku } | Identity::Manual { type_name, sku } => {
            (Some(type_name.to_string()), sku)
        }
        Identity::Unknown => (None, None),
    }
}

/// Returns the rules of a layout for the GPUs of a node with this product; `None` if a filter by PCI ids cannot be resolved.
pub(super) fn node_rules(layout: &Layout, product: &Product) -> Option<Vec<NodeRule>> {
    let mut selected: BTreeSet<u32> = BTreeSet::new();
    let mut rules = Vec::new();
    // The last rule takes precedence.
    for rule in layout.rules.iter().rev() {
        let Some(mig) = rule.mig.clone().map(without_positions) else { continue };
        let criteria = rule.devices.criteria();
        let filters = criteria.and_then(|criteria| criteria.device_filter.as_deref());
        if !filters.map_or(Some(true), |filters| product.matches(filters))? {
            continue;
        }
        let Some(ranges) = criteria.and_then(|criteria| criteria.index.as_deref()) else {
            rules.push(NodeRule { gpus: Gpus::Others, mig });
            break;
        };
        let ranges = ranges.iter().flat_map(|range| range.first..=range.last.min(MAX_INDICES));
        let mut gpus: BTreeSet<u32> = ranges.collect();
        gpus.retain(|gpu| selected.insert(*gpu));
        if !gpus.is_empty() {
            rules.push(NodeRule { gpus: Gpus::Listed(gpus), mig });
        }
    }
    rules.reverse();
    Some(rules)
}

/// Converts the rules to those of a layout that shares all GPUs in this way. Without rules, partitions stay unchanged.
pub(super) fn octavo_rules(rules: &[NodeRule], sharing: Option<&TimeSlicing>) -> Vec<Rule> {
    let is_only = rules.len() <= 1;
    let rest = |is_only: bool| if is_only { Selector::All } else { Selector::Rest };
    let rule = |devices: Selector, mig: Option<MigSpec>| Rule {
        position: SourcePosition::default(),
        devices,
        mig,
        time_slicing: sharing.cloned(),
        claims: false,
    };
    let mut all: Vec<Rule> = Vec::new();
    let mut others = None;
    for NodeRule { gpus, mig } in rules {
        match gpus {
            Gpus::Others => others = Some(rule(rest(is_only), Some(mig.clone()))),
            Gpus::Listed(gpus) => {
                let index = gpus.iter().map(|gpu| IndexRange { first: *gpu, last: *gpu });
                let criteria = Criteria { index: Some(index.collect()), ..Criteria::default() };
                all.push(rule(Selector::Matching(criteria), Some(mig.clone())));
            }
        }
    }
    // NVIDIA's plugin also shares the GPUs that no rule partitions.
    let unpartitioned = || sharing.map(|_| rule(rest(rules.is_empty()), None));
    all.extend(others.or_else(unpartitioned));
    all
}

/// Removes the source positions, so that equal rules are equal.
fn without_positions(mig: MigSpec) -> MigSpec {
    match mig {
        MigSpec::Disabled => MigSpec::Disabled,
        MigSpec::Enabled(mut counts) => {
            for count in &mut counts {
                count.position = SourcePosition::default();
            }
            MigSpec::Enabled(counts)
        }
    }
}
