//! Type of a node's units.
//!
//! An agent identifies the devices themselves. On nodes without an agent, labels set by other software are resolved
//! through the catalog, so that their product names become Octavo's type names.

use std::collections::BTreeMap;

use octavo_model::accelerators::{AliasKind, Catalog};
use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;

use crate::cluster::ClusterNode;
use crate::type_labels::{
    MEMORY_LABELS, MIXED, TYPE_LABEL, UNKNOWN, parse_product_label, parse_type, type_of,
    vendor_labels,
};
use crate::type_source::TypeSource;

/// Type of the units of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitType {
    /// This type.
    Known(TypeName),
    /// The node has several types, and the resource does not distinguish them.
    Mixed,
    /// No source reports the type.
    Unknown,
}

/// Labels by which Node Feature Discovery reports a vendor's devices. Source: Node Feature Discovery, `pci` source.
const NFD_PRESENCE_LABELS: [&str; 6] = [
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-1002.present",
    "feature.node.kubernetes.io/amd-gpu",
    "feature.node.kubernetes.io/pci-1d0f.present",
];

/// Catalog with a cache of resolved label values.
#[derive(Debug)]
pub(super) struct TypeResolver {
    catalog: Catalog,
    known: BTreeMap<(AliasKind, String), Option<TypeName>>,
}

/// Maximum number of cached names: anyone who may label nodes chooses the values.
const MAX_CACHED_NAMES: usize = 4096;

impl TypeResolver {
    /// Creates an empty cache of names, resolved by this catalog.
    pub(super) fn new(catalog: Catalog) -> Self {
        Self { catalog, known: BTreeMap::new() }
    }

    /// Type of a node's devices according to its labels, and the label it comes from.
    pub(super) fn resolve(&mut self, node: &ClusterNode) -> (UnitType, TypeSource) {
        let own = node.label(TYPE_LABEL);
        if own == Some(MIXED) {
            return (UnitType::Mixed, TypeSource::Label(TYPE_LABEL));
        }
        if let Some(type_name) = own.and_then(parse_type) {
            return (UnitType::Known(type_name), TypeSource::Label(TYPE_LABEL));
        }
        for (kind, label) in vendor_labels() {
            if let Some(type_name) = node.label(label).and_then(|value| self.of(kind, value)) {
                return (UnitType::Known(type_name), TypeSource::Label(label));
            }
        }
        let present = NFD_PRESENCE_LABELS.into_iter().find(|key| node.label(key) == Some("true"));
        (UnitType::Unknown, present.map_or(TypeSource::Unknown, TypeSource::Label))
    }

    fn of(&mut self, kind: AliasKind, value: &str) -> Option<TypeName> {
        let cache_key = (kind, parse_product_label(value).0.to_owned());
        if let Some(known) = self.known.get(&cache_key) {
            return known.clone();
        }
        let found = type_of(&self.catalog, kind, value);
        if self.known.len() < MAX_CACHED_NAMES {
            self.known.insert(cache_key, found.clone());
        }
        found
    }
}

/// Memory of one unit of a resource according to the node's labels. A resource whose units are not whole devices has
/// its own memory label.
pub(super) fn memory_from_labels(
    node: &ClusterNode,
    resource: &str,
    is_whole: bool,
) -> Option<Mebibytes> {
    let own = node.label(&format!("{resource}.memory"));
    let of_device = MEMORY_LABELS.into_iter().filter_map(|key| node.label(key));
    let mut values = own.into_iter().chain(of_device.filter(|_| is_whole));
    values.find_map(|text| text.parse().ok()).map(Mebibytes::new)
}

/// Prefix of AWS types.
const AWS_TYPE_PREFIX: &str = "aws-";

impl From<Option<TypeName>> for UnitType {
    fn from(type_name: Option<TypeName>) -> Self {
        type_name.map_or(Self::Unknown, Self::Known)
    }
}

impl UnitType {
    /// The type, if known.
    pub fn type_name(&self) -> Option<&TypeName> {
        match self {
            Self::Known(type_name) => Some(type_name),
            Self::Mixed | Self::Unknown => None,
        }
    }

