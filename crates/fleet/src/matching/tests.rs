//! Documented behavior of matching, one test per statement.

mod profiles;
mod properties;
mod rule;
mod speeds;

use octavo_model::id::TypeName;

use super::*;

const GIB: u64 = 1 << 30;

/// Whole devices of a type: memory in GiB, maximum on one node, free on one node.
fn offer(type_name: &str, gib: u64, most: u32, free: u32) -> Offer {
    let type_name: TypeName = type_name.parse().unwrap();
    Offer {
        name: type_name.to_string(),
        shape: Shape::Whole,
        memory: Some(Bytes::new(gib * GIB)),
        max_per_node: most,
        total: u64::from(most),
        free: Some(FreeUnits { total: u64::from(free), on_one_node: free }),
        after_change: None,
        price: None,
        traits: TypeAttributes::from_type(&type_name),
        notes: Vec::new(),
        resource: None,
        profile: None,
        others: Vec::new(),
        no_profile_reason: None,
        type_name,
    }
}

fn fleet() -> Vec<Offer> {
    vec![
        offer("nvidia-v100-16gb", 16, 8, 8),
        offer("nvidia-a100-80gb", 80, 8, 8),
        offer("nvidia-h200-141gb", 140, 8, 8),
        offer("amd-mi300x-192gb", 192, 8, 8),
    ]
}

fn needs(gb: &str) -> Request {
    Request { memory_each: Some(gb.parse().unwrap()), ..Request::default() }
}

fn names(answer: &MatchAnswer) -> Vec<&str> {
    answer.matches.iter().map(|one| one.name.as_str()).collect()
}

#[track_caller]
fn refusal<'a>(answer: &'a MatchAnswer, name: &str) -> &'a str {
    let found = answer.refused.iter().find(|one| one.name == name).unwrap();
    let [why] = found.why.as_slice() else {
        panic!("{:?}", found.why);
    };
    why
}

#[test]
fn ac_006_80_gb_request_prefers_h200_over_a100_and_excludes_v100() {
    let fleet: Vec<Offer> = fleet().into_iter().take(3).collect();
    let answer = answer(&needs("80GB"), fleet);
    assert_eq!(answer.verdict, MatchOutcome::FitsNow);
    assert_eq!(names(&answer), ["nvidia-h200-141gb", "nvidia-a100-80gb"]);
    assert_eq!(answer.summary, "1 x nvidia-h200-141gb fits and is free");
    assert_eq!(
        refusal(&answer, "nvidia-v100-16gb"),
        "needs 74.5 GiB or more per device; it has 16 GiB"
    );
}

#[test]
fn fallback_to_a_free_type_has_a_warning() {
    let fleet = vec![offer("nvidia-a100-80gb", 80, 8, 8), offer("nvidia-h200-141gb", 140, 8, 0)];
    let request = needs("80GB").with_preferred("nvidia-h200-141gb").unwrap();
    let answer = answer(&request, fleet);
    assert_eq!(names(&answer), ["nvidia-a100-80gb", "nvidia-h200-141gb"]);
    let [first, second] = answer.matches.as_slice() else {
        panic!("another count");
    };
    assert_eq!(
        first.warnings,
        [
            "nvidia-a100-80gb instead of the preferred nvidia-h200-141gb, of which not enough are free",
            "nvidia-a100-80gb is Ampere; nvidia-h200-141gb is Hopper, which is newer and fits, but not enough are free",
        ]
    );
    assert_eq!(second.availability, OfferAvailability::Taken);
    assert!(second.warnings.is_empty() && second.reasons.contains(&"none of 8 is free".to_owned()));
}

#[test]
fn summary_names_the_largest_device_if_nothing_fits() {
    let small = vec![offer("nvidia-v100-16gb", 16, 8, 8), offer("nvidia-t4-16gb", 15, 4, 4)];
    let nothing = answer(&needs("80GB"), small);
    assert_eq!(nothing.verdict, MatchOutcome::NothingFits);
    assert_eq!(
        nothing.summary,
        "needs 74.5 GiB or more per device; the largest in this fleet is nvidia-v100-16gb with 16 GiB"
    );
    let empty = answer(&needs("80GB"), Vec::new());
    assert_eq!(empty.verdict, MatchOutcome::NothingFits);
    assert!(empty.summary.starts_with("there is nothing to match"), "{}", empty.summary);
}

