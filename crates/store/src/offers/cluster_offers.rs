//! Offers of a watched cluster, from the rows of the availability count and their counts per node.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::availability::{Availability, Row, RowKey, Shape as Counted, UnitType};
use octavo_fleet::hardware_profile::Specs;
use octavo_fleet::matching::{AvailabilityChange, Bytes, FreeUnits, Offer, Request, Shape};
use octavo_fleet::price::CurrentPrices;
use octavo_model::accelerators::Catalog;
use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;

/// Offers of the rows of one count.
#[derive(Debug, Default)]
pub struct ClusterOffers {
    /// By key of the row; rows of an unknown type have no offer.
    offers: BTreeMap<RowKey, Offer>,
}

/// Totals over some nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct OfferFigures {
    total: u64,
    most: u64,
    free: u64,
    free_on_one: u64,
    /// The node that would have the most free units after a change, and their number.
    change: Option<(u64, String)>,
}

/// Units on one node.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnitCounts {
    /// All units.
    pub(super) total: u64,
    /// Units that one pod could get, free or not.
    pub(super) most: u64,
    /// Free units.
    pub(super) free: u64,
    /// Units that are free after a change, in addition.
    pub(super) more: u64,
}

impl ClusterOffers {
    /// Converts the rows of a count to offers, with the price of one unit.
    pub fn of(
        availability: &Availability,
        request: &Request,
        prices: Option<&CurrentPrices>,
    ) -> Self {
        let catalog = Catalog::built_in();
        let mut figures: BTreeMap<&RowKey, OfferFigures> = BTreeMap::new();
        for (node, rows) in &availability.nodes {
            for row in &rows.rows {
                figures.entry(&row.key).or_default().add_row(node, row, row.free);
            }
        }
        let mut names: BTreeMap<String, u32> = BTreeMap::new();
        let mut offers = BTreeMap::new();
        for row in &availability.rows {
            let figures = figures.remove(&row.key).unwrap_or_default();
            let Some(offer) = offer(row, figures, &catalog) else {
                continue;
            };
            // Prices are known for whole devices only; the price of a partition or a time slice cannot be derived from
            // them.
            let price = prices
                .filter(|_| offer.shape == Shape::Whole)
                .and_then(|price_list| price_list.price(&offer.type_name, request.purchase_option));
            let count = names.entry(offer.name.clone()).or_default();
            *count = count.saturating_add(1);
            offers.insert(row.key.clone(), Offer { price, ..offer });
        }
        // Device plugins may advertise one type under several resource names.
        for (key, offer) in &mut offers {
            if names.get(&offer.name).is_some_and(|count| *count > 1) {
                offer.name = format!("{} ({})", offer.name, key.resource);
            }
        }
        Self { offers }
    }

    /// Offer of the row with this key.
    pub(super) fn get(&self, key: &RowKey) -> Option<&Offer> {
        self.offers.get(key)
    }

    /// Offers of this type that pods request by this resource.
    pub(super) fn of_type(&self, type_name: &TypeName, resource: &str) -> Vec<&Offer> {
        let all = self.offers.values();
        all.filter(|offer| {
            offer.type_name == *type_name && offer.resource.as_deref() == Some(resource)
        })
        .collect()
    }

    /// Returns all offers.
    pub fn into_offers(self) -> Vec<Offer> {
        self.offers.into_values().collect()
    }
}

/// Describes units of an unknown type or on nodes with several types, which cannot be offered because the pod's device
/// is not predictable.
pub fn unoffered_units_note(rows: &[Row]) -> Option<String> {
    let nameless = |row: &&Row| !matches!(row.key.kind, UnitType::Known(_));
    let rows = rows.iter().filter(nameless);
    let units = rows.fold(0_u64, |sum, row| sum.saturating_add(row.capacity));
    (units > 0).then(|| {
        format!(
            "{units} units are not matched: their type is unknown, or their node has several types and the pod \
             could get any of them"
        )
    })
}

impl OfferFigures {
    /// Adds the units of a row of a node, `free` of which are free.
    pub(super) fn add_row(&mut self, node: &str, row: &Row, free: u64) {
        let most = row.capacity.max(free.saturating_add(row.potential));
        self.add(node, UnitCounts { total: row.capacity, most, free, more: row.potential });
    }

    /// Adds the units of a node.
    pub(super) fn add(&mut self, node: &str, units: UnitCounts) {
        let UnitCounts { total, most, free, more } = units;
        self.total = self.total.saturating_add(total);
        self.most = self.most.max(most);
        self.free = self.free.saturating_add(free);
        self.free_on_one = self.free_on_one.max(free);
        let after = free.saturating_add(more);
        // Ties go to the first node by name.
        let better = self.change.as_ref().is_none_or(|(known, _)| after > *known);
        if more > 0 && better {
            self.change = Some((after, node.to_owned()));
        }
    }

    /// Applies the totals to `offer`.
    pub(super) fn apply_to(self, offer: Offer) -> Offer {
        Offer {
            max_per_node: small(self.most),
            total: self.total,
            free: Some(FreeUnits { total: self.free, on_one_node: small(self.free_on_one) }),
            after_change: self.change.map(|(on_one_node, node)| AvailabilityChange {
                on_one_node: small(on_one_node),
                how: format!("by repartitioning {node}"),
            }),
            ..offer
        }
    }
}

fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn offer(row: &Row, figures: OfferFigures, catalog: &Catalog) -> Option<Offer> {
    let UnitType::Known(type_name) = &row.key.kind else {
        return None;
    };
    if row.capacity == 0 && row.potential == 0 {
        return None;
    }
    let (shape, name) = shape(type_name, &row.key.shape);
    let mut notes: Vec<String> = unavailable_units_note(row).into_iter().collect();
    let reported = row.memory.filter(|memory| memory.get() > 0);
    let sold = || {
        let specs = Specs::for_type(type_name, catalog);
        let is_device = matches!(shape, Shape::Whole | Shape::Shared);
        specs.memory_mib.filter(|_| is_device).map(Mebibytes::new)
    };
    let memory = reported.or_else(|| {
        let sold = sold();
        let note = "its memory size is from the catalog: no agent or label reports it";
        notes.extend(sold.map(|_| note.to_owned()));
        sold
    });
    Some(figures.apply_to(Offer {
        memory: memory.map(Bytes::from),
        notes,
        resource: Some(row.key.resource.clone()),
        ..Offer::new(name, type_name.clone(), shape)
    }))
}

fn shape(type_name: &TypeName, counted: &Counted) -> (Shape, String) {
    match counted {
        Counted::Device => (Shape::Whole, type_name.to_string()),
        Counted::Mig(profile) => (Shape::Mig(profile.clone()), format!("{type_name}/{profile}")),
        Counted::TimeSlice => (Shape::Shared, format!("{type_name}/shared")),
        Counted::MigTimeSlice(profile) => (Shape::Shared, format!("{type_name}/{profile}/shared")),
        Counted::NeuronCore => (Shape::Part("core".to_owned()), format!("{type_name}/core")),
        Counted::AmdPartition(part) => (Shape::Part(part.clone()), format!("{type_name}/{part}")),
    }
}

/// Describes unavailable units with their reasons.
fn unavailable_units_note(row: &Row) -> Option<String> {
    let all: BTreeSet<String> = row
        .unavailable
        .iter()
        .map(|(why, units)| format!("{} {}", units.count, why.as_str()))
        .collect();
    let all: Vec<String> = all.into_iter().collect();
    (!all.is_empty()).then(|| {
        format!(
            "{} of {} are unavailable: {}; see octavo availability",
            row.unavailable_units(),
            row.capacity,
            all.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use octavo_fleet::availability::{CountCache, count};
    use octavo_fleet::cluster::{Amounts, ClusterNode, ClusterSnapshot, Readiness};

    use super::*;

    fn node(name: &str, kind: &str, resources: &[(&str, u64)]) -> ClusterNode {
        let all = resources.iter();
        let all = all.fold(Amounts::default(), |all, (name, count)| all.with(name, *count));
        let all = all.with("pods", 110);
        ClusterNode {
            name: name.to_owned(),
            labels: BTreeMap::from([("octavo.dev/type".to_owned(), kind.to_owned())]),
            readiness: Readiness::Ready,
            capacity: all.clone(),
            allocatable: all,
            ..ClusterNode::default()
        }
    }

    fn counted(nodes: impl IntoIterator<Item = ClusterNode>) -> Availability {
        let mut cache = CountCache::new(Catalog::built_in());
        count(&[], Some(&ClusterSnapshot::new(nodes, [])), &mut cache, None)
    }

    fn offers(availability: &Availability) -> Vec<Offer> {
        ClusterOffers::of(availability, &Request::default(), None).into_offers()
    }

    #[test]
    fn labeled_nodes_are_offered_with_catalog_memory_and_unavailable_units() {
        let mut cordoned = node("b", "nvidia-l4-24gb", &[("nvidia.com/gpu", 4)]);
        cordoned.is_cordoned = true;
        let free = node("a", "nvidia-l4-24gb", &[("nvidia.com/gpu", 2)]);
        let counted = counted([free, cordoned]);
        let offers = offers(&counted);
        let [offer] = offers.as_slice() else {
            panic!("{offers:?}");
        };
        assert_eq!(
            (offer.name.as_str(), offer.resource.as_deref()),
            ("nvidia-l4-24gb", Some("nvidia.com/gpu"))
        );
        assert_eq!((offer.total, offer.max_per_node), (6, 4));
        let free = Some(FreeUnits { total: 2, on_one_node: 2 });
        assert_eq!(offer.free, free);
        assert!(offer.memory.is_some_and(|memory| memory.get() > 20 << 30));
        assert_eq!(
            offer.notes,
            [
                "4 of 6 are unavailable: 4 cordoned; see octavo availability",
                "its memory size is from the catalog: no agent or label reports it",
            ]
        );
        assert_eq!(unoffered_units_note(&counted.rows), None);
    }

    #[test]
    fn offer_names_are_unique_and_unpredictable_units_are_left_out() {
        let neuron = [
            ("aws.amazon.com/neuron", 2),
            ("aws.amazon.com/neuroncore", 4),
            ("aws.amazon.com/neurondevice", 2),
        ];
        let counted = counted([
            node("a", "aws-inferentia2-32gb", &neuron),
            node("b", "mixed", &[("nvidia.com/gpu", 3)]),
        ]);
        let names: Vec<String> = offers(&counted).into_iter().map(|one| one.name).collect();
        assert_eq!(
            names,
            [
                "aws-inferentia2-32gb (aws.amazon.com/neuron)",
                "aws-inferentia2-32gb/core",
                "aws-inferentia2-32gb (aws.amazon.com/neurondevice)",
            ]
        );
        let notice = unoffered_units_note(&counted.rows).unwrap();
        assert!(notice.starts_with("3 units are not matched"), "{notice}");
    }
}
