//! Listings for given cases and for random events.

use octavo_model::inventory::{Device, PciIds};
use proptest::prelude::*;

use super::*;

const GPUS: [&str; 2] =
    ["GPU-5fd4087b-86f3-7a43-b711-4771313afc50", "GPU-5fd4087b-86f3-7a43-b711-4771313afc51"];

fn unit(gpu: usize, replicas: Option<u32>) -> Unit {
    Unit {
        uuid: GPUS[gpu].to_owned(),
        pci: PciAddress::new(0, u8::try_from(gpu).unwrap(), 0, 0).unwrap(),
        partition: None,
        replicas,
        memory: None,
        memory_per_replica: None,
        numa_node: None,
    }
}

fn offers(name: &ResourceName, units: Vec<Unit>) -> Offers {
    Offers {
        resources: vec![Offer { name: name.clone(), fail_requests_greater_than_one: false, units }],
    }
}

fn gpu(replicas: Option<u32>) -> Offers {
    offers(&ResourceName::gpu(), vec![unit(0, replicas)])
}

fn by(name: &ResourceName, id: &ShareId) -> DeviceAllocation {
    DeviceAllocation {
        namespace: "team-a".to_owned(),
        pod: format!("pod-of-{id}"),
        container: "main".to_owned(),
        resource: name.to_string(),
        device_id: id.to_string(),
        claim: None,
    }
}

fn held(ids: &[ShareId]) -> Vec<DeviceAllocation> {
    let name = ResourceName::gpu();
    ids.iter().map(|id| by(&name, id)).collect()
}

/// A node with these GPUs.
fn node(gpus: &[usize]) -> Inventory {
    let device = |gpu: &usize| {
        let ids = PciIds {
            vendor: 0x10de,
            device: 0x20b0,
            subsystem_vendor: 0x10de,
            subsystem_device: 0,
            class: None,
        };
        let mut device = Device::new(unit(*gpu, None).pci, ids);
        device.uuid = Some(GPUS[*gpu].parse().unwrap());
        device
    };
    Inventory { devices: gpus.iter().map(device).collect(), ..Inventory::default() }
}

fn list(desired: &Offers, allocations: &[DeviceAllocation], before: &Listing) -> Listing {
    list_on(&node(&[]), desired, allocations, before)
}

/// The empty set of withheld devices.
fn none() -> BTreeSet<PciAddress> {
    BTreeSet::new()
}

fn list_on(
    inventory: &Inventory,
    desired: &Offers,
    allocations: &[DeviceAllocation],
    before: &Listing,
) -> Listing {
    let held = HeldIds { allocations, is_complete: true, inventory, withheld: &none() };
    reconcile_listing(desired, held, before, |_| Health::Healthy)
}

fn ids(listing: &Listing, name: &ResourceName) -> Vec<ShareId> {
    let listed = listing.resources.get(name);
    let items = listed.into_iter().flat_map(|listed| &listed.items);
    items.map(|item| item.id.clone()).collect()
}

fn replica(number: u32) -> ShareId {
    ShareId::replica(GPUS[0], number)
}

#[test]
fn reduction_from_four_to_two_with_three_held_lists_the_three() {
    let three = [replica(0), replica(1), replica(3)];
    let listing = list(&gpu(Some(2)), &held(&three), &Listing::default());
    assert_eq!(ids(&listing, &ResourceName::gpu()), three);
    let retained: Vec<&ShareId> = listing.retained.iter().map(|retained| &retained.id).collect();
    assert_eq!(retained, [&replica(3)]);
    // One of the two that may stay is released: the third stays, and nothing new is listed.
    let two = [replica(1), replica(3)];
    let listing = list(&gpu(Some(2)), &held(&two), &listing);
    assert_eq!(ids(&listing, &ResourceName::gpu()), two);
    let listing = list(&gpu(Some(2)), &[], &listing);
    assert_eq!(ids(&listing, &ResourceName::gpu()), [replica(0), replica(1)]);
    assert_eq!(listing.retained, []);
}

#[test]
fn increase_keeps_held_replicas_and_adds_lowest_free_ones() {
    let listing = list(&gpu(Some(3)), &held(&[replica(5)]), &Listing::default());
    let expected = [replica(0), replica(1), replica(5)];
    assert_eq!(ids(&listing, &ResourceName::gpu()), expected);
}

#[test]
fn unit_is_never_listed_whole_and_in_replicas() {
    let whole = ShareId::whole(GPUS[0]);
    let listing = list(&gpu(Some(4)), &held(std::slice::from_ref(&whole)), &Listing::default());
    assert_eq!(ids(&listing, &ResourceName::gpu()), std::slice::from_ref(&whole));
    assert_eq!(listing.retained.len(), 1);
    let listing = list(&gpu(None), &held(&[replica(2)]), &Listing::default());
    assert_eq!(ids(&listing, &ResourceName::gpu()), [replica(2)]);
    let listing = list(&gpu(None), &[], &listing);
    assert_eq!(ids(&listing, &ResourceName::gpu()), [whole]);
}

