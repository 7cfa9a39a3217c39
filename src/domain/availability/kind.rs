//! Type of a node's units, and the source of that type.
//!
//! An agent identifies the devices themselves. On nodes without an agent, labels set by other software are resolved
//! through the catalog, so that their product names become Octavo's type names.

use std::collections::BTreeMap;

use super::shape::parts_of_product;
use crate::domain::accelerators::{AliasKind, Catalogue, Lookup};
use crate::domain::cluster::ClusterNode;
use crate::domain::id::TypeName;
use crate::domain::quantity::Mebibytes;

/// Type of the units of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// This type.
    Known(TypeName),
    /// The node has several types, and the resource does not distinguish them.
    Mixed,
    /// No source reports the type.
    Unknown,
}

/// Source of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The node's agent, from the devices.
    Agent,
    /// This Node label.
    Label(&'static str),
    /// No source.
    Nothing,
}

/// Octavo's type label, and its value for several types.
const TYPE: &str = "octavo.dev/type";
const MIXED: &str = "mixed";
/// Labels by which Node Feature Discovery reports a vendor's devices. Source: Node Feature Discovery, `pci` source.
const PRESENT: [&str; 6] = [
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-1002.present",
    "feature.node.kubernetes.io/amd-gpu",
    "feature.node.kubernetes.io/pci-1d0f.present",
];
/// Labels with the memory of one device, in MiB.
const MEMORY: [&str; 2] = ["octavo.dev/memory-mib", "nvidia.com/gpu.memory"];
/// NVIDIA's product label.
pub(super) const PRODUCT: &str = "nvidia.com/gpu.product";

/// Catalog with a cache of resolved label values.
#[derive(Debug)]
pub struct Names {
    catalogue: Catalogue,
    known: BTreeMap<(AliasKind, String), Option<TypeName>>,
}

/// Maximum number of cached names: anyone who may label nodes chooses the values.
const MOST_NAMES: usize = 4096;

impl Names {
    /// Creates an empty cache of names, resolved by this catalog.
    pub fn new(catalogue: Catalogue) -> Self {
        Self {
            catalogue,
            known: BTreeMap::new(),
        }
    }

    /// Type of a node's devices according to its labels, and the label it comes from.
    pub fn of_labels(&mut self, node: &ClusterNode) -> (Kind, Source) {
        match node.label(TYPE) {
            Some(MIXED) => return (Kind::Mixed, Source::Label(TYPE)),
            Some(value) => {
                if let Some(type_name) = typed(value) {
                    return (Kind::Known(type_name), Source::Label(TYPE));
                }
            }
            None => {}
        }
        let labels = AliasKind::OF_NODES
            .into_iter()
            .flat_map(|kind| kind.labels().iter().map(move |label| (kind, *label)));
        for (kind, label) in labels {
            let Some(value) = node.label(label) else {
                continue;
            };
            if let Some(type_name) = self.of(kind, value) {
                return (Kind::Known(type_name), Source::Label(label));
            }
        }
        let present = PRESENT
            .into_iter()
            .find(|key| node.label(key) == Some("true"));
        (
            Kind::Unknown,
            present.map_or(Source::Nothing, Source::Label),
        )
    }

    fn of(&mut self, kind: AliasKind, value: &str) -> Option<TypeName> {
        let (value, _, _) = parts_of_product(value);
        let asked = (kind, value.to_owned());
        if let Some(known) = self.known.get(&asked) {
            return known.clone();
        }
        let found = match self.catalogue.lookup_as(kind, value) {
            Lookup::Found(sku) => vec![sku],
            Lookup::Ambiguous(all) => all,
            Lookup::Unknown(_) => Vec::new(),
        };
        let mut types = found
            .iter()
            .filter_map(|sku| self.catalogue.product(sku))
            .map(|product| product.type_name.clone());
        let first = types.next();
        let agreed = first.filter(|first| types.all(|other| other == *first));
        if self.known.len() < MOST_NAMES {
            self.known.insert(asked, agreed.clone());
        }
        agreed
    }
}

