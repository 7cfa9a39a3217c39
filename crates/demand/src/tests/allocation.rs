//! Allocations, reservations and their effect on other instances.

use octavo_model::catalog::Placement;
use octavo_model::profile::ProfileName;
use proptest::prelude::*;

use crate::choice::{Fragmentation, candidates};
use crate::fleet::{Fleet, Operations, User};
use crate::geometry::{Geometry, Place};
use octavo_model::examples::h100;

fn fleet(count: usize) -> Fleet {
    let mut fleet = Fleet::default();
    fleet.add(Geometry::new(&h100(), |_| true).unwrap(), count);
    fleet
}

fn place(fleet: &Fleet, id: u32, start: u32, size: u32) -> Place {
    fleet.geometries()[0].place(id, Placement { start, size }).unwrap()
}

#[test]
fn idle_instance_is_reused_without_operations() {
    let mut fleet = fleet(2);
    let three = place(&fleet, 9, 4, 4);
    assert_eq!(fleet.allocate(1, three, 1), Some(Operations { created: 1, destroyed: 0 }));
    fleet.release(1, 1);
    let fragmentation = Fragmentation::new(&fleet);
    let name: ProfileName = "3g.40gb".parse().unwrap();
    let best = candidates(&fleet, &name, 2).min_by_key(|one| fragmentation.score(one)).unwrap();
    assert_eq!((best.gpu, best.addition.place, best.operations()), (1, three, 0));
    assert_eq!(fleet.allocate(1, three, 2), Some(Operations::default()));
}

#[test]
fn only_idle_instances_in_conflict_are_replaced() {
    let mut fleet = fleet(1);
    let places = [place(&fleet, 20, 0, 1), place(&fleet, 19, 1, 1), place(&fleet, 19, 6, 1)];
    for (holder, place) in places.iter().enumerate() {
        fleet.allocate(0, *place, holder).unwrap();
    }
    fleet.release(0, 0);
    fleet.release(0, 2);
    // The media extensions are free again only if their idle instance is destroyed, which is elsewhere on the device.
    let media = place(&fleet, 20, 4, 1);
    assert_eq!(fleet.allocate(0, media, 3), Some(Operations { created: 1, destroyed: 1 }));
    let expected = [places[1], places[2], media];
    let instances = fleet.gpus()[0].instances();
    assert!(expected.iter().all(|place| instances.iter().any(|one| one.place == *place)));
    // An instance in use is in conflict with a whole device.
    let whole = place(&fleet, 0, 0, 8);
    let before = instances.to_vec();
    assert_eq!(fleet.allocate(0, whole, 4), None);
    assert_eq!(fleet.gpus()[0].instances(), before);
}

#[test]
fn reserved_device_is_open_to_its_request_only() {
    let mut fleet = fleet(2);
    let one = place(&fleet, 19, 0, 1);
    fleet.allocate(0, one, 1).unwrap();
    let whole: ProfileName = "7g.80gb".parse().unwrap();
    fleet.reserve(&whole, 7);
    assert_eq!(fleet.reserved_for(), Some(7));
    let small: ProfileName = "1g.10gb".parse().unwrap();
    let gpus = |holder| -> Vec<usize> {
        candidates(&fleet, &small, holder).map(|candidate| candidate.gpu).collect()
    };
    // The second device has the fewest slices in use.
    assert_eq!((gpus(2), gpus(7).contains(&1)), (vec![0; 6], true));
    let two = place(&fleet, 19, 1, 1);
    fleet.allocate(0, two, 7).unwrap();
    assert_eq!(fleet.reserved_for(), None);
    assert!(candidates(&fleet, &small, 2).any(|candidate| candidate.gpu == 1));
}

#[derive(Debug, Clone)]
enum Act {
    Request { profile: usize, pick: usize },
    Release(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..7_usize, any::<usize>()).prop_map(|(profile, pick)| Act::Request { profile, pick }),
        2 => any::<usize>().prop_map(Act::Release),
    ]
}

proptest! {
    /// I1: whatever is requested, every instance in use stays, all instances fit together, and operations explain their number.
    #[test]
    fn i1_instance_in_use_is_never_destroyed(acts in prop::collection::vec(act(), 1..200)) {
        let mut fleet = fleet(3);
        let mut held: Vec<(usize, usize, Place)> = Vec::new();
        let mut expected = 0_i64;
        for (holder, act) in acts.into_iter().enumerate() {
            match act {
                Act::Request { profile, pick } => {
                    let name = fleet.geometries()[0].profiles()[profile].name.clone();
                    let all: Vec<(usize, Place, usize)> = candidates(&fleet, &name, holder)
                        .map(|one| (one.gpu, one.addition.place, one.operations()))
                        .collect();
                    let Some((gpu, place, announced)) = all.get(pick % all.len().max(1)) else { continue };
                    let operations = fleet.allocate(*gpu, *place, holder).unwrap();
                    prop_assert_eq!(operations.created as usize + operations.destroyed as usize, *announced);
                    expected += i64::from(operations.created) - i64::from(operations.destroyed);
                    held.push((*gpu, holder, *place));
                }
                Act::Release(pick) if !held.is_empty() => {
                    let (gpu, holder, _) = held.swap_remove(pick % held.len());
                    fleet.release(gpu, holder);
                }
                Act::Release(_) => {}
            }
            let geometry = &fleet.geometries()[0];
            for gpu in fleet.gpus() {
                let all = gpu.instances().iter().map(|one| &one.place);
                prop_assert!(geometry.set_of(all).is_some());
            }
            for (gpu, holder, place) in &held {
                let instances = fleet.gpus()[*gpu].instances();
                prop_assert!(instances.iter().any(|one| one.place == *place && one.user == Some(User::Request(*holder))));
            }
            let existing: usize = fleet.gpus().iter().map(|gpu| gpu.instances().len()).sum();
            prop_assert_eq!(i64::try_from(existing).unwrap(), expected);
        }
    }
}
