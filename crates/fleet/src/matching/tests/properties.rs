//! Properties of matching for any request and offers.

use octavo_model::quantity::ComputeCapability;
use proptest::prelude::*;
use strum::VariantArray;

use super::super::*;
use super::{GIB, offer};

fn any_offer() -> impl Strategy<Value = Offer> {
    let types = prop::sample::select(vec![
        "nvidia-v100-16gb",
        "nvidia-a100-80gb",
        "nvidia-h100-80gb",
        "nvidia-h200-141gb",
        "amd-mi300x-192gb",
        "acme-x",
    ]);
    let shapes =
        prop::sample::select(vec![Shape::Whole, Shape::Shared, Shape::Mig("1g".to_owned())]);
    let memory = prop::option::of(1..200_u64);
    let free = prop::option::of(0..9_u32);
    let price = prop::option::of(1..9_u32);
    (types, shapes, memory, free, price, 1..9_u32).prop_map(
        |(name, shape, memory, free, price, most)| Offer {
            name: format!("{name}/{shape:?}/{memory:?}/{free:?}/{price:?}/{most}"),
            memory: memory.map(|gib| Bytes::new(gib * GIB)),
            free: free.map(|free| FreeUnits { total: free.into(), on_one_node: free.min(most) }),
            price: price.map(|price| crate::price::Price {
                purchase_option: crate::price::PurchaseOption::default().into(),
                per_hour: price.to_string().parse().unwrap(),
                currency: "EUR".parse().unwrap(),
            }),
            after_change: (most % 3 == 0)
                .then(|| AvailabilityChange { on_one_node: most, how: "by waiting".to_owned() }),
            shape,
            ..offer(name, 1, most, 0)
        },
    )
}

fn any_request() -> impl Strategy<Value = Request> {
    let architectures =
        prop::sample::select(vec![None, Some("ampere"), Some("hopper"), Some("cdna3")]);
    (
        (prop::option::of(1..9_u32), prop::option::of(1..200_u64), prop::option::of(1..900_u64)),
        (
            architectures,
            prop::sample::select(Interconnect::VARIANTS),
            prop::sample::select(Isolation::VARIANTS),
        ),
        (prop::option::of(1..40_u32), any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |(
                (count, each, total),
                (architecture, interconnect, isolation),
                (ceiling, likes, capable),
            )| {
                let request = Request {
                    count,
                    memory_each: each.map(|gib| Bytes::new(gib * GIB)),
                    memory_total: total.map(|gib| Bytes::new(gib * GIB)),
                    interconnect,
                    isolation,
                    max_price: ceiling.map(|price| price.to_string().parse().unwrap()),
                    compute_capability: capable.then_some(ComputeCapability { major: 8, minor: 0 }),
                    ..Request::default()
                };
                let request = match architecture {
                    Some(name) => request.with_architecture(name).unwrap(),
                    None => request,
                };
                if likes { request.with_preferred("H200").unwrap() } else { request }
            },
        )
}

proptest! {
    #[test]
    fn answer_is_independent_of_offer_order(
        request in any_request(),
        (offers, shuffled) in prop::collection::vec(any_offer(), 0..12)
            .prop_flat_map(|offers| (Just(offers.clone()), Just(offers).prop_shuffle())),
    ) {
        prop_assert_eq!(answer(&request, offers), answer(&request, shuffled));
    }

    #[test]
    fn every_offer_is_either_a_fitting_match_or_a_refusal(
        request in any_request(),
        offers in prop::collection::vec(any_offer(), 0..12),
    ) {
        let mut known: Vec<String> = offers.iter().map(|offer| offer.name.clone()).collect();
        known.sort();
        known.dedup();
        let offers = sorted(offers);
        let found = answer(&request, offers.clone());
        prop_assert_eq!(found.matches.len() + found.refused.len(), known.len());
        prop_assert!(found.refused.iter().all(|one| !one.why.is_empty()));
        for one in &found.matches {
            let (offer, count) = (offers.iter().find(|offer| offer.name == one.name).unwrap(), one.count);
            prop_assert!(count >= 1 && count <= offer.max_per_node);
            prop_assert!(request.count.is_none_or(|requested| requested == count));
            let has = offer.memory.map_or(0, Bytes::get);
            prop_assert!(request.memory_each.is_none_or(|needed| has >= needed.get()));
            prop_assert!(request.memory_total.is_none_or(|needed| has * u64::from(count) >= needed.get()));
            prop_assert!(request.max_price.is_none_or(|most| one.cost.as_ref().is_some_and(|price| price.per_hour <= most)));
            prop_assert!(offer.shape == Shape::Whole || request.isolation != Isolation::Exclusive);
            prop_assert!(offer.shape != Shape::Shared || request.isolation == Isolation::Shared);
            if let Some(requested) = request.compute_capability {
                prop_assert!(offer.traits.compute_capability.is_some_and(|has| has >= requested));
            }
            if let Some(requested) = request.architecture {
                let has = generation(offer.traits.architecture.as_deref().unwrap()).unwrap();
                prop_assert!(has.line == requested.line && has.step >= requested.step);
            }
            let free = matches!(offer.free, Some(FreeUnits { on_one_node, .. }) if on_one_node >= count);
            prop_assert_eq!(one.availability == OfferAvailability::Free, free);
        }
        let availabilities: Vec<_> = found.matches.iter().map(|one| one.availability.known().unwrap()).collect();
        prop_assert!(availabilities.is_sorted());
    }
}
