//! Catalog facts of Inferentia and Trainium, by the Neuron driver's device names.
//!
//! | chip | physical cores per logical core |
//! |---|---|
//! | Inferentia, Inferentia2, Trainium1 | 1: they have no such setting |
//! | Trainium2 | 2, unless the node sets 1 |
//! | Trainium3 | no reliable source, so the value must come from the node |
//!
//! Source: the catalog's S4, AWS Neuron documentation of the logical `NeuronCore` configuration.

use super::facts::Facts;
use super::product_names;
use crate::accelerators::MemoryUnit;
use crate::inventory::Vendor;
use crate::quantity::Mebibytes;

/// Rule that determines the size of a logical core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogicalRule {
    /// One physical core, whatever the node's setting.
    One,
    /// The node's setting; without one, this default if it is known.
    Settable(Option<u32>),
}

/// Product with this Neuron driver device name.
pub fn neuron_chip(device_name: &str) -> Option<&'static Facts> {
    match product_names::products_named(Vendor::Aws, device_name).as_slice() {
        [facts] => Some(facts),
        _ => None,
    }
}

/// Logical core rule of this chip.
pub fn logical_rule(device_name: &str) -> LogicalRule {
    match neuron_chip(device_name).map(|facts| facts.sku) {
        Some("aws-inferentia" | "aws-inferentia2" | "aws-trainium1") => LogicalRule::One,
        Some("aws-trainium2") => LogicalRule::Settable(Some(2)),
        Some(_) | None => LogicalRule::Settable(None),
    }
}

/// Memory of a device of this chip. The Neuron driver does not report it.
pub fn neuron_memory(device_name: &str) -> Option<Mebibytes> {
    let memory = neuron_chip(device_name)?.memory?;
    (memory.unit == MemoryUnit::Gibibytes)
        .then(|| Mebibytes::new(u64::from(memory.size).saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_names_match_the_catalog() {
        for (name, sku, gib) in [
            ("Inferentia", "aws-inferentia", 8),
            ("Inferentia2", "aws-inferentia2", 32),
            ("Trainium1", "aws-trainium1", 32),
            ("Trainium2", "aws-trainium2", 96),
            ("Trainium3", "aws-trainium3", 144),
        ] {
            assert_eq!(neuron_chip(name).unwrap().sku, sku);
            assert_eq!(neuron_memory(name), Some(Mebibytes::new(gib * 1024)));
        }
        for name in ["NDv3", "Trainium", "Trainium4", "", "NVIDIA A100"] {
            assert_eq!(neuron_chip(name), None, "{name}");
        }
    }

    #[test]
    fn only_trainium_2_has_a_documented_default() {
        assert_eq!(logical_rule("Inferentia2"), LogicalRule::One);
        assert_eq!(logical_rule("Trainium2"), LogicalRule::Settable(Some(2)));
        assert_eq!(logical_rule("Trainium3"), LogicalRule::Settable(None));
        assert_eq!(logical_rule("Trainium9"), LogicalRule::Settable(None));
    }
}
