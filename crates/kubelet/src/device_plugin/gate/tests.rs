//! Tests of sequential and concurrent calls of the gate.

use std::sync::Barrier;
use std::thread;

use octavo_node::sharing::listing::{HeldIds, reconcile_listing};
use octavo_node::sharing::{Offer, Offers, Unit};
use proptest::prelude::*;

use super::*;

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
const MIGS: [&str; 3] = [
    "MIG-11111111-2222-3333-4444-555555555550",
    "MIG-11111111-2222-3333-4444-555555555551",
    "MIG-11111111-2222-3333-4444-555555555552",
];

fn pci() -> PciAddress {
    PciAddress::new(0, 7, 0, 0).unwrap()
}

fn nothing() -> Inventory {
    Inventory::default()
}

fn offers(uuids: &[&str], replicas: Option<u32>, only_one: bool) -> Offers {
    let units = uuids.iter().map(|uuid| Unit {
        uuid: (*uuid).to_owned(),
        pci: pci(),
        partition: None,
        replicas,
        memory: None,
        memory_per_replica: None,
        numa_node: None,
    });
    Offers {
        resources: vec![Offer {
            name: ResourceName::gpu(),
            fail_requests_greater_than_one: only_one,
            units: units.collect(),
        }],
    }
}

fn list(gate: &AllocationGate, offers: &Offers, health: &Health) {
    list_without(gate, offers, (health, &BTreeSet::new()));
}

fn list_without(
    gate: &AllocationGate,
    offers: &Offers,
    (health, withheld): (&Health, &BTreeSet<PciAddress>),
) {
    gate.list(&nothing(), |view| {
        let held = HeldIds {
            allocations: &view.allocations,
            is_complete: view.is_complete,
            inventory: &nothing(),
            withheld,
        };
        reconcile_listing(offers, held, view.before, |_| health.clone())
    });
}

fn open(offers: &Offers) -> Arc<AllocationGate> {
    let gate = Arc::new(AllocationGate::default());
    gate.record_report(Duration::ZERO, Vec::new(), false);
    list(&gate, offers, &Health::Healthy);
    gate
}

#[test]
fn withheld_device_is_not_allocated_to_other_pods() {
    let offers = offers(&MIGS, None, false);
    let gate = open(&offers);
    ask(&gate, &[MIGS[0]]).unwrap();
    list_without(&gate, &offers, (&Health::Healthy, &BTreeSet::from([pci()])));
    let listing = Arc::clone(&gate.listing().borrow());
    let fit = listing.resources[&ResourceName::gpu()].allocatable();
    let fit: Vec<String> = fit.map(ToString::to_string).collect();
    assert_eq!(fit, [MIGS[0]]);
    // Another container of the pod being admitted.
    ask(&gate, &[MIGS[0]]).unwrap();
    let refused = |id: &str| matches!(ask(&gate, &[id]), Err(AllocationError::Withheld { .. }));
    assert!(refused(MIGS[1]));
    // Once the kubelet reports the pod, a request for the same ID comes from another pod, and the kubelet is queried
    // whether the first one has ended.
    let by = gate.held();
    gate.record_report(gate.now(), by, false);
    let mut count = gate.allocation_count();
    count.mark_unchanged();
    assert!(refused(MIGS[0]));
    assert!(count.has_changed().unwrap());
    let listing = Arc::clone(&gate.listing().borrow());
    assert_eq!(listing.resources[&ResourceName::gpu()].allocatable().count(), 0);
    assert_eq!(gate.held(), []);
    list(&gate, &offers, &Health::Healthy);
    ask(&gate, &[MIGS[1]]).unwrap();
}

fn ask(gate: &AllocationGate, ids: &[&str]) -> Result<(), AllocationError> {
    let ids = ids.iter().map(|&id| id.to_owned()).collect();
    gate.allocate(&ResourceName::gpu(), &[ids]).map(drop)
}

#[tokio::test]
async fn invalid_request_is_refused_entirely() {
    let gate = open(&offers(&[GPU], Some(2), true));
    let first = format!("{GPU}::0");
    let second = format!("{GPU}::1");
    for id in [GPU, MIGS[0], "", "0", &format!("{GPU}::2"), &format!("{GPU}::00x")] {
        let refusal = ask(&gate, &[id]).unwrap_err();
        assert!(matches!(refusal, AllocationError::Unknown { .. }), "{id}: {refusal}");
    }
    let refusal = ask(&gate, &[&first, &second]).unwrap_err();
    assert!(matches!(refusal, AllocationError::MoreThanOne { count: 2, .. }));
    let two = [vec![first.clone()], vec!["0".to_owned()]];
    gate.allocate(&ResourceName::gpu(), &two).unwrap_err();
    assert_eq!(gate.unreported(), []);
    ask(&gate, &[&first]).unwrap();
    assert_eq!(gate.unreported().len(), 1);
    let reason = "it fell off the bus".to_owned();
    list(&gate, &offers(&[GPU], Some(2), true), &Health::Unhealthy { reason });
    let refusal = ask(&gate, &[&second]).unwrap_err();
    assert!(refusal.to_string().contains("fell off the bus"), "{refusal}");
}

#[tokio::test]
async fn changed_device_is_blocked_until_list_is_updated() {
    let offered = offers(&[GPU], None, false);
    let gate = open(&offered);
    let closed = gate.block(&[pci()]);
    let twice = gate.block(&[pci()]);
    assert!(matches!(ask(&gate, &[GPU]), Err(AllocationError::Changing { .. })));
    drop(twice);
    list(&gate, &offered, &Health::Healthy);
    assert!(matches!(ask(&gate, &[GPU]), Err(AllocationError::Changing { .. })));
    drop(closed);
    // The list was read before the change.
    assert!(matches!(ask(&gate, &[GPU]), Err(AllocationError::Changing { .. })));
    list(&gate, &offered, &Health::Healthy);
    ask(&gate, &[GPU]).unwrap();
}

