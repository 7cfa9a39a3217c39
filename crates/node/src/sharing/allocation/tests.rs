//! Preferred allocations on several kinds of machines, and properties of all of them.

mod random;

use octavo_model::examples::gpu;
use octavo_model::inventory::{Condition, Device, LinkRemote, Machine, NvLink, NvmlState};
use octavo_model::resource::ResourceName;

use super::*;

fn pci(number: usize) -> PciAddress {
    PciAddress::new(0, u8::try_from(number).unwrap(), 0, 0).unwrap()
}

fn uuid(kind: &str, number: usize, part: usize) -> String {
    format!("{kind}-{number:08x}-0000-0000-0000-{part:012x}")
}

/// Devices and their offer.
#[derive(Debug, Clone)]
struct Node {
    inventory: Inventory,
    offer: Offer,
}

impl Node {
    /// Whole devices, each on the NUMA node that `numa` returns.
    fn new(count: usize, numa: impl Fn(usize) -> u32) -> Self {
        let device = |number| Device { pci: pci(number), numa_node: Some(numa(number)), ..gpu() };
        let unit = |number| Unit {
            uuid: uuid("GPU", number, 0),
            pci: pci(number),
            partition: None,
            replicas: None,
            memory: None,
            memory_per_replica: None,
            numa_node: Some(numa(number)),
        };
        Self {
            inventory: Inventory {
                neuron: None,
                machine: Machine::default(),
                nvml: NvmlState::Loading,
                devices: (0..count).map(device).collect(),
            },
            offer: Offer {
                name: ResourceName::gpu(),
                fail_requests_greater_than_one: false,
                units: (0..count).map(unit).collect(),
            },
        }
    }

    fn linked(mut self, pairs: &[(usize, usize, usize)]) -> Self {
        for (a, b, count) in pairs {
            for (from, to) in [(*a, *b), (*b, *a)] {
                let link = |_| NvLink { link: 0, remote: LinkRemote::Device(pci(to)) };
                let links = (0..*count).map(link);
                self.inventory.devices[from].links.extend(links);
            }
        }
        self
    }

    fn switched(mut self) -> Self {
        for device in &mut self.inventory.devices {
            let link = |link| NvLink { link, remote: LinkRemote::Switch(pci(200)) };
            device.links = (0..18).map(link).collect();
        }
        self
    }

    /// Shares each unit.
    fn shared(mut self, replicas: u32) -> Self {
        for unit in &mut self.offer.units {
            unit.replicas = Some(replicas);
        }
        self
    }

    /// Splits each device into the given number of partitions.
    fn parted(mut self, parts: &[usize]) -> Self {
        let whole = std::mem::take(&mut self.offer.units);
        for (number, (unit, parts)) in whole.into_iter().zip(parts).enumerate() {
            for part in 0..*parts {
                let partition = Partition {
                    gpu_instance: u32::try_from(part).unwrap() + 1,
                    compute_instance: 0,
                    profile: "1g.10gb".parse().unwrap(),
                };
                self.offer.units.push(Unit {
                    uuid: uuid("MIG", number, part),
                    partition: Some(partition),
                    ..unit.clone()
                });
            }
        }
        self
    }

    fn lost(mut self, number: usize) -> Self {
        self.inventory.devices[number].condition =
            Condition::Failing { reason: "GPU is lost (15)".to_owned() };
        self.inventory.devices[number].links.clear();
        self
    }

    fn all(&self) -> Vec<ShareId> {
        self.offer.units.iter().flat_map(Unit::ids).collect()
    }

    fn prefer(&self, question: &AllocationRequest, policy: AllocationPolicy) -> Vec<ShareId> {
        preferred_ids(question, policy, &self.offer, &self.inventory)
    }

