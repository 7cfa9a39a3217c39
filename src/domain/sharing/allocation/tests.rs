//! What is advised on machines of several kinds, and what holds of all advice.

use proptest::prelude::*;

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

/// Devices and what is given out of them.
#[derive(Debug, Clone)]
struct Node {
    inventory: Inventory,
    offer: Offer,
}

impl Node {
    /// Whole devices, each on the NUMA node that `numa` tells.
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

    /// Each unit by turns.
    fn shared(mut self, replicas: u32) -> Self {
        for unit in &mut self.offer.units {
            unit.replicas = Some(replicas);
        }
        self
    }

    /// Each device in so many partitions.
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

    /// Which whole devices are advised, in order.
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

    /// The device that an id is of.
    fn device(&self, id: &ShareId) -> usize {
        let unit = self
            .offer
            .units
            .iter()
            .find(|unit| is_of(id, unit))
            .unwrap();
        (0..256).find(|number| pci(*number) == unit.pci).unwrap()
    }

    /// Which devices are advised of all that is there, one id a line: device and how many.
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

/// Four that are linked with each other, two that are, and one alone.
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
    // A square with two strong sides, as half of a DGX-1 is.
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

/// A machine with some of what is given out free.
#[derive(Debug, Clone)]
struct Case {
    node: Node,
    question: Question,
    policy: Policy,
}

fn nodes() -> impl Strategy<Value = Node> {
    let links = proptest::collection::vec((0_usize..16, 0_usize..16, 1_usize..4), 0..40);
    let given = prop_oneof![
        2 => Just((0, Vec::new())),
        1 => (1_u32..9).prop_map(|replicas| (replicas, Vec::new())),
        1 => (0_u32..3, proptest::collection::vec(0_usize..8, 16)),
    ];
    (1_usize..17, any::<bool>(), links, given, 1_usize..9).prop_map(
        |(count, is_switched, links, (replicas, parts), per_numa)| {
            let node = Node::new(count, |number| u32::try_from(number / per_numa).unwrap());
            let links: Vec<_> = links
                .into_iter()
                .filter(|(a, b, _)| a != b && *a < count && *b < count)
                .collect();
            let node = if is_switched {
                node.switched()
            } else {
                node.linked(&links)
            };
            let node = if parts.is_empty() {
                node
            } else {
                node.parted(&parts)
            };
            if replicas == 0 {
                node
            } else {
                node.shared(replicas)
            }
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let marks = proptest::collection::vec(0_u8..8, 1024);
    let policy = prop_oneof![Just(Policy::Spread), Just(Policy::Pack)];
    (nodes(), marks, 0_usize..20, policy).prop_map(|(node, marks, size, policy)| {
        let marked = |wanted: fn(u8) -> bool| -> Vec<ShareId> {
            let all = node.all().into_iter().zip(&marks);
            all.filter(|(_, mark)| wanted(**mark))
                .map(|(id, _)| id)
                .collect()
        };
        let question = Question {
            available: marked(|mark| mark > 2),
            must_include: marked(|mark| mark > 6).into_iter().take(3).collect(),
            size,
        };
        Case {
            node,
            question,
            policy,
        }
    })
}

proptest! {
    #[test]
    fn advice_is_of_what_is_available_and_as_much_as_was_asked_for(case in cases()) {
        let Case { node, question, policy } = case;
        let chosen = node.prefer(&question, policy);
        let set: BTreeSet<&ShareId> = chosen.iter().collect();
        prop_assert_eq!(set.len(), chosen.len(), "each once");
        prop_assert!(chosen.iter().all(|id| question.available.contains(id)));
        prop_assert!(question.must_include.iter().all(|id| set.contains(id)));
        let size = question.size.min(question.available.len());
        prop_assert_eq!(chosen.len(), size.max(question.must_include.len()));
    }

    #[test]
    fn the_same_question_has_the_same_answer_in_whatever_order_it_is_asked(case in cases()) {
        let Case { node, question, policy } = case;
        let mut turned = question.clone();
        turned.available.reverse();
        turned.must_include.reverse();
        let mut other = node.clone();
        other.offer.units.reverse();
        other.inventory.devices.reverse();
        prop_assert_eq!(node.prefer(&question, policy), other.prefer(&turned, policy));
    }

    #[test]
    fn a_gpu_that_was_lost_changes_nothing_for_the_others(case in cases(), number in 0_usize..16) {
        let Case { node, mut question, policy } = case;
        let number = number % node.inventory.devices.len();
        question.available.retain(|id| node.device(id) != number);
        question.must_include.retain(|id| node.device(id) != number);
        let before = node.prefer(&question, policy);
        let lost = node.lost(number);
        prop_assert_eq!(&before, &lost.prefer(&question, policy));
        let mut without = lost;
        without.inventory.devices.remove(number);
        without.offer.units.retain(|unit| unit.pci != pci(number));
        prop_assert_eq!(&before, &without.prefer(&question, policy));
    }

    #[test]
    fn spreading_is_balanced_within_one(node in nodes(), asked in proptest::collection::vec(1_usize..5, 0..30)) {
        // Of equal devices, and whole ones are not spread.
        let mut node = node.shared(5);
        let parts = node.offer.units.first().map(|first| {
            let of_first = node.offer.units.iter().filter(|unit| unit.pci == first.pci);
            of_first.count()
        });
        let per_device = |node: &Node, device: &Device| {
            node.offer.units.iter().filter(|unit| unit.pci == device.pci).count()
        };
        let devices: Vec<Device> = node.inventory.devices.iter()
            .filter(|device| Some(per_device(&node, device)) == parts)
            .cloned()
            .collect();
        node.offer.units.retain(|unit| devices.iter().any(|device| device.pci == unit.pci));
        node.inventory.devices = devices;
        let mut available = node.all();
        for size in asked {
            let size = size.min(node.inventory.devices.len());
            let question = Question { available: available.clone(), must_include: Vec::new(), size };
            let chosen = node.prefer(&question, Policy::Spread);
            let on = |ids: &[ShareId], device: &Device| {
                ids.iter().filter(|id| pci(node.device(id)) == device.pci).count()
            };
            let most = node.inventory.devices.iter().map(|device| on(&chosen, device)).max();
            if size > 0 && available.len() > 5 * node.offer.units.len() / 2 {
                prop_assert_eq!(most, Some(1), "one request, one of each device");
            }
            available.retain(|id| !chosen.contains(id));
            let left = node.inventory.devices.iter().map(|device| on(&available, device));
            let (least, most) = (left.clone().min(), left.max());
            prop_assert!(most.zip(least).is_none_or(|(most, least)| most - least <= 1), "{:?}", available);
            let of_unit = |unit: &Unit| available.iter().filter(|id| is_of(id, unit)).count();
            let left = node.offer.units.iter().map(of_unit);
            let (least, most) = (left.clone().min(), left.max());
            prop_assert!(most.zip(least).is_none_or(|(most, least)| most - least <= 1), "{:?}", available);
        }
    }
}