#[test]
fn available_after_change_ranks_after_free() {
    let mut later = offer("nvidia-h200-141gb", 140, 8, 0);
    later.after_change =
        Some(AvailabilityChange { on_one_node: 2, how: "by repartitioning node-7".to_owned() });
    let request = |count| Request { count: Some(count), ..needs("80GB") };
    let found = answer(&request(2), vec![later.clone()]);
    assert_eq!(found.verdict, MatchOutcome::NothingFree);
    assert_eq!(
        found.summary,
        "2 x nvidia-h200-141gb fits, none is free, could become free by repartitioning node-7"
    );
    let found = answer(&request(3), vec![later.clone()]);
    assert_eq!(found.matches[0].availability, OfferAvailability::Taken);
    let found = answer(
        &request(2),
        vec![later, offer("nvidia-a100-80gb", 80, 8, 2), offer("nvidia-b200-180gb", 178, 8, 1)],
    );
    assert_eq!(names(&found), ["nvidia-a100-80gb", "nvidia-h200-141gb", "nvidia-b200-180gb"]);
}

#[test]
fn every_requirement_has_its_own_refusal_message() {
    let ask = |request: Request| answer(&request, fleet());
    let base = Request::default();
    for (request, name, why) in [
        (
            base.clone().with_architecture("hopper").unwrap(),
            "nvidia-a100-80gb",
            "needs Hopper or newer; it is Ampere, which is older",
        ),
        (
            base.clone().with_architecture("ampere").unwrap(),
            "amd-mi300x-192gb",
            "needs Ampere or newer; CDNA3 belongs to another product line and cannot be compared",
        ),
        (
            base.clone().with_compute_capability("8.9").unwrap(),
            "nvidia-a100-80gb",
            "needs compute capability 8.9 or higher; it has 8.0",
        ),
        (
            base.clone().with_compute_capability("8.9").unwrap(),
            "amd-mi300x-192gb",
            "needs compute capability 8.9 or higher, which amd devices do not have",
        ),
        (
            base.clone().with_count(9).unwrap(),
            "nvidia-h200-141gb",
            "needs 9 on one node; no node has more than 8",
        ),
        (
            Request { interconnect: Interconnect::NvLink, ..base.clone() },
            "amd-mi300x-192gb",
            "needs NVLink; its devices do not have such links",
        ),
        (
            Request { max_price: Some("5".parse().unwrap()), ..base.clone() },
            "nvidia-h200-141gb",
            "the request has a price limit, but the price (on-demand) is unknown: the price book has no entry for it",
        ),
        (
            Request { memory_total: Some("2T".parse().unwrap()), count: Some(8), ..base },
            "nvidia-h200-141gb",
            "needs 1862.6 GiB or more in total; the total for 8 is 1120 GiB",
        ),
    ] {
        assert_eq!(refusal(&ask(request), name), why);
    }
}

#[test]
fn price_decides_only_if_known() {
    let priced = |name: &str, price: &str| {
        let mut offer = offer(name, 80, 8, 8);
        offer.price = Some(crate::price::Price {
            purchase_option: crate::price::PurchaseOption::default().into(),
            per_hour: price.parse().unwrap(),
            currency: "USD".parse().unwrap(),
        });
        offer
    };
    let offers = vec![
        priced("acme-x-80gb", "3.00"),
        priced("acme-y-80gb", "2.99"),
        offer("acme-z-80gb", 80, 8, 8),
    ];
    let found = answer(&needs("80GB"), offers.clone());
    assert_eq!(names(&found), ["acme-y-80gb", "acme-x-80gb", "acme-z-80gb"]);
    assert!(
        found.matches[0].reasons.contains(&"cost for 1: 2.99 USD per hour (on-demand)".to_owned())
    );
    let request =
        Request { max_price: Some("5.99".parse().unwrap()), count: Some(2), ..needs("80GB") };
    let found = answer(&request, offers);
    assert_eq!(names(&found), ["acme-y-80gb"]);
    assert_eq!(
        refusal(&found, "acme-x-80gb"),
        "must cost at most 5.99 USD per hour; the cost for 2 is 6.00 USD"
    );
}