    /// Type name, `mixed` or `unknown`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(type_name) => type_name.as_str(),
            Self::Mixed => MIXED,
            Self::Unknown => UNKNOWN,
        }
    }

    /// Display name: `NVIDIA H200 141GB`.
    pub fn display_name(&self) -> String {
        let type_name = match self {
            Self::Known(type_name) => type_name,
            Self::Mixed => return "Several types on one node".to_owned(),
            Self::Unknown => return "GPU - type unknown".to_owned(),
        };
        // Vendors write models in capitals, except AWS, which uses words.
        let all = type_name.as_str();
        let words = all.split('-').enumerate().map(|(place, word)| {
            let letters = word.bytes().take_while(u8::is_ascii_lowercase).count();
            let is_word = place > 0 && letters > 2 && all.starts_with(AWS_TYPE_PREFIX);
            match word.split_at_checked(1).filter(|_| is_word) {
                Some((first, rest)) => format!("{}{rest}", first.to_ascii_uppercase()),
                None => word.to_ascii_uppercase(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Display name with a space before the unit of the memory: `NVIDIA H200 141 GB`.
    pub fn product_name(&self) -> String {
        let name = self.display_name();
        let memory = name.rsplit_once(' ').filter(|(_, last)| {
            let amount = last.strip_suffix("GB").unwrap_or_default();
            !amount.is_empty() && amount.bytes().all(|byte| byte.is_ascii_digit())
        });
        match memory {
            Some((product, memory)) => format!("{product} {} GB", memory.trim_end_matches("GB")),
            None => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_has_a_space_before_the_unit() {
        for (name, product) in [
            ("nvidia-h200-141gb", "NVIDIA H200 141 GB"),
            ("nvidia-rtx-pro-6000-96gb", "NVIDIA RTX PRO 6000 96 GB"),
            ("our-own", "OUR OWN"),
        ] {
            assert_eq!(UnitType::Known(name.parse().unwrap()).product_name(), product);
        }
    }

    fn named(labels: &[(&str, &str)]) -> (String, &'static str) {
        let mut names = TypeResolver::new(Catalog::built_in());
        let node = ClusterNode {
            labels: labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..ClusterNode::default()
        };
        let (kind, source) = names.resolve(&node);
        // The second call reads the cache.
        assert_eq!(names.resolve(&node), (kind.clone(), source));
        (kind.as_str().to_owned(), source.as_str())
    }

    #[test]
    fn type_falls_back_to_vendor_labels() {
        let gfd = "nvidia.com/gpu.product";
        for (labels, type_name, source) in [
            (
                &[(TYPE_LABEL, "nvidia-h200-141gb"), (gfd, "NVIDIA-L4")][..],
                "nvidia-h200-141gb",
                TYPE_LABEL,
            ),
            (&[(TYPE_LABEL, "mixed")], "mixed", TYPE_LABEL),
            (&[(TYPE_LABEL, "unknown"), (gfd, "NVIDIA-L4")], "nvidia-l4-24gb", gfd),
            (&[(gfd, "NVIDIA-H100-80GB-HBM3")], "nvidia-h100-80gb", gfd),
            (&[(gfd, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED")], "nvidia-h100-80gb", gfd),
            (&[(gfd, "NVIDIA-L4-SHARED")], "nvidia-l4-24gb", gfd),
            (
                &[("node.kubernetes.io/instance-type", "inf2.xlarge")],
                "aws-inferentia2-32gb",
                "node.kubernetes.io/instance-type",
            ),
            (&[(NFD_PRESENCE_LABELS[0], "true")], "unknown", NFD_PRESENCE_LABELS[0]),
            (&[(gfd, "Abacus-3000")], "unknown", "nothing"),
            (&[], "unknown", "nothing"),
        ] {
            assert_eq!(named(labels), (type_name.to_owned(), source), "{labels:?}");
        }
    }

    #[test]
    fn type_has_a_display_name() {
        for (type_name, title) in [
            ("nvidia-h200-141gb", "NVIDIA H200 141GB"),
            ("nvidia-rtx-pro-6000-96gb", "NVIDIA RTX PRO 6000 96GB"),
            ("amd-mi300x-192gb", "AMD MI300X 192GB"),
            ("aws-inferentia2-32gb", "AWS Inferentia2 32GB"),
        ] {
            let kind = UnitType::Known(type_name.parse().unwrap());
            assert_eq!(kind.display_name(), title);
        }
        assert_eq!(UnitType::Unknown.display_name(), "GPU - type unknown");
    }
}