#[test]
fn renamed_resource_keeps_held_ids_under_old_name_within_total() {
    let shared = ResourceName::gpu().shared();
    let desired = offers(&shared, vec![unit(0, Some(3))]);
    let listing = list(&desired, &held(&[replica(0)]), &Listing::default());
    assert_eq!(ids(&listing, &ResourceName::gpu()), [replica(0)]);
    assert_eq!(ids(&listing, &shared), [replica(1), replica(2)]);
    let listing = list(&desired, &[], &listing);
    assert!(!listing.resources.contains_key(&ResourceName::gpu()));
    assert_eq!(ids(&listing, &shared).len(), 3);
}

#[test]
fn unknown_holders_freeze_listing() {
    let unknown =
        HeldIds { allocations: &[], is_complete: false, inventory: &node(&[]), withheld: &none() };
    let healthy = |_: &Unit| Health::Healthy;
    let first = reconcile_listing(&gpu(Some(4)), unknown, &Listing::default(), healthy);
    assert_eq!(ids(&first, &ResourceName::gpu()), []);
    let four = list(&gpu(Some(4)), &[], &first);
    let after = reconcile_listing(&gpu(Some(2)), unknown, &four, healthy);
    assert_eq!(ids(&after, &ResourceName::gpu()).len(), 4);
    let after = reconcile_listing(&gpu(None), unknown, &after, healthy);
    assert_eq!(ids(&after, &ResourceName::gpu()).len(), 4);
    let grown = reconcile_listing(&gpu(Some(6)), unknown, &after, healthy);
    assert_eq!(ids(&grown, &ResourceName::gpu()).len(), 6);
}

#[test]
fn held_ids_of_withdrawn_unit_stay_listed() {
    let two = [replica(0), replica(2)];
    let before = list(&gpu(Some(3)), &held(&two), &Listing::default());
    for inventory in [node(&[0]), node(&[])] {
        let listing = list_on(&inventory, &Offers::default(), &held(&two), &before);
        assert_eq!(ids(&listing, &ResourceName::gpu()), two);
        let retained: Vec<&ShareId> =
            listing.retained.iter().map(|retained| &retained.id).collect();
        assert_eq!(retained, [&replica(0), &replica(2)]);
        // The unit itself stays too: responses to containers are built from it.
        assert!(listing.resources[&ResourceName::gpu()].unit(&two[0]).is_some());
        let listing = list_on(&inventory, &Offers::default(), &[], &listing);
        assert_eq!(listing, Listing::default());
    }
}

#[test]
fn held_ids_without_offer_are_listed_after_restart() {
    let whole = [ShareId::whole(GPUS[0])];
    let nothing = Offers::default();
    let listing = list_on(&node(&[0]), &nothing, &held(&whole), &Listing::default());
    assert_eq!(ids(&listing, &ResourceName::gpu()), whole);
    assert_eq!(listing.retained.len(), 1);
}

#[test]
fn unoffered_unit_stays_listed_while_holders_are_unknown_if_present() {
    let before = list(&gpu(None), &[], &Listing::default());
    for (there, count) in [(&[0][..], 1), (&[], 0)] {
        let unknown = HeldIds {
            allocations: &[],
            is_complete: false,
            inventory: &node(there),
            withheld: &none(),
        };
        let listing = reconcile_listing(&Offers::default(), unknown, &before, |_| Health::Healthy);
        assert_eq!(ids(&listing, &ResourceName::gpu()).len(), count);
    }
}

#[test]
fn ids_of_absent_units_are_not_listed() {
    let gone = ShareId::whole(GPUS[1]);
    let listing = list(&gpu(None), &held(&[gone]), &Listing::default());
    assert_eq!(ids(&listing, &ResourceName::gpu()), [ShareId::whole(GPUS[0])]);
}

/// An event of a node.
#[derive(Debug, Clone)]
enum Event {
    /// The layout requests these replicas of each GPU, under the other name or not.
    Ask(Option<u32>, Option<u32>, bool),
    /// These GPUs are withheld.
    Withhold(bool, bool),
    /// Nothing can be offered, as under the strategy `single` with partitions that differ.
    AskNothing,
    /// Kubelet allocates the n-th free id.
    Take(usize),
    /// The n-th holder releases its id.
    Release(usize),
    /// The kubelet reports its allocations (`true`), or does not.
    Complete(bool),
}

