//! Order in which pods are planned.

use std::collections::BTreeSet;

use octavo_model::examples::h100;
use octavo_model::resource::ResourceName;

use super::proposal::{device, pod, proposals};
use crate::geometry::Geometry;
use crate::report::Outcome;

/// Profiles of the instances of every combination that fits on an H100, in ascending order.
fn combinations(geometry: &Geometry) -> BTreeSet<Vec<usize>> {
    let mut found = BTreeSet::new();
    let mut queue = vec![(Geometry::EMPTY, Vec::new())];
    while let Some((set, profiles)) = queue.pop() {
        for addition in geometry.additions(set) {
            let mut more = profiles.clone();
            more.push(addition.place.profile);
            more.sort_unstable();
            if found.insert(more.clone()) {
                queue.push((addition.to, more));
            }
        }
    }
    found
}

/// Number of pods without a proposal on an H100 without instances. Each pod requests an instance of one profile and has an age in seconds.
fn blocked(geometry: &Geometry, requests: impl Iterator<Item = (usize, i64)>) -> usize {
    let pods = (0..).zip(requests).map(|(number, (profile, age))| {
        let resource = ResourceName::mig(&geometry.profiles()[profile].name).to_string();
        let profile = resource.strip_prefix("nvidia.com/mig-").unwrap();
        pod(&format!("pod-{number}"), age, &[(profile, 1)])
    });
    let report = proposals(vec![vec![device(0, &[])]], pods.collect());
    report.items.iter().filter(|one| one.outcome != Outcome::Create).count()
}

#[test]
fn pods_created_in_the_same_minute_get_all_instances_that_fit_together() {
    let geometry = Geometry::new(&h100(), |_| true).unwrap();
    let all = combinations(&geometry);
    assert_eq!(all.len(), 127);
    for profiles in all {
        let ascending = profiles.iter().map(|profile| (*profile, 60));
        assert_eq!(blocked(&geometry, ascending.clone()), 0, "{profiles:?}");
        assert_eq!(blocked(&geometry, ascending.rev()), 0, "{profiles:?} reversed");
    }
}

/// Of equally good placements, the planner takes the one that leaves the most placements.
#[test]
fn one_small_instance_takes_the_place_that_no_larger_one_needs() {
    let geometry = Geometry::new(&h100(), |_| true).unwrap();
    let [small, medium, large] = ["1g.10gb", "2g.20gb", "3g.40gb"]
        .map(|name| geometry.find(&name.parse().unwrap()).unwrap());
    for order in [
        [small, medium, large],
        [small, large, medium],
        [medium, small, large],
        [medium, large, small],
        [large, small, medium],
        [large, medium, small],
    ] {
        let minutes = order.into_iter().zip([600, 480, 360]);
        assert_eq!(blocked(&geometry, minutes), 0, "{order:?}");
    }
}
