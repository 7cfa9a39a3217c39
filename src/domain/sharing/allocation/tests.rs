//! Preferred allocations on several kinds of machines, and properties of all of them.

mod random;

use super::*;
use crate::domain::inventory::tests_support::gpu;
use crate::domain::inventory::{Condition, Device, LinkRemote, Machine, NvLink, NvmlState};
use crate::domain::sharing::resource::ResourceName;

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
        let device = |number| Device {
            pci: pci(number),
            numa_node: Some(numa(number)),
            ..gpu()
        };
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
                let link = |_| NvLink {
                    link: 0,
                    remote: LinkRemote::Device(pci(to)),
                };
                let links = (0..*count).map(link);
                self.inventory.devices[from].links.extend(links);
            }
        }
        self
    }

    fn switched(mut self) -> Self {
        for device in &mut self.inventory.devices {
            let link = |link| NvLink {
                link,
                remote: LinkRemote::Switch(pci(200)),
            };
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
        self.inventory.devices[number].condition = Condition::Failing {
            reason: "GPU is lost (15)".to_owned(),
        };
        self.inventory.devices[number].links.clear();
        self
    }

    fn all(&self) -> Vec<ShareId> {
        self.offer.units.iter().flat_map(Unit::ids).collect()
    }

    fn prefer(&self, question: &Question, policy: Policy) -> Vec<ShareId> {
        prefer(question, policy, &self.offer, &self.inventory)
    }

    /// The preferred whole devices, in order.
    fn whole(&self, free: &[usize], must: &[usize], size: usize) -> Vec<usize> {
        let id = |number: &usize| ShareId::whole(&uuid("GPU", *number, 0));
        let question = Question {
            available: free.iter().map(id).collect(),
            must_include: must.iter().map(id).collect(),
            size,
        };
        let chosen = self.prefer(&question, Policy::Spread);
        let mut numbers: Vec<usize> = chosen.iter().map(|id| self.device(id)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The device of an id.
    fn device(&self, id: &ShareId) -> usize {
        let unit = self
            .offer
            .units
            .iter()
            .find(|unit| is_of(id, unit))
            .unwrap();
        (0..256).find(|number| pci(*number) == unit.pci).unwrap()
    }

    /// The devices of the preferred ids, with all unallocated ids available.
    fn spread(&self, taken: &[ShareId], size: usize, policy: Policy) -> Vec<usize> {
        let mut available = self.all();
        available.retain(|id| !taken.contains(id));
        let question = Question {
            available,
            must_include: Vec::new(),
            size,
        };
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
fn of_linked_pairs_a_pair_is_advised_and_for_one_that_whose_partner_is_not_free() {
    let node = Node::new(8, |number| u32::from(number > 3)).linked(&PAIRS);
    assert_eq!(node.whole(&[1, 2, 3, 5, 6], &[], 2), [2, 3]);
    assert_eq!(node.whole(&[0, 1, 2, 4, 5, 6, 7], &[], 1), [2]);
    assert_eq!(node.whole(&[0, 1, 2, 4, 5, 6, 7], &[], 4), [4, 5, 6, 7]);
    assert_eq!(node.whole(&[0, 1, 2, 5, 6, 7], &[5], 2), [5, 6]);
    assert_eq!(node.whole(&[0, 1, 2, 4, 5, 6, 7], &[5], 2), [4, 5]);
}

#[test]
fn the_smallest_domain_that_fits_is_taken_and_the_large_one_stays_whole() {
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
fn behind_switches_the_numa_node_decides_and_one_is_taken_of_the_half_that_is_broken_into() {
    let node = Node::new(8, |number| u32::from(number > 3)).switched();
    let all: Vec<usize> = (0..8).collect();
    assert_eq!(node.whole(&all, &[], 4), [0, 1, 2, 3]);
    assert_eq!(node.whole(&[0, 1, 2, 3, 5, 6], &[], 1), [5]);
    assert_eq!(node.whole(&[1, 2, 4, 5, 6, 7], &[], 2), [1, 2]);
    assert_eq!(node.whole(&all, &[6], 3), [4, 5, 6]);
}

#[test]
fn without_links_devices_of_one_numa_node_are_advised() {
    let node = Node::new(8, |number| u32::from(number % 2 == 1));
    assert_eq!(node.whole(&[0, 1, 3, 5, 6], &[], 3), [1, 3, 5]);
    assert_eq!(node.whole(&[0, 1, 2, 3], &[3], 2), [1, 3]);
}

#[test]
fn two_links_are_better_than_one() {
    // A square with two strong sides, like half of a DGX-1.
    let square = [
        (0, 1, 1),
        (0, 2, 1),
        (0, 3, 2),
        (1, 2, 2),
        (1, 3, 1),
        (2, 3, 1),
    ];
    let node = Node::new(4, |_| 0).linked(&square);
    assert_eq!(node.whole(&[0, 1, 2, 3], &[], 2), [0, 3]);
    assert_eq!(node.whole(&[0, 1, 2], &[], 2), [1, 2]);
}

#[test]
fn a_device_that_does_not_work_is_advised_last() {
    let node = Node::new(8, |_| 0).switched().lost(0);
    let all: Vec<usize> = (0..8).collect();
    assert_eq!(node.whole(&all, &[], 2), [1, 2]);
    assert_eq!(node.whole(&all, &[], 8), all);
    assert_eq!(node.whole(&all, &[0], 2), [0, 1]);
}

#[test]
fn of_more_devices_than_can_be_tried_those_that_are_linked_are_advised() {
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
fn replicas_are_of_different_devices_first() {
    let node = Node::new(4, |_| 0).shared(4);
    for policy in [Policy::Spread, Policy::Pack] {
        assert_eq!(node.spread(&[], 4, policy), [0, 1, 2, 3]);
    }
    let chosen = node.spread(&[], 6, Policy::Spread);
    assert_eq!(chosen, [0, 1, 2, 3, 0, 1]);
}

#[test]
fn spreading_takes_what_has_most_left_and_packing_what_has_least() {
    let node = Node::new(3, |_| 0).shared(4);
    let id = |number, replica| ShareId::replica(&uuid("GPU", number, 0), replica);
    let taken = [id(0, 0), id(1, 0), id(1, 3), id(2, 1)];
    assert_eq!(node.spread(&taken, 1, Policy::Spread), [0]);
    assert_eq!(node.spread(&taken, 1, Policy::Pack), [1]);
    let full = [id(1, 0), id(1, 1), id(1, 2), id(1, 3), id(2, 0)];
    assert_eq!(node.spread(&full, 1, Policy::Pack), [2]);
}

#[test]
fn partitions_are_spread_over_their_devices() {
    let node = Node::new(3, |number| u32::from(number == 1)).parted(&[7, 2, 3]);
    let id = |number, part| ShareId::whole(&uuid("MIG", number, part));
    assert_eq!(node.spread(&[], 4, Policy::Spread), [0, 2, 1, 0]);
    let taken = [id(0, 0), id(1, 0), id(1, 1)];
    assert_eq!(node.spread(&taken, 1, Policy::Spread), [2]);
    assert_eq!(node.spread(&taken, 1, Policy::Pack), [0]);
}

#[test]
fn however_odd_the_question_there_is_an_answer() {
    let node = four_two_one();
    let known = ShareId::whole(&uuid("GPU", 1, 0));
    let strange = [
        ShareId::whole(&uuid("GPU", 99, 0)),
        ShareId::replica(&uuid("GPU", 1, 0), 0),
    ];
    let ask = |available: &[ShareId], must: &[ShareId], size| {
        let question = Question {
            available: available.to_vec(),
            must_include: must.to_vec(),
            size,
        };
        node.prefer(&question, Policy::Spread)
    };
    assert_eq!(ask(&[], &[], 3), []);
    assert_eq!(ask(&strange, &[], 0), []);
    assert_eq!(ask(&strange, &[], usize::MAX).len(), 2);
    let [one, two] = strange.clone();
    let mixed = [one, known.clone(), two.clone(), known.clone()];
    assert_eq!(ask(&mixed, &[], 1), std::slice::from_ref(&known));
    assert_eq!(ask(&[], &strange, 1).len(), 2, "all that has to be");
    assert_eq!(ask(&mixed, &[two.clone(), two.clone()], 2), [two, known]);
    let nothing = Offer {
        units: Vec::new(),
        ..node.offer.clone()
    };
    let question = Question {
        available: mixed.to_vec(),
        must_include: Vec::new(),
        size: 2,
    };
    let chosen = prefer(&question, Policy::Pack, &nothing, &node.inventory);
    assert_eq!(chosen.len(), 2);
}
