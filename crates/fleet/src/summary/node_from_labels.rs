//! Summary of a node without an agent, from the labels of its Node object.

use octavo_model::accelerators::Catalog;
use octavo_model::inventory::NvmlState;
use octavo_model::quantity::Mebibytes;
use octavo_model::sharing_mode::Sharing;

use super::counts::{DeviceCounts, TypeCounts};
use super::node::NodeSummary;
use super::node_state::NodeState;
use crate::cluster::ClusterNode;
use crate::hardware_profile::{Specs, TYPE_LABEL, counts_partitions, labeled_devices};
use crate::type_labels::MEMORY_LABELS;
use crate::type_source::TypeSource;

/// Octavo's label of the sharing mode.
pub const SHARING_LABEL: &str = "octavo.dev/sharing";
/// Label of GPU Feature Discovery for the sharing mode.
const GFD_SHARING_LABEL: &str = "nvidia.com/gpu.sharing-strategy";

impl NodeSummary {
    /// Summarizes a node of the cluster without an agent, and returns the label that names its type; `None` if
    /// neither labels nor capacity indicate an accelerator. The state of the devices is unknown.
    pub fn of_labels(node: &ClusterNode, catalog: &Catalog) -> Option<(Self, TypeSource)> {
        let found = labeled_devices(node, catalog);
        if found.held.is_empty() {
            return None;
        }
        let is_single = found.held.len() == 1;
        let memory_label = MEMORY_LABELS.into_iter().find_map(|key| node.label(key));
        let memory_label = memory_label.and_then(|text| text.parse().ok());
        // The memory label applies to a single type only, and under the MIG strategy `single` to a partition instead
        // of a device.
        let memory_label: Option<u64> =
            memory_label.filter(|_| is_single && !counts_partitions(node));
        let mut types: Vec<TypeCounts> = Vec::new();
        let mut memory: u64 = 0;
        for (type_name, count) in found.held {
            let count = if counts_partitions(node) { 0 } else { count };
            let sold = || Specs::for_type(type_name.as_ref()?, catalog).memory_mib;
            let each = memory_label.or_else(sold);
            memory = memory.saturating_add(each.unwrap_or(0).saturating_mul(count));
            let one = TypeCounts {
                type_name,
                manual: 0,
                memory: each.map(Mebibytes::new),
                counts: DeviceCounts::all_unknown(u32::try_from(count).unwrap_or(u32::MAX)),
            };
            TypeCounts::add(&mut types, &one);
        }
        let summary = Self {
            types,
            memory: Mebibytes::new(memory),
            sharing: sharing(node),
            state: NodeState::NoAgent,
            reason: Some(reason(found.source)),
            nvml: NvmlState::default(),
            neuron_driver: None,
            layout: None,
            sharing_status: None,
            neuron_problems: Vec::new(),
        };
        Some((summary, found.source))
    }
}

fn sharing(node: &ClusterNode) -> Sharing {
    if let Some(own) = node.label(SHARING_LABEL) {
        return Sharing::parse(own).unwrap_or(Sharing::None);
    }
    // GPU Feature Discovery uses the same word for time-slicing. Its other values do not describe the whole node.
    let shared = node.label(GFD_SHARING_LABEL).and_then(Sharing::parse);
    shared.filter(|mode| *mode == Sharing::TimeSlicing).unwrap_or(Sharing::None)
}

