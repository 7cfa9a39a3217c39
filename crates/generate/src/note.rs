//! Notes for users: nodes that are not part of the result, and limitations of it.

use std::fmt;

use octavo_fleet::cluster::Taint;
use octavo_model::text::first_names;

/// Maximum number of nodes that a note names.
const MAX_NAMES: usize = 5;

/// Note on a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// Nodes are not part of the result.
    Excluded {
        /// The reason.
        why: Exclusion,
        /// Names of the nodes.
        nodes: Vec<String>,
    },
    /// A pool is selected by a label of the vendor.
    VendorLabel {
        /// Name of the pool.
        pool: String,
        /// Key and value of the label.
        label: String,
    },
    /// Labels cannot separate nodes with different layouts.
    Merged {
        /// Name of the pool with all of them.
        pool: String,
    },
    /// Workloads do not tolerate a taint.
    NotTolerated {
        /// Name of the pool.
        pool: String,
        /// The taint.
        taint: Taint,
        /// Names of the nodes that have it.
        nodes: Vec<String>,
    },
    /// A quota applies to several types together.
    SharedResource {
        /// The types.
        types: Vec<String>,
    },
    /// Karpenter needs an alpha feature to predict the resources of a pool.
    NeedsOverlay {
        /// Name of the pool.
        pool: String,
    },
    /// Karpenter predicts devices instead of their replicas.
    CountsDevices {
        /// Name of the pool.
        pool: String,
    },
    /// The autoscaler of OpenShift cannot predict the resources of a pool.
    NotFromZero {
        /// Name of the pool.
        pool: String,
    },
    /// No node has a type that a rule names.
    AbsentType {
        /// The type.
        type_name: String,
    },
    /// A layout is not part of a configuration, which cannot express it.
    LayoutOmitted {
        /// Layout and reason.
        why: String,
    },
    /// Nodes are counted that accept no pods now.
    Unavailable {
        /// Names of the nodes.
        nodes: Vec<String>,
    },
}

/// Reason why a node is not part of the result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// It has devices of several types.
    Mixed,
    /// The type of its devices is unknown.
    UnknownType,
    /// No label names its type.
    Unlabeled,
    /// Its type is named by another label than that of the other nodes.
    OtherLabel(String),
    /// It offers no accelerator resource.
    NoResource,
    /// The API server does not list it.
    NotInCluster,
    /// Its labels name no EC2 instance type, or no zone.
    NotOnEc2,
    /// No machine set of the cluster creates such machines.
    NoMachineSet {
        /// Zone of the node.
        zone: String,
        /// Architecture of its CPU.
        architecture: String,
    },
}

impl Note {
    /// Returns `false` if the reason usually ends without a change of the cluster. Such notes are not part of files,
    /// which would otherwise differ all the time.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Excluded { why: Exclusion::NoResource | Exclusion::NotInCluster, .. }
            | Self::Unavailable { .. } => false,
            Self::Excluded { .. }
            | Self::VendorLabel { .. }
            | Self::Merged { .. }
            | Self::NotTolerated { .. }
            | Self::NeedsOverlay { .. }
            | Self::CountsDevices { .. }
            | Self::NotFromZero { .. }
            | Self::AbsentType { .. }
            | Self::LayoutOmitted { .. }
            | Self::SharedResource { .. } => true,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Excluded { why, nodes } => {
                write!(f, "excluded: {}: {why}", first_names(nodes, MAX_NAMES))
            }
            Self::VendorLabel { pool, label } => write!(
                f,
                "{pool} selects nodes by {label}, because no agent has labeled them with \
                 octavo.dev/type; the value changes when devices are shared or partitioned"
            ),
            Self::Merged { pool } => write!(
                f,
                "{pool} has nodes with different layouts, because no label separates them; set \
                 octavo.dev/layout on each node to separate them"
            ),
            Self::NotTolerated { pool, taint, nodes } => write!(
                f,
                "{pool} does not tolerate the taint {taint} of {}",
                first_names(nodes, MAX_NAMES)
            ),
            Self::SharedResource { types } => write!(
                f,
                "one quota applies to {} together, because these types have resources in common",
                types.join(", ")
            ),
            Self::NeedsOverlay { pool } => write!(
                f,
                "Karpenter provisions nodes of {pool} only with its alpha feature gate NodeOverlay, \
                 because an instance type does not determine partitions and names of replicas"
            ),
            Self::CountsDevices { pool } => write!(
                f,
                "Karpenter counts the devices of a new node of {pool}, not its replicas or partitions"
            ),
            Self::NotFromZero { pool } => write!(
                f,
                "{pool} has at least one machine, because OpenShift's autoscaler predicts only \
                 nvidia.com/gpu on the first node of a machine set"
            ),
            Self::AbsentType { type_name } => write!(
                f,
                "no node has the type {type_name}; check the name, or generate again after such a node has joined"
            ),
            Self::LayoutOmitted { why } => write!(f, "omitted: {why}"),
            Self::Unavailable { nodes } => write!(
                f,
                "counted although cordoned or not ready: {}",
                first_names(nodes, MAX_NAMES)
            ),
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mixed => f.write_str(
                "has devices of several types; a flavor or quota needs nodes of one type",
            ),
            Self::UnknownType => {
                f.write_str("type unknown; label the node with octavo.dev/type-override")
            }
            Self::Unlabeled => f.write_str("no label names the type; run an agent on the node"),
            Self::OtherLabel(label) => write!(
                f,
                "no label {label}, by which the other nodes of the type are selected; run an agent \
                 on the node"
            ),
            Self::NoResource => f.write_str(
                "no accelerator resource is allocatable; devices for resource claims are not \
                 counted, otherwise check the device plugin with `octavo doctor`",
            ),
            Self::NotInCluster => f.write_str("not in the cluster that the aggregator watches"),
            Self::NotOnEc2 => f.write_str(
                "no EC2 instance type in the label node.kubernetes.io/instance-type, or no zone in \
                 topology.kubernetes.io/zone",
            ),
            Self::NoMachineSet { zone, architecture } => write!(
                f,
                "no machine set of --machine-sets is in the zone {zone} with the architecture \
                 {architecture}"
            ),
        }
    }
}
