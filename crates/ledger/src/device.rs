//! Device of the ledger.

use octavo_fleet::price::PurchaseOption;
use octavo_model::id::{NodeName, TypeName};

/// A device, and the properties of its node that decide its price. A device whose properties change is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The node.
    pub node: NodeName,
    /// UUID of the device, or its PCI address if it has none.
    pub id: String,
    /// Type of the device; `None` for an unidentified device.
    pub type_name: Option<TypeName>,
    /// Instance type of the node: label `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// Region of the node: label `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// Purchase option of the node; `None` if its labels do not name it.
    pub option: Option<PurchaseOption>,
}