fn replicas() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![Just(None), (2..6_u32).prop_map(Some)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (replicas(), replicas(), any::<bool>()).prop_map(|(a, b, named)| Event::Ask(a, b, named)),
        (0..20_usize).prop_map(Event::Take),
        (0..20_usize).prop_map(Event::Take),
        (0..20_usize).prop_map(Event::Release),
        any::<bool>().prop_map(Event::Complete),
        (any::<bool>(), any::<bool>()).prop_map(|(a, b)| Event::Withhold(a, b)),
        Just(Event::AskNothing),
    ]
}

fn desired_of(a: Option<u32>, b: Option<u32>, renamed: bool) -> Offers {
    let name = ResourceName::gpu();
    let name = if renamed { name.shared() } else { name };
    offers(&name, vec![unit(0, a), unit(1, b)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn held_ids_are_never_dropped_and_units_never_mixed(
        events in prop::collection::vec(event(), 1..40)
    ) {
        let mut desired = desired_of(None, None, false);
        let mut taken: Vec<ListedKey> = Vec::new();
        let mut is_complete = true;
        let mut withheld = none();
        let mut listing = Listing::default();
        for event in events {
            match event {
                Event::Ask(a, b, renamed) => desired = desired_of(a, b, renamed),
                Event::Take(nth) => {
                    let fit = |(name, id): &(&ResourceName, &ShareId)| {
                        listing.resources[*name].allocatable().any(|fit| fit == *id)
                    };
                    let free: Vec<ListedKey> = listing
                        .places()
                        .filter(fit)
                        .map(|(name, id)| (name.clone(), id.clone()))
                        .filter(|place| !taken.contains(place))
                        .collect();
                    if !free.is_empty() {
                        taken.push(free[nth % free.len()].clone());
                    }
                }
                Event::Release(nth) => if !taken.is_empty() {
                    taken.remove(nth % taken.len());
                },
                Event::Complete(now) => is_complete = now,
                Event::Withhold(a, b) => {
                    let all = [(0, a), (1, b)].into_iter().filter(|(_, is_withheld)| *is_withheld);
                    withheld = all.map(|(gpu, _)| unit(gpu, None).pci).collect();
                }
                Event::AskNothing => desired = Offers::default(),
            }
            let allocations: Vec<DeviceAllocation> = taken.iter().map(|(name, id)| by(name, id)).collect();
            let reported = if is_complete { &allocations[..] } else { &[] };
            let (inventory, before) = (node(&[0, 1]), listing.clone());
            let held = HeldIds { allocations: reported, is_complete, inventory: &inventory, withheld: &withheld };
            listing = reconcile_listing(&desired, held, &before, |_| Health::Healthy);
            let nothing = HeldIds { withheld: &none(), ..held };
            let without = reconcile_listing(&desired, nothing, &before, |_| Health::Healthy);
            prop_assert!(listing.places().eq(without.places()), "withheld ids stay listed");
            for (name, listed) in &listing.resources {
                for item in &listed.items {
                    let is_taken = taken.contains(&(name.clone(), item.id.clone()));
                    prop_assert!(!is_taken || item.is_allocatable(), "{:?} is taken away from a pod", item);
                    let is_of_withheld = listed.unit(&item.id).is_some_and(|unit| withheld.contains(&unit.pci));
                    prop_assert!(is_of_withheld || item.is_allocatable(), "{:?} is not withheld", item);
                    if is_complete && !is_taken {
                        prop_assert_eq!(item.is_allocatable(), !is_of_withheld);
                    }
                }
            }
            let listed: BTreeSet<ListedKey> = listing
                .places()
                .map(|(name, id)| (name.clone(), id.clone()))
                .collect();
            prop_assert_eq!(listed.len(), listing.places().count(), "an id is listed twice");
            for place in &taken {
                prop_assert!(listed.contains(place), "{:?} is dropped", place);
            }
            for gpu in GPUS {
                let of: Vec<&ShareId> = listed.iter().map(|(_, id)| id).filter(|id| id.uuid() == gpu).collect();
                let whole = of.iter().filter(|id| id.number().is_none()).count();
                prop_assert!(whole == 0 || of.len() == 1, "{:?}", of);
                let count = desired.unit(gpu).map_or(0, |(_, unit)| unit.ids().len());
                let held = taken.iter().filter(|(_, id)| id.uuid() == gpu).count();
                if is_complete {
                    prop_assert!(of.len() <= count.max(held), "{:?}", of);
                }
            }
        }
        let listing = list(&desired, &[], &listing);
        let whole: Vec<(ResourceName, Vec<ShareId>)> = desired
            .resources
            .iter()
            .map(|offer| (offer.name.clone(), offer.units.iter().flat_map(Unit::ids).collect()))
            .collect();
        let now: Vec<(ResourceName, Vec<ShareId>)> = listing
            .resources
            .keys()
            .map(|name| (name.clone(), ids(&listing, name)))
            .collect();
        prop_assert_eq!(now, whole);
        prop_assert_eq!(listing.retained, vec![]);
    }
}