#[test]
fn prices_in_other_currencies_are_not_compared() {
    let priced = |name: &str, price: &str, currency: &str| {
        let mut offer = offer(name, 80, 8, 8);
        offer.price = Some(crate::price::Price {
            purchase_option: crate::price::PurchaseOption::default().into(),
            per_hour: price.parse().unwrap(),
            currency: currency.parse().unwrap(),
        });
        offer
    };
    let offers = vec![
        priced("acme-w-80gb", "1", "EUR"),
        priced("acme-x-80gb", "3", "USD"),
        priced("acme-y-80gb", "2", "USD"),
        offer("acme-z-80gb", 80, 8, 8),
    ];
    let dollars = Request { currency: "USD".parse().ok(), ..needs("80GB") };
    let found = answer(&dollars, offers.clone());
    assert_eq!(names(&found), ["acme-y-80gb", "acme-x-80gb", "acme-w-80gb", "acme-z-80gb"]);
    let found = answer(&Request { max_price: "2.5".parse().ok(), ..dollars }, offers);
    assert_eq!(names(&found), ["acme-y-80gb"]);
    assert_eq!(
        refusal(&found, "acme-w-80gb"),
        "the price limit is in USD; its price is in EUR, which cannot be compared"
    );
}

#[test]
fn partitions_and_shared_devices_require_lower_isolation() {
    let part = Offer {
        name: "nvidia-a100-80gb/3g.40gb".to_owned(),
        shape: Shape::Mig("3g.40gb".to_owned()),
        ..offer("nvidia-a100-80gb", 40, 14, 3)
    };
    let shared = Offer {
        name: "nvidia-a100-80gb/shared".to_owned(),
        shape: Shape::Shared,
        free: None,
        ..offer("nvidia-a100-80gb", 80, 8, 0)
    };
    let offers = || vec![shared.clone(), part.clone(), offer("nvidia-a100-80gb", 80, 8, 1)];
    for (isolation, expected) in [
        (Isolation::Exclusive, &["nvidia-a100-80gb"][..]),
        (Isolation::Mig, &["nvidia-a100-80gb/3g.40gb", "nvidia-a100-80gb"]),
        (
            Isolation::Shared,
            &["nvidia-a100-80gb/3g.40gb", "nvidia-a100-80gb", "nvidia-a100-80gb/shared"],
        ),
    ] {
        let request = Request { isolation, ..needs("40GB") };
        assert_eq!(names(&answer(&request, offers())), expected);
    }
    let request = Request {
        isolation: Isolation::Shared,
        interconnect: Interconnect::Direct,
        ..needs("20GB")
    };
    let found = answer(&request, offers());
    assert_eq!(
        refusal(&found, "nvidia-a100-80gb/3g.40gb"),
        "needs direct links between devices; partitions have no links to each other"
    );
    let warned = found.matches[0].warnings.join("");
    assert!(warned.contains("bridge"), "{warned}");
}

#[test]
fn missing_count_defaults_to_the_fewest_units_with_enough_memory() {
    let request = Request { memory_total: Some("400GB".parse().unwrap()), ..Request::default() };
    let found = answer(&request, fleet());
    let counts: Vec<(&str, u32)> =
        found.matches.iter().map(|one| (one.name.as_str(), one.count)).collect();
    assert_eq!(
        counts,
        [("amd-mi300x-192gb", 2), ("nvidia-h200-141gb", 3), ("nvidia-a100-80gb", 5)]
    );
    assert_eq!(found.refused.len(), 1);
}

#[test]
fn invalid_request_names_field_and_valid_values() {
    let base = Request::default;
    for (error, field, expected) in [
        (base().with_count(0).unwrap_err(), "count", "from 1 to 1024"),
        (
            base().with_architecture("hoper").unwrap_err(),
            "architectureAtLeast",
            "did you mean Hopper?",
        ),
        (base().with_preferred("A100").unwrap_err(), "preferred", "nvidia-a100-40gb, nvidia-a100-"),
        (base().with_preferred("xyz").unwrap_err(), "preferred", "is not a known type"),
        (
            base().with_compute_capability("9").unwrap_err(),
            "computeCapabilityAtLeast",
            "such as 8.0",
        ),
        ("loose".parse::<Isolation>().unwrap_err(), "isolation", "exclusive, mig, shared"),
        ("x".parse::<Interconnect>().unwrap_err(), "interconnect", "nvlink"),
    ] {
        assert_eq!(error.field, field);
        assert!(error.problem.contains(expected), "{}", error.problem);
    }
    for text in ["", "80", "80 apples", "GB", "0GB", "-1GB", "99999999999999TB"] {
        assert!(text.parse::<Bytes>().is_err(), "{text}");
    }
    assert_eq!("80GB".parse::<Bytes>().unwrap(), "80 G".parse().unwrap());
    assert!("80GiB".parse::<Bytes>().unwrap() > "80GB".parse().unwrap());
    assert_eq!(base().with_preferred("H200").unwrap().preferred[0].as_str(), "nvidia-h200-141gb");
}