/// Memory of one unit of a resource according to the node's labels. A resource whose units are not whole devices has
/// its own memory label.
pub(super) fn memory(node: &ClusterNode, resource: &str, is_whole: bool) -> Option<Mebibytes> {
    let own = node.label(&format!("{resource}.memory"));
    let of_device = MEMORY.into_iter().filter_map(|key| node.label(key));
    let mut told = own.into_iter().chain(of_device.filter(|_| is_whole));
    told.find_map(|text| text.parse().ok()).map(Mebibytes::new)
}

/// Type named by a label value; `unknown` and `mixed` are no types.
pub(super) fn typed(value: &str) -> Option<TypeName> {
    let type_name: TypeName = value.parse().ok()?;
    (value != UNKNOWN && value != MIXED).then_some(type_name)
}

/// Prefix of AWS types.
const AMAZON: &str = "aws-";
/// Label value for an unknown type.
const UNKNOWN: &str = "unknown";

impl Kind {
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
    pub fn title(&self) -> String {
        let type_name = match self {
            Self::Known(type_name) => type_name,
            Self::Mixed => return "Several types on one node".to_owned(),
            Self::Unknown => return "GPU - type unknown".to_owned(),
        };
        // Vendors write models in capitals, except AWS, which uses words.
        let all = type_name.as_str();
        let words = all.split('-').enumerate().map(|(place, word)| {
            let letters = word.bytes().take_while(u8::is_ascii_lowercase).count();
            let is_word = place > 0 && letters > 2 && all.starts_with(AMAZON);
            match word.split_at_checked(1).filter(|_| is_word) {
                Some((first, rest)) => format!("{}{rest}", first.to_ascii_uppercase()),
                None => word.to_ascii_uppercase(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

impl Source {
    /// `agent`, the key of the label, or `nothing`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Label(key) => key,
            Self::Nothing => "nothing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(labels: &[(&str, &str)]) -> (String, &'static str) {
        let mut names = Names::new(Catalogue::built_in());
        let node = ClusterNode {
            labels: labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..ClusterNode::default()
        };
        let (kind, source) = names.of_labels(&node);
        // The second call reads the cache.
        assert_eq!(names.of_labels(&node), (kind.clone(), source));
        (kind.as_str().to_owned(), source.as_str())
    }

    #[test]
    fn the_type_is_found_by_labels_of_others_where_there_are_none_of_ours() {
        let gfd = "nvidia.com/gpu.product";
        for (labels, type_name, source) in [
            (
                &[(TYPE, "nvidia-h200-141gb"), (gfd, "NVIDIA-L4")][..],
                "nvidia-h200-141gb",
                TYPE,
            ),
            (&[(TYPE, "mixed")], "mixed", TYPE),
            (
                &[(TYPE, "unknown"), (gfd, "NVIDIA-L4")],
                "nvidia-l4-24gb",
                gfd,
            ),
            (&[(gfd, "NVIDIA-H100-80GB-HBM3")], "nvidia-h100-80gb", gfd),
            (
                &[(gfd, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED")],
                "nvidia-h100-80gb",
                gfd,
            ),
            (&[(gfd, "NVIDIA-L4-SHARED")], "nvidia-l4-24gb", gfd),
            (
                &[("node.kubernetes.io/instance-type", "inf2.xlarge")],
                "aws-inferentia2-32gb",
                "node.kubernetes.io/instance-type",
            ),
            (&[(PRESENT[0], "true")], "unknown", PRESENT[0]),
            (&[(gfd, "Abacus-3000")], "unknown", "nothing"),
            (&[], "unknown", "nothing"),
        ] {
            assert_eq!(named(labels), (type_name.to_owned(), source), "{labels:?}");
        }
    }

    #[test]
    fn a_type_is_said_as_people_say_it() {
        for (type_name, title) in [
            ("nvidia-h200-141gb", "NVIDIA H200 141GB"),
            ("nvidia-rtx-pro-6000-96gb", "NVIDIA RTX PRO 6000 96GB"),
            ("amd-mi300x-192gb", "AMD MI300X 192GB"),
            ("aws-inferentia2-32gb", "AWS Inferentia2 32GB"),
        ] {
            let kind = Kind::Known(type_name.parse().unwrap());
            assert_eq!(kind.title(), title);
        }
        assert_eq!(Kind::Unknown.title(), "GPU - type unknown");
    }
}
