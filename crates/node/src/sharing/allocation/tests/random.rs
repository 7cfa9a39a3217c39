//! Properties of all preferred allocations.

use proptest::prelude::*;

use super::*;

/// A machine with some of its ids free.
#[derive(Debug, Clone)]
struct Case {
    node: Node,
    question: AllocationRequest,
    policy: AllocationPolicy,
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
            let links: Vec<_> =
                links.into_iter().filter(|(a, b, _)| a != b && *a < count && *b < count).collect();
            let node = if is_switched { node.switched() } else { node.linked(&links) };
            let node = if parts.is_empty() { node } else { node.parted(&parts) };
            if replicas == 0 { node } else { node.shared(replicas) }
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let marks = proptest::collection::vec(0_u8..8, 1024);
    let policy = prop_oneof![Just(AllocationPolicy::Spread), Just(AllocationPolicy::Pack)];
    (nodes(), marks, 0_usize..20, policy).prop_map(|(node, marks, size, policy)| {
        let marked = |wanted: fn(u8) -> bool| -> Vec<ShareId> {
            let all = node.all().into_iter().zip(&marks);
            all.filter(|(_, mark)| wanted(**mark)).map(|(id, _)| id).collect()
        };
        let question = AllocationRequest {
            available: marked(|mark| mark > 2),
            must_include: marked(|mark| mark > 6).into_iter().take(3).collect(),
            size,
        };
        Case { node, question, policy }
    })
}

proptest! {
    #[test]
    fn preferred_ids_are_available_and_complete(case in cases()) {
        let Case { node, question, policy } = case;
        let chosen = node.prefer(&question, policy);
        let set: BTreeSet<&ShareId> = chosen.iter().collect();
        prop_assert_eq!(set.len(), chosen.len(), "an id is chosen twice");
        prop_assert!(chosen.iter().all(|id| question.available.contains(id)));
        prop_assert!(question.must_include.iter().all(|id| set.contains(id)));
        let size = question.size.min(question.available.len());
        prop_assert_eq!(chosen.len(), size.max(question.must_include.len()));
    }

    #[test]
    fn preference_is_independent_of_request_order(case in cases()) {
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
    fn lost_gpu_does_not_affect_other_preferences(case in cases(), number in 0_usize..16) {
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
    fn spreading_is_balanced_within_one(node in nodes(), sizes in proptest::collection::vec(1_usize..5, 0..30)) {
        // Spread applies to replicas on equal devices, not to whole devices.
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
        for size in sizes {
            let size = size.min(node.inventory.devices.len());
            let question = AllocationRequest { available: available.clone(), must_include: Vec::new(), size };
            let chosen = node.prefer(&question, AllocationPolicy::Spread);
            let on = |ids: &[ShareId], device: &Device| {
                ids.iter().filter(|id| pci(node.device(id)) == device.pci).count()
            };
            let most = node.inventory.devices.iter().map(|device| on(&chosen, device)).max();
            if size > 0 && available.len() > 5 * node.offer.units.len() / 2 {
                prop_assert_eq!(most, Some(1), "several ids of one device");
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