fn reason(source: TypeSource) -> String {
    let by = match source {
        TypeSource::Label(TYPE_LABEL) => {
            return format!(
                "no agent has reported this node since the aggregator started, but an agent set its label \
                 {TYPE_LABEL}. If this lasts more than a minute, check that the agent's pod on the node is \
                 running"
            );
        }
        TypeSource::Label(key) => format!("its type comes from the label {key}"),
        TypeSource::Agent | TypeSource::Unknown => "no label identifies its type".to_owned(),
    };
    format!("no agent reports this node: {by}; install octavo-agent on it to see devices and state")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Amounts;

    const GPU: &str = "nvidia.com/gpu";
    const PRODUCT: &str = "nvidia.com/gpu.product";

    fn node(labels: &[(&str, &str)], capacity: &[(&str, u64)]) -> ClusterNode {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let capacity =
            capacity.iter().fold(Amounts::default(), |all, (name, count)| all.with(name, *count));
        ClusterNode {
            name: "vendor".to_owned(),
            labels: labels.collect(),
            capacity,
            ..ClusterNode::default()
        }
    }

    fn summary(
        labels: &[(&str, &str)],
        capacity: &[(&str, u64)],
    ) -> Option<(NodeSummary, TypeSource)> {
        NodeSummary::of_labels(&node(labels, capacity), &Catalog::built_in())
    }

    #[test]
    fn ac_003_node_without_agent_has_types_and_counts_of_vendor_labels() {
        for (labels, capacity, wanted, source) in [
            (
                &[(PRODUCT, "NVIDIA-A100-SXM4-40GB")][..],
                &[(GPU, 4)][..],
                ("nvidia-a100-40gb", 4, 4 * 40 * 1024),
                PRODUCT,
            ),
            (
                // Time-slicing: capacity counts replicas, the label counts devices.
                &[
                    (PRODUCT, "NVIDIA-L4-SHARED"),
                    ("nvidia.com/gpu.count", "2"),
                    ("nvidia.com/gpu.memory", "23034"),
                ],
                &[(GPU, 8)],
                ("nvidia-l4-24gb", 2, 2 * 23_034),
                PRODUCT,
            ),
            (
                // MIG strategy `single`: only partitions are counted.
                &[
                    (PRODUCT, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
                    ("nvidia.com/gpu.count", "7"),
                    ("nvidia.com/gpu.memory", "9856"),
                ],
                &[(GPU, 7)],
                ("nvidia-h100-80gb", 0, 0),
                PRODUCT,
            ),
            (
                &[("node.kubernetes.io/instance-type", "inf2.xlarge")],
                &[("aws.amazon.com/neuron", 1)],
                ("aws-inferentia2-32gb", 1, 32 * 1024),
                "node.kubernetes.io/instance-type",
            ),
            (
                &[("octavo.dev/type", "nvidia-l4-24gb"), (PRODUCT, "NVIDIA-T4")],
                &[(GPU, 1)],
                ("nvidia-l4-24gb", 1, 24 * 1024),
                "octavo.dev/type",
            ),
        ] {
            let (summary, by) = summary(labels, capacity).unwrap();
            let [one] = summary.types.as_slice() else {
                panic!("{summary:?}");
            };
            let name = one.type_name.as_ref().unwrap().as_str();
            let counts = summary.counts();
            assert_eq!((name, counts.total), (wanted.0, wanted.1), "{labels:?}");
            assert_eq!(counts.unknown, counts.total);
            assert_eq!(summary.state, NodeState::NoAgent);
            assert_eq!(by.as_str(), source);
            assert!(summary.reason.unwrap().contains(source));
            let memory = summary.memory.get();
            assert!(memory.abs_diff(wanted.2) <= wanted.2 / 20, "{labels:?}: {memory}");
        }
    }

    #[test]
    fn reason_of_node_whose_agent_left_is_true_during_startup() {
        let (summary, _) = summary(&[(TYPE_LABEL, "nvidia-l4-24gb")], &[(GPU, 1)]).unwrap();
        let reason = summary.reason.unwrap();
        assert!(reason.contains("since the aggregator started"), "{reason}");
        assert!(reason.contains("more than a minute"), "{reason}");
    }

    #[test]
    fn node_without_agent_is_mixed_or_unknown_by_its_labels() {
        let mixed = [
            ("octavo.dev/type", "mixed"),
            ("type.octavo.dev/nvidia-a100-80gb", "4"),
            ("type.octavo.dev/nvidia-v100-16gb", "2"),
            ("octavo.dev/sharing", "exclusive"),
            ("octavo.dev/memory-mib", "16384"),
        ];
        let (summary_of_mixed, source) = summary(&mixed, &[(GPU, 6)]).unwrap();
        let counts = summary_of_mixed.types.iter().map(|one| one.counts.total);
        assert_eq!(counts.collect::<Vec<_>>(), [4, 2]);
        assert_eq!(summary_of_mixed.sharing, Sharing::Exclusive);
        assert_eq!(source.as_str(), "octavo.dev/type");
        assert!(summary_of_mixed.memory.get() > 300_000);

        let (unknown, source) = summary(&[(PRODUCT, "Abacus-3000")], &[(GPU, 2)]).unwrap();
        assert_eq!((unknown.types[0].type_name.as_ref(), unknown.counts().total), (None, 2));
        assert_eq!(source, TypeSource::Unknown);
        assert_eq!(unknown.sharing, Sharing::None);
    }

    #[test]
    fn node_without_accelerator_is_not_listed() {
        assert_eq!(summary(&[("kubernetes.io/hostname", "cpu-1")], &[("cpu", 8)]), None);
    }
}
