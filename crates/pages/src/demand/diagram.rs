//! Memory slices of a device before and after a proposal.

use std::collections::BTreeMap;

use octavo_demand::{DeviceProposal, InstancePlace};
use octavo_model::inventory::Device;
use octavo_model::text::count_noun;

use crate::badges::printable;
use crate::slice_diagram::{Region, SliceDiagram};

/// Diagrams of a device now and after a proposal.
#[derive(Debug)]
pub(super) struct BeforeAfter {
    pub(super) now: SliceDiagram,
    pub(super) then: SliceDiagram,
}

impl BeforeAfter {
    /// Draws a proposal on the last report of the device; `None` if they do not match, because one of them is older.
    pub(super) fn new(device: &Device, change: &DeviceProposal) -> Option<Self> {
        let current = SliceDiagram::of(device)?;
        let placed = placed(&current);
        if names(&placed) != change.before {
            return None;
        }
        let is_destroyed =
            |one: &(u32, Region)| change.destroys.iter().any(|place| is_at(place, one));
        if placed.iter().filter(|one| is_destroyed(one)).count() != change.destroys.len() {
            return None;
        }
        let created = change.creates.iter().map(|place| {
            let (start, size) = (place.placement.start, place.placement.size);
            let name = printable(&place.profile);
            (start, Region::planned("is-new", (start, size), name, vec!["new".to_owned()]))
        });
        let retained = placed.iter().filter(|one| !is_destroyed(one)).cloned();
        let mut after: Vec<(u32, Region)> = retained.chain(created).collect();
        after.sort_by_key(|(start, _)| *start);
        let now = placed.iter().map(|(start, region)| {
            let mut region = region.clone();
            if is_destroyed(&(*start, region.clone())) {
                region.class = "is-going";
                region.lines.push("deleted".to_owned());
            }
            (*start, region)
        });
        Some(Self {
            now: diagram("Now", &change.before, (now.collect(), current.slices))?,
            then: diagram("Proposed", &change.after, (after, current.slices))?,
        })
    }
}

/// Instances of a diagram, each with its first slice.
fn placed(current: &SliceDiagram) -> Vec<(u32, Region)> {
    let mut next = 0_u32;
    let mut placed = Vec::new();
    for region in &current.regions {
        if region.instance.is_some() {
            placed.push((next, region.clone()));
        }
        next = next.saturating_add(region.slices);
    }
    placed
}

/// Number of instances by name.
fn names(placed: &[(u32, Region)]) -> BTreeMap<String, usize> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for (_, region) in placed {
        let count = names.entry(region.name.clone()).or_default();
        *count = count.saturating_add(1);
    }
    names
}

fn is_at(place: &InstancePlace, (start, region): &(u32, Region)) -> bool {
    let placement = place.placement;
    (placement.start, placement.size) == (*start, region.slices) && place.profile == region.name
}

/// Diagram of instances in the order of their slices; `None` if they overlap.
fn diagram(
    title: &str,
    instances: &BTreeMap<String, usize>,
    (placed, slices): (Vec<(u32, Region)>, u32),
) -> Option<SliceDiagram> {
    let (mut regions, mut next) = (Vec::new(), 0_u32);
    for (start, region) in placed {
        let end = start.saturating_add(region.slices);
        if start < next || end > slices {
            return None;
        }
        regions.extend((next..start).map(Region::free));
        regions.push(region);
        next = end;
    }
    regions.extend((next..slices).map(Region::free));
    let free = regions.iter().filter(|region| region.class == "is-free").count();
    Some(SliceDiagram {
        what: crate::slice_diagram::SLICES,
        caption: format!("{title}: {}", printable(&DeviceProposal::describe(instances))),
        count: Some(format!("{} free", count_noun(free, "slice", "slices"))),
        slices,
        regions,
        hidden: Vec::new(),
    })
}
