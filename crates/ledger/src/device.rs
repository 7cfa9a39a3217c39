//! Device of the ledger.

use octavo_fleet::price::PriceKey;
use octavo_model::id::NodeName;

/// A device, and the properties of it and its node that decide its price. A device whose properties change is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The node.
    pub node: NodeName,
    /// UUID of the device; its PCI address or name if it has none.
    pub id: String,
    /// Type, purchase option, instance type and region; `None` for an unidentified device.
    pub price_key: Option<PriceKey>,
}
