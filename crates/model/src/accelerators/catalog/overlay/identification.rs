//! The product by which devices are identified, from its entry.

use super::super::super::facts::{MarketedMemory, MemoryUnit, PciPattern};
use super::super::super::overlay_products::OverlayProduct;
use super::{Field, OverlayEntry, Product, Value};

impl OverlayEntry {
    /// The product by which devices are identified. `product` is this entry applied to the catalog.
    pub(super) fn identified_product(&self, product: &Product) -> OverlayProduct {
        let size = |field| match product.facts.get(&field).map(|fact| &fact.value) {
            Some(Value::Number(number)) => parse_whole_number(*number),
            Some(Value::Text(_) | Value::List(_)) | None => None,
        };
        let sold = size(Field::MemoryGb).map(|size| (size, MemoryUnit::Gigabytes));
        let sold =
            sold.or_else(|| size(Field::MemoryGib).map(|size| (size, MemoryUnit::Gibibytes)));
        let names = self.name.iter().chain(&self.aliases);
        OverlayProduct {
            sku: product.sku.clone(),
            type_name: product.type_name.clone(),
            vendor: product.vendor.parse().ok(),
            architecture: product.text(Field::Architecture).map(str::to_owned),
            memory: sold.map(|(size, unit)| MarketedMemory { size, unit }),
            visible_memory_mib: size(Field::MemoryMib),
            patterns: self.patterns().map(|(_, pattern)| pattern).collect(),
            names: names.map(|(_, text)| text.clone()).collect(),
        }
    }

    /// PCI ids of this entry, each with its text; invalid ones are omitted.
    pub(super) fn patterns(&self) -> impl Iterator<Item = (&str, PciPattern)> {
        let lists = self.facts.iter().filter_map(|(_, field, value)| match value {
            Value::List(texts) if *field == Field::PciIds => Some(texts),
            Value::List(_) | Value::Number(_) | Value::Text(_) => None,
        });
        let texts = lists.flatten();
        texts.filter_map(|text| Some((text.as_str(), PciPattern::parse(text)?)))
    }
}

fn parse_whole_number(number: f64) -> Option<u32> {
    let text = format!("{number}");
    text.parse().ok()
}
