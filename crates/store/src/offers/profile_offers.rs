//! Hardware profiles as paths to devices: the offers that each leads to, with the totals of the nodes it reaches.

use std::collections::BTreeMap;

use octavo_fleet::availability::{Availability, Row, RowKey, Shape as Counted, UnitType};
use octavo_fleet::hardware_profile::{NodeCapacity, PlacementTarget, ProfilePlacement};
use octavo_fleet::matching::{Offer, ProfileInfo, ProfileOffer, Shape};
use octavo_model::id::TypeName;

use super::cluster_offers::{ClusterOffers, OfferFigures};
use crate::profiles::ProfileTargets;

/// Capacity, from the cluster or from agents.
#[derive(Debug)]
pub enum OfferSource<'a> {
    /// Count of a watched cluster, and the offers of its rows.
    Cluster(&'a Availability, &'a ClusterOffers),
    /// Offers from agents' reports, without a watched cluster.
    Agents(&'a [Offer]),
}

/// Rows of nodes by node and resource.
type UnitIndex<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a Row>>;

impl OfferSource<'_> {
    /// Offers that these profiles lead to.
    pub fn resolve_profiles(&self, profiles: &[ProfileTargets]) -> Vec<ProfileOffer> {
        let mut index: UnitIndex<'_> = BTreeMap::new();
        if let Self::Cluster(availability, _) = self {
            for (node, rows) in &availability.nodes {
                for row in &rows.rows {
                    index.entry((node, &row.key.resource)).or_default().push(row);
                }
            }
        }
        let mut found = Vec::new();
        for led in profiles {
            let is_one = led.targets.len() == 1;
            for way in &led.targets {
                let mut one = self.resolve_target(led, way, &index);
                if !is_one {
                    one.name = format!("{} ({})", one.name, way.resource);
                }
                found.push(one);
            }
        }
        found
    }

    fn resolve_target(
        &self,
        led: &ProfileTargets,
        way: &ProfilePlacement,
        index: &UnitIndex<'_>,
    ) -> ProfileOffer {
        let mut through = ProfileOffer {
            name: led.key.to_string(),
            picked: ProfileInfo {
                namespace: led.key.namespace.clone(),
                name: led.key.name.clone(),
                display_name: led.shown.clone(),
                min: way.min,
                max: way.max,
            },
            resource: way.resource.clone(),
            offers: Vec::new(),
            rejections: led.objections.clone(),
            notes: Vec::new(),
        };
        match &way.to {
            PlacementTarget::Nodes(places) => self.add_node_offers(&mut through, places, index),
            PlacementTarget::Queue(queue) => {
                let note = format!("its queue {queue} decides where and when workloads start");
                self.add_declared_offers(&mut through, led, &note);
                for offer in &mut through.offers {
                    offer.free = None;
                    offer.after_change = None;
                }
            }
            PlacementTarget::Unknown => {
                let note =
                    "the cluster is not watched: the devices are those that the profile declares";
                self.add_declared_offers(&mut through, led, note);
            }
        }
        through
    }

    /// Adds the offers of the reachable nodes.
    fn add_node_offers(
        &self,
        through: &mut ProfileOffer,
        places: &[NodeCapacity],
        index: &UnitIndex<'_>,
    ) {
        let Self::Cluster(_, counts) = self else {
            return;
        };
        let mut found: BTreeMap<&RowKey, OfferFigures> = BTreeMap::new();
        let (mut mixed, mut unknown) = (0_u32, 0_u32);
        for place in places {
            let key = (place.node.as_str(), through.resource.as_str());
            for row in index.get(&key).into_iter().flatten() {
                match row.key.kind {
                    UnitType::Known(_) => {
                        found.entry(&row.key).or_default().add_row(&place.node, row, place.free);
                    }
                    UnitType::Mixed => mixed = mixed.saturating_add(1),
                    UnitType::Unknown => unknown = unknown.saturating_add(1),
                }
            }
        }
        let picked = &through.picked;
        let offers = found.into_iter().filter_map(|(key, figures)| {
            let base = counts.get(key)?;
            // Unavailability on other nodes is not relevant here.
            let base = Offer { notes: Vec::new(), profile: Some(picked.clone()), ..base.clone() };
            Some(figures.apply_to(base))
        });
        through.offers = offers.collect::<Vec<Offer>>();
        if mixed > 0 {
            through.rejections.push(format!(
                "{mixed} of its matching nodes have several types, and a pod could get any of them"
            ));
        }
        if unknown > 0 {
            through
                .rejections
                .push(format!("the type of {unknown} of its matching nodes is unknown"));
        }
    }

    /// Adds offers by the types that the profile declares, if its nodes cannot be determined.
    fn add_declared_offers(&self, through: &mut ProfileOffer, led: &ProfileTargets, note: &str) {
        if led.types.is_empty() {
            through
                .rejections
                .push(format!("{note}; set its type with the annotation octavo.dev/type"));
            return;
        }
        for type_name in &led.types {
            let offers = self.of_type(type_name, &through.resource);
            if offers.is_empty() {
                through.rejections.push(format!(
                    "its type is {type_name}, which is not available here as {}",
                    through.resource
                ));
            }
            through.offers.extend(offers);
        }
        through.notes.push(note.to_owned());
    }

    fn of_type(&self, type_name: &TypeName, resource: &str) -> Vec<Offer> {
        match self {
            Self::Cluster(_, counts) => {
                let found = counts.of_type(type_name, resource).into_iter();
                found.cloned().collect()
            }
            Self::Agents(offers) => {
                let requested = Counted::from_resource(resource, None);
                let is_it = |offer: &&Offer| {
                    offer.type_name == *type_name
                        && match (&offer.shape, &requested) {
                            (Shape::Whole, Counted::Device)
                            | (Shape::Shared, Counted::TimeSlice | Counted::Device) => true,
                            (Shape::Mig(one), Counted::Mig(other)) => one == other,
                            (_, _) => false,
                        }
                };
                offers.iter().filter(is_it).cloned().collect()
            }
        }
    }
}
