//! Validation of overlay entries against the catalog.

use super::super::super::facts::{self, PciPattern};
use super::{Catalogue, Field, OverlayEntry, OverlayProblem, Product, Value};
use crate::domain::id::Sku;
use crate::domain::layout::Place;

impl Catalogue {
    /// PCI ids that are malformed, belong to another product, or to a device that is not an accelerator.
    pub(super) fn wrong_ids(&self, entry: &OverlayEntry) -> Vec<(Place, OverlayProblem)> {
        let mut wrong = Vec::new();
        for (place, _, value) in entry
            .facts
            .iter()
            .filter(|(_, field, _)| *field == Field::PciIds)
        {
            let Value::List(texts) = value else { continue };
            for text in texts {
                let (text, sku) = (text.clone(), entry.sku.clone());
                let Some(pattern) = PciPattern::parse(&text) else {
                    wrong.push((*place, OverlayProblem::PciId { text }));
                    continue;
                };
                let taken: Vec<Sku> = self
                    .products
                    .iter()
                    .filter(|other| other.pci_ids().any(|id| id.device == pattern.device))
                    .map(|other| other.sku.clone())
                    .collect();
                if let Some(other) = facts::no_accelerator(pattern.ids()) {
                    let what = other.what;
                    wrong.push((*place, OverlayProblem::NoAccelerator { text, sku, what }));
                } else if !taken.is_empty() {
                    wrong.push((*place, OverlayProblem::Taken { text, sku, taken }));
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
) -> Vec<(Place, OverlayProblem)> {
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
        Some((*place, OverlayProblem::Contradicts { sku, key, known }))
    });
    wrong.collect()
}

/// Missing keys of a new product, and immutable keys of a known one.
pub(super) fn misplaced(entry: &OverlayEntry, is_known: bool) -> Vec<(Place, OverlayProblem)> {
    let given = [
        ("type", entry.type_name.as_ref().map(|(place, _)| *place)),
        ("vendor", entry.vendor.as_ref().map(|(place, _)| *place)),
        ("name", entry.name.as_ref().map(|(place, _)| *place)),
    ];
    let wrong = given.into_iter().filter_map(|(key, given)| {
        let sku = entry.sku.clone();
        match given {
            Some(place) if is_known => Some((place, OverlayProblem::Fixed { sku, key })),
            None if !is_known && key != "type" => {
                Some((entry.place, OverlayProblem::Lacks { sku, key }))
            }
            Some(_) | None => None,
        }
    });
    wrong.collect()
}