/// Returns whether an engine that destroys only unused partitions would destroy this one while its device is being
/// changed.
fn would_destroy(gate: &AllocationGate, uuid: &str) -> bool {
    gate.unreported().iter().all(|one| one.device_id != uuid)
}

/// Runs an allocation and a conditional destruction of a partition concurrently. Returns whether it was allocated and
/// whether it was destroyed.
fn race(gate: &Arc<AllocationGate>, uuid: &str, turns: usize) -> (bool, bool) {
    let both = Barrier::new(2);
    thread::scope(|scope| {
        let allocated = scope.spawn(|| {
            both.wait();
            (0..turns).for_each(|_| thread::yield_now());
            ask(gate, &[uuid]).is_ok()
        });
        both.wait();
        let closed = gate.block(&[pci()]);
        let is_destroyed = would_destroy(gate, uuid);
        let allocated = allocated.join().unwrap();
        drop(closed);
        (allocated, is_destroyed)
    })
}

#[tokio::test]
async fn i1_partition_is_never_both_allocated_and_destroyed() {
    let gate = open(&offers(&[GPU], None, false));
    let closed = gate.block(&[pci()]);
    assert!(would_destroy(&gate, GPU));
    ask(&gate, &[GPU]).unwrap_err();
    drop(closed);

    let gate = open(&offers(&[GPU], None, false));
    ask(&gate, &[GPU]).unwrap();
    let _closed = gate.block(&[pci()]);
    assert!(!would_destroy(&gate, GPU));
}

/// The scheduler decides the order, which may be the same in every round on a busy machine. Exactly one of both
/// succeeds.
#[tokio::test]
async fn i1_exactly_one_of_concurrent_allocation_and_destruction_succeeds() {
    for round in 0..2000 {
        let gate = open(&offers(&[GPU], None, false));
        let (allocated, is_destroyed) = race(&gate, GPU, round % 4);
        assert_ne!(allocated, is_destroyed, "round {round}");
    }
}

/// An event on a node with three partitions.
#[derive(Debug, Clone)]
enum Event {
    /// The kubelet requests a partition.
    Ask(usize),
    /// The kubelet records its allocations.
    Note,
    /// The n-th pod ends.
    End(usize),
    /// The kubelet is queried.
    Report,
    /// The kubelet restarts and temporarily reports no pods.
    Restart,
    /// The engine destroys a partition and creates another one.
    Replace(usize),
    /// The agent observes the hardware.
    Observe,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Event::Ask),
        2 => Just(Event::Note),
        2 => (0..4_usize).prop_map(Event::End),
        3 => Just(Event::Report),
        1 => Just(Event::Restart),
        3 => (0..3_usize).prop_map(Event::Replace),
        2 => Just(Event::Observe),
    ]
}

fn pod(uuid: &str) -> DeviceAllocation {
    DeviceAllocation {
        namespace: "team-a".to_owned(),
        pod: format!("pod-of-{uuid}"),
        container: "main".to_owned(),
        resource: ResourceName::gpu().to_string(),
        device_id: uuid.to_owned(),
        claim: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn i1_allocated_partition_is_never_destroyed_in_any_event_order(
        events in prop::collection::vec(event(), 1..60)
    ) {
        // Existing partitions by UUID; a UUID is never reused.
        let mut there: Vec<String> = MIGS.map(ToOwned::to_owned).to_vec();
        let mut made = 0;
        let offers_of = |there: &[String]| {
            let uuids: Vec<&str> = there.iter().map(String::as_str).collect();
            offers(&uuids, None, false)
        };
        let gate = open(&offers_of(&there));
        let (mut allocated, mut noted): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Ask(nth) => {
                    let uuid = there[nth].clone();
                    let is_free = !allocated.contains(&uuid) && !noted.contains(&uuid);
                    if is_free && ask(&gate, &[&uuid]).is_ok() {
                        prop_assert!(there.contains(&uuid));
                        allocated.push(uuid);
                    }
                }
                Event::Note => noted.append(&mut allocated),
                Event::End(nth) => if nth < noted.len() {
                    noted.remove(nth);
                },
                Event::Report => {
                    let report = noted.iter().map(|uuid| pod(uuid)).collect();
                    gate.record_report(gate.now(), report, false);
                }
                Event::Restart => {
                    gate.record_report(gate.now(), Vec::new(), true);
                }
                Event::Replace(nth) => {
                    let closed = gate.block(&[pci()]);
                    // As in `DevicePluginProbe`, with the kubelet's own response.
                    let unseen = gate.unreported();
                    let mut holders = unseen.iter().map(|one| &one.device_id).chain(&noted);
                    let uuid = there[nth].clone();
                    if !holders.any(|held| *held == uuid) {
                        prop_assert!(!allocated.contains(&uuid) && !noted.contains(&uuid), "{} is allocated to a pod", uuid);
                        made += 1;
                        there[nth] = format!("MIG-11111111-2222-3333-4444-{made:012}");
                    }
                    drop(closed);
                    prop_assert!(ask(&gate, &[&uuid]).is_err(), "allocated before the hardware was observed again");
                }
                Event::Observe => list(&gate, &offers_of(&there), &Health::Healthy),
            }
        }
    }
}
