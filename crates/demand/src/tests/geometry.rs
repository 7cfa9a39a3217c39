//! Sets of instances, compared with the planner and published figures.

use std::collections::BTreeSet;

use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_planner::plan::Combinations;

use octavo_model::examples::h100;

use super::five_profiles;
use crate::geometry::{Geometry, GeometryError, Place, SetId};

/// All places of a geometry.
fn places(geometry: &Geometry) -> Vec<Place> {
    geometry.additions(Geometry::EMPTY).iter().map(|addition| addition.place).collect()
}

#[test]
fn sets_are_exactly_those_that_the_planner_allows() {
    let state = h100();
    let geometry = Geometry::new(&state, |_| true).unwrap();
    let combinations = Combinations::from_state(&state).unwrap();
    let places = places(&geometry);
    let mut found = BTreeSet::new();
    // Depth first over all subsets of non-overlapping places, checked by the planner alone.
    let mut stack = vec![(0, Vec::<Place>::new())];
    while let Some((next, chosen)) = stack.pop() {
        let set = geometry.set_of(&chosen).unwrap();
        found.insert(set);
        let mut additions: Vec<Place> = Vec::new();
        for (at, place) in places.iter().enumerate() {
            let mut counts = vec![0; geometry.profiles().len()];
            for one in chosen.iter().chain([place]) {
                counts[one.profile] += 1;
            }
            let is_free = chosen.iter().all(|one| !one.overlaps(place));
            if is_free && combinations.allows(&counts) {
                additions.push(*place);
                if at >= next {
                    stack.push((at + 1, [chosen.as_slice(), &[*place]].concat()));
                }
            }
        }
        let actual: Vec<Place> = geometry.additions(set).iter().map(|one| one.place).collect();
        assert_eq!(actual, additions, "{chosen:?}");
    }
    assert_eq!(found, geometry.sets().collect::<BTreeSet<SetId>>());
}

/// An H100 has 298 arrangements of these profiles, 19 of them complete. Source: NVIDIA MIG User Guide, "Supported MIG Profiles", which shows
/// the 19.
#[test]
fn h100_has_the_published_number_of_arrangements() {
    let geometry = five_profiles();
    let places = places(&geometry);
    let (mut all, mut complete) = (0, 0);
    let mut stack = vec![(0, Vec::<Place>::new())];
    while let Some((next, chosen)) = stack.pop() {
        let set = geometry.set_of(&chosen).unwrap();
        all += 1;
        complete += usize::from(geometry.additions(set).is_empty());
        for (at, place) in places.iter().enumerate().skip(next) {
            if geometry.additions(set).iter().any(|one| one.place == *place) {
                stack.push((at + 1, [chosen.as_slice(), &[*place]].concat()));
            }
        }
    }
    assert_eq!((all, complete), (298, 19));
}

#[test]
fn places_that_overlap_or_violate_a_rule_are_no_set() {
    let geometry = Geometry::new(&h100(), |_| true).unwrap();
    let place = |id, start, size| geometry.place(id, Placement { start, size }).unwrap();
    assert_eq!(geometry.set_of(&[place(9, 0, 4), place(5, 0, 4)]), None);
    assert!(geometry.set_of(&[place(9, 4, 4), place(5, 0, 4)]).is_some());
    // Only one instance can have the media extensions.
    assert_eq!(geometry.set_of(&[place(20, 0, 1), place(20, 1, 1)]), None);
    assert_eq!(geometry.place(9, Placement { start: 2, size: 4 }), None);
}

#[test]
fn devices_without_placements_or_with_a_fabricated_table_are_refused() {
    let mut state = h100();
    state.catalog = ProfileCatalog::default();
    assert_eq!(Geometry::new(&state, |_| true), Err(GeometryError::NoProfiles));
    let mut fabricated = h100().catalog.profiles()[0].clone();
    fabricated.placements = (0..40).map(|start| Placement { start, size: 1 }).collect();
    fabricated.max_count = 40;
    fabricated.resources.gpu_slices = 0;
    let profiles = (0..8).map(|id| {
        let mut profile = fabricated.clone();
        (profile.id, profile.index) = (id, 20 + id);
        profile
    });
    state.catalog = ProfileCatalog::new(profiles.collect());
    assert_eq!(Geometry::new(&state, |_| true), Err(GeometryError::TooLarge));
}
