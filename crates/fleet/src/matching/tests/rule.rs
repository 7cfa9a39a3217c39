//! The ranking criteria, one by one: each decides between two offers that tie in all previous ones.

use super::super::*;
use super::{GIB, needs, offer};
use crate::price::{Price, PurchaseOption};

fn through(name: &str, offers: Vec<Offer>) -> ProfileOffer {
    ProfileOffer {
        name: name.to_owned(),
        picked: ProfileInfo::default(),
        resource: String::new(),
        offers,
        rejections: Vec::new(),
        notes: Vec::new(),
    }
}

/// An offer named so that the name criterion contradicts the criterion under test.
fn named(name: &str, type_name: &str) -> Offer {
    Offer { name: name.to_owned(), ..offer(type_name, 80, 8, 8) }
}

fn priced(name: &str, price: &str) -> Offer {
    Offer {
        price: Some(Price {
            purchase_option: PurchaseOption::default().into(),
            per_hour: price.parse().unwrap(),
            currency: "USD".parse().unwrap(),
        }),
        ..named(name, "acme-x-80gb")
    }
}

fn free(on_one_node: u32) -> FreeUnits {
    FreeUnits { total: 8, on_one_node }
}

fn with_free_units(name: &str, free: impl Into<Option<FreeUnits>>) -> Offer {
    Offer { free: free.into(), ..named(name, "nvidia-h200-141gb") }
}

#[test]
fn each_criterion_breaks_ties_of_the_previous_ones() {
    let later = |name: &str| Offer {
        free: Some(free(0)),
        after_change: Some(AvailabilityChange { on_one_node: 8, how: String::new() }),
        ..named(name, "nvidia-h200-141gb")
    };
    let memory = |name: &str, gib: u64| Offer {
        memory: Some(Bytes::new(gib * GIB)),
        ..named(name, "acme-x-80gb")
    };
    let shaped = |name: &str, shape: Shape| Offer { shape, ..named(name, "acme-x-80gb") };
    let request = || Request {
        isolation: Isolation::Shared,
        ..needs("80GB")
            .with_preferred("nvidia-a100-80gb")
            .and_then(|request| request.with_preferred("nvidia-h100-80gb"))
            .unwrap()
    };
    let kind = |name: &str| Shape::Mig(name.to_owned());
    let unknown = || None::<FreeUnits>;
    for (line, first, second) in [
        ("free", with_free_units("z", free(8)), later("a")),
        ("could become", later("z"), with_free_units("a", unknown())),
        ("unknown", with_free_units("z", unknown()), with_free_units("a", free(0))),
        ("liked best", named("z", "nvidia-a100-80gb"), named("a", "nvidia-h100-80gb")),
        ("liked", named("z", "nvidia-h100-80gb"), named("a", "nvidia-h200-141gb")),
        ("newer", named("z", "nvidia-b200-180gb"), named("a", "nvidia-h200-141gb")),
        ("less memory", memory("z", 80), memory("a", 81)),
        ("cheaper", priced("z", "1"), priced("a", "2")),
        ("has a price", priced("z", "9"), named("a", "acme-x-80gb")),
        ("whole", shaped("z", Shape::Whole), shaped("a", kind("1g"))),
        ("a part", shaped("z", kind("1g")), shaped("a", Shape::Shared)),
        ("the name", named("a", "acme-x-80gb"), named("z", "acme-x-80gb")),
    ] {
        let expected = [first.name.clone(), second.name.clone()];
        for offers in [vec![first.clone(), second.clone()], vec![second, first]] {
            let found = answer(&request(), offers);
            let names: Vec<&str> = found.matches.iter().map(|one| &*one.name).collect();
            assert_eq!(names, expected, "{line}");
        }
    }
}

#[test]
fn profiles_rank_first_by_their_least_favorable_type() {
    let taken =
        Offer { free: Some(FreeUnits { total: 0, on_one_node: 0 }), ..named("x", "acme-x-80gb") };
    let found = match_profiles(
        &needs("80GB"),
        vec![named("a", "nvidia-h200-141gb")],
        vec![through("z", vec![taken])],
    );
    let names = |found: &MatchAnswer| -> Vec<String> {
        let all = found.matches.iter();
        all.map(|one| one.name.clone()).collect()
    };
    assert_eq!(names(&found), ["z", "a"]);
    // A profile that may lead to an A100 ranks no higher than one that always does, even if its name sorts first.
    let both = vec![named("h", "nvidia-h200-141gb"), named("o", "nvidia-a100-80gb")];
    let found = match_profiles(
        &needs("80GB"),
        Vec::new(),
        vec![through("a", both), through("z", vec![named("h", "nvidia-h200-141gb")])],
    );
    assert_eq!(names(&found), ["z", "a"]);
}