    /// The preferred whole devices, in order.
    fn whole(&self, free: &[usize], must: &[usize], size: usize) -> Vec<usize> {
        let id = |number: &usize| ShareId::whole(&uuid("GPU", *number, 0));
        let question = AllocationRequest {
            available: free.iter().map(id).collect(),
            must_include: must.iter().map(id).collect(),
            size,
        };
        let chosen = self.prefer(&question, AllocationPolicy::Spread);
        let mut numbers: Vec<usize> = chosen.iter().map(|id| self.device(id)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The device of an id.
    fn device(&self, id: &ShareId) -> usize {
        let unit = self.offer.units.iter().find(|unit| is_of(id, unit)).unwrap();
        (0..256).find(|number| pci(*number) == unit.pci).unwrap()
    }

    /// The devices of the preferred ids, with all unallocated ids available.
    fn spread(&self, taken: &[ShareId], size: usize, policy: AllocationPolicy) -> Vec<usize> {
        let mut available = self.all();
        available.retain(|id| !taken.contains(id));
        let question = AllocationRequest { available, must_include: Vec::new(), size };
        let chosen = self.prefer(&question, policy);
        chosen.iter().map(|id| self.device(id)).collect()
    }
}

const PAIRS: [(usize, usize, usize); 4] = [(0, 1, 4), (2, 3, 4), (4, 5, 4), (6, 7, 4)];

/// Four linked devices, two linked devices, and a single one.
fn four_two_one() -> Node {
    Node::new(7, |_| 0).linked(&[
        (0, 1, 1),
        (0, 2, 1),
        (0, 3, 1),
        (1, 2, 1),
        (1, 3, 1),
        (2, 3, 1),
        (4, 5, 1),
    ])
}

#[test]
fn linked_pair_is_preferred_and_single_device_breaks_no_pair() {
    let node = Node::new(8, |number| u32::from(number > 3)).linked(&PAIRS);
    assert_eq!(node.whole(&[1, 2, 3, 5, 6], &[], 2), [2, 3]);
    assert_eq!(node.whole(&[0, 1, 2, 4, 5, 6, 7], &[], 1), [2]);
    assert_eq!(node.whole(&[0, 1, 2, 4, 5, 6, 7], &[], 4), [4, 5, 6, 7]);
    assert_eq!(node.whole(&[0, 1, 2, 5, 6, 7], &[5], 2), [5, 6]);
    assert_eq!(node.whole(&[0, 1, 2, 4, 5, 6, 7], &[5], 2), [4, 5]);
}

#[test]
fn smallest_fitting_domain_is_preferred() {
    let node = four_two_one();
    let all = [0, 1, 2, 3, 4, 5, 6];
    assert_eq!(node.whole(&all, &[], 1), [6]);
    assert_eq!(node.whole(&all, &[], 2), [4, 5]);
    assert_eq!(node.whole(&all, &[], 3), [0, 1, 2]);
    assert_eq!(node.whole(&all, &[], 4), [0, 1, 2, 3]);
    assert_eq!(node.whole(&all, &[], 5), [0, 1, 2, 3, 6]);
    assert_eq!(node.whole(&all, &[], 6), [0, 1, 2, 3, 4, 5]);
    assert_eq!(node.whole(&all, &[], 9), all);
}

#[test]
fn numa_node_decides_behind_switches() {
    let node = Node::new(8, |number| u32::from(number > 3)).switched();
    let all: Vec<usize> = (0..8).collect();
    assert_eq!(node.whole(&all, &[], 4), [0, 1, 2, 3]);
    assert_eq!(node.whole(&[0, 1, 2, 3, 5, 6], &[], 1), [5]);
    assert_eq!(node.whole(&[1, 2, 4, 5, 6, 7], &[], 2), [1, 2]);
    assert_eq!(node.whole(&all, &[6], 3), [4, 5, 6]);
}

#[test]
fn unlinked_devices_prefer_one_numa_node() {
    let node = Node::new(8, |number| u32::from(number % 2 == 1));
    assert_eq!(node.whole(&[0, 1, 3, 5, 6], &[], 3), [1, 3, 5]);
    assert_eq!(node.whole(&[0, 1, 2, 3], &[3], 2), [1, 3]);
}

#[test]
fn two_links_are_better_than_one() {
    // A square with two strong sides, like half of a DGX-1.
    let square = [(0, 1, 1), (0, 2, 1), (0, 3, 2), (1, 2, 2), (1, 3, 1), (2, 3, 1)];
    let node = Node::new(4, |_| 0).linked(&square);
    assert_eq!(node.whole(&[0, 1, 2, 3], &[], 2), [0, 3]);
    assert_eq!(node.whole(&[0, 1, 2], &[], 2), [1, 2]);
}

#[test]
fn failed_device_is_preferred_last() {
    let node = Node::new(8, |_| 0).switched().lost(0);
    let all: Vec<usize> = (0..8).collect();
    assert_eq!(node.whole(&all, &[], 2), [1, 2]);
    assert_eq!(node.whole(&all, &[], 8), all);
    assert_eq!(node.whole(&all, &[0], 2), [0, 1]);
}

#[test]
fn linked_devices_are_preferred_beyond_exhaustive_search() {
    let ring: Vec<(usize, usize, usize)> = (0..64)
        .flat_map(|a| (0..a).map(move |b| (a, b, 1)))
        .filter(|(a, b, _)| a / 16 == b / 16)
        .collect();
    let node = Node::new(64, |_| 0).linked(&ring);
    let free: Vec<usize> = (5..64).collect();
    let second: Vec<usize> = (16..32).collect();
    assert_eq!(node.whole(&free, &[], 16), second);
    assert_eq!(node.whole(&free, &[], 32).len(), 32);
}

#[test]
fn replicas_prefer_different_devices() {
    let node = Node::new(4, |_| 0).shared(4);
    for policy in [AllocationPolicy::Spread, AllocationPolicy::Pack] {
        assert_eq!(node.spread(&[], 4, policy), [0, 1, 2, 3]);
    }
    let chosen = node.spread(&[], 6, AllocationPolicy::Spread);
    assert_eq!(chosen, [0, 1, 2, 3, 0, 1]);
}

#[test]
fn spread_prefers_most_free_and_pack_least_free() {
    let node = Node::new(3, |_| 0).shared(4);
    let id = |number, replica| ShareId::replica(&uuid("GPU", number, 0), replica);
    let taken = [id(0, 0), id(1, 0), id(1, 3), id(2, 1)];
    assert_eq!(node.spread(&taken, 1, AllocationPolicy::Spread), [0]);
    assert_eq!(node.spread(&taken, 1, AllocationPolicy::Pack), [1]);
    let full = [id(1, 0), id(1, 1), id(1, 2), id(1, 3), id(2, 0)];
    assert_eq!(node.spread(&full, 1, AllocationPolicy::Pack), [2]);
}

#[test]
fn partitions_are_spread_over_their_devices() {
    let node = Node::new(3, |number| u32::from(number == 1)).parted(&[7, 2, 3]);
    let id = |number, part| ShareId::whole(&uuid("MIG", number, part));
    assert_eq!(node.spread(&[], 4, AllocationPolicy::Spread), [0, 2, 1, 0]);
    let taken = [id(0, 0), id(1, 0), id(1, 1)];
    assert_eq!(node.spread(&taken, 1, AllocationPolicy::Spread), [2]);
    assert_eq!(node.spread(&taken, 1, AllocationPolicy::Pack), [0]);
}

#[test]
fn odd_requests_still_get_preference() {
    let node = four_two_one();
    let known = ShareId::whole(&uuid("GPU", 1, 0));
    let strange = [ShareId::whole(&uuid("GPU", 99, 0)), ShareId::replica(&uuid("GPU", 1, 0), 0)];
    let ask = |available: &[ShareId], must: &[ShareId], size| {
        let question =
            AllocationRequest { available: available.to_vec(), must_include: must.to_vec(), size };
        node.prefer(&question, AllocationPolicy::Spread)
    };
    assert_eq!(ask(&[], &[], 3), []);
    assert_eq!(ask(&strange, &[], 0), []);
    assert_eq!(ask(&strange, &[], usize::MAX).len(), 2);
    let [one, two] = strange.clone();
    let mixed = [one, known.clone(), two.clone(), known.clone()];
    assert_eq!(ask(&mixed, &[], 1), std::slice::from_ref(&known));
    assert_eq!(ask(&[], &strange, 1).len(), 2, "all required ids");
    assert_eq!(ask(&mixed, &[two.clone(), two.clone()], 2), [two, known]);
    let nothing = Offer { units: Vec::new(), ..node.offer.clone() };
    let question =
        AllocationRequest { available: mixed.to_vec(), must_include: Vec::new(), size: 2 };
    let chosen = preferred_ids(&question, AllocationPolicy::Pack, &nothing, &node.inventory);
    assert_eq!(chosen.len(), 2);
}
