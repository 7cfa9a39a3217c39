//! Validation of overlay entries against the catalog.

use super::super::super::facts::{self, PciPattern};
use super::{Catalog, Field, OverlayEntry, OverlayProblem, Product, Value};
use crate::id::Sku;
use crate::source_position::SourcePosition;

impl Catalog {
    /// PCI ids that are malformed, belong to another product, or to a device that is not an accelerator.
    pub(super) fn invalid_ids(
        &self,
        entry: &OverlayEntry,
    ) -> Vec<(SourcePosition, OverlayProblem)> {
        let mut wrong = Vec::new();
        for (place, _, value) in entry.facts.iter().filter(|(_, field, _)| *field == Field::PciIds)
        {
            let Value::List(texts) = value else { continue };
            for text in texts {
                let (text, sku) = (text.clone(), entry.sku.clone());
                let Some(pattern) = PciPattern::parse(&text) else {
                    wrong.push((*place, OverlayProblem::InvalidPciId { text }));
                    continue;
                };
                let taken: Vec<Sku> = self
                    .products
                    .iter()
                    .filter(|other| other.pci_ids().any(|id| id.device == pattern.device))
                    .map(|other| other.sku.clone())
                    .collect();
                if let Some(other) = facts::non_accelerator_with_ids(pattern.ids()) {
                    let what = other.description;
                    wrong.push((*place, OverlayProblem::NoAccelerator { text, sku, what }));
                } else if !taken.is_empty() {
                    wrong.push((*place, OverlayProblem::NameInUse { text, sku, taken }));
                }
            }
        }
        wrong
    }
}

/// Facts that contradict those of a known product. Lists are extended instead.
pub(super) fn contradictions(
    entry: &OverlayEntry,
    known: &Product,
) -> Vec<(SourcePosition, OverlayProblem)> {
    let wrong = entry.facts.iter().filter_map(|(place, field, value)| {
        // A product has its marketed memory in one unit only.
        let other = [Field::MemoryGb, Field::MemoryGib];
        let mut units = other.iter().filter(|_| other.contains(field));
        let has = units.find_map(|unit| known.facts.get_key_value(unit));
        let (key, fact) = has.or_else(|| known.facts.get_key_value(field))?;
        let known = match &fact.value {
            same if same == value && key == field => return None,
            Value::List(_) => return None,
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        };
        let (sku, key) = (entry.sku.clone(), key.key());
        Some((*place, OverlayProblem::ContradictsFact { sku, key, known }))
    });
    wrong.collect()
}

/// Missing keys of a new product, and immutable keys of a known one.
pub(super) fn invalid_keys(
    entry: &OverlayEntry,
    is_known: bool,
) -> Vec<(SourcePosition, OverlayProblem)> {
    let given = [
        ("type", entry.type_name.as_ref().map(|(place, _)| *place)),
        ("vendor", entry.vendor.as_ref().map(|(place, _)| *place)),
        ("name", entry.name.as_ref().map(|(place, _)| *place)),
    ];
    let wrong = given.into_iter().filter_map(|(key, given)| {
        let sku = entry.sku.clone();
        match given {
            Some(place) if is_known => Some((place, OverlayProblem::ImmutableKey { sku, key })),
            None if !is_known && key != "type" => {
                Some((entry.place, OverlayProblem::MissingKey { sku, key }))
            }
            Some(_) | None => None,
        }
    });
    wrong.collect()
}
