//! Documented behavior of matching with hardware profiles.

use proptest::prelude::*;

use super::super::*;
use super::{names, needs, offer, refusal};

/// A profile in namespace `a` with this maximum that reaches these offers.
fn profile(name: &str, max: Option<u64>, offers: Vec<Offer>) -> ProfileOffer {
    ProfileOffer {
        name: format!("a/{name}"),
        picked: ProfileInfo {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            display_name: name.to_uppercase(),
            min: 1,
            max,
        },
        resource: "nvidia.com/gpu".to_owned(),
        offers,
        rejections: Vec::new(),
        notes: Vec::new(),
    }
}

fn a100(free: u32) -> Offer {
    offer("nvidia-a100-80gb", 80, 8, free)
}

fn h200(free: u32) -> Offer {
    offer("nvidia-h200-141gb", 140, 8, free)
}

fn v100() -> Offer {
    offer("nvidia-v100-16gb", 16, 8, 8)
}

fn count(count: u32) -> Request {
    Request { count: Some(count), ..needs("80GB") }
}

#[test]
fn profiles_rank_before_offers_without_profile() {
    let offers = vec![a100(8), h200(8), v100()];
    let profiles =
        vec![profile("large", None, vec![a100(4)]), profile("small", None, vec![v100()])];
    let found = match_profiles(&needs("80GB"), offers, profiles);
    assert_eq!(names(&found), ["a/large", "nvidia-h200-141gb"]);
    assert_eq!(found.verdict, MatchOutcome::FitsNow);
    assert_eq!(found.summary, "1 x a/large fits and is free");
    let best = &found.matches[0];
    let picked = best.profile.as_ref().unwrap();
    assert_eq!(
        (&*picked.display_name, &*best.type_name.to_string()),
        ("LARGE", "nvidia-a100-80gb")
    );
    // Only the nodes of the profile count.
    assert_eq!(best.free, Some(FreeUnits { total: 4, on_one_node: 4 }));
    assert_eq!(
        found.matches[1].warnings[0],
        "no profile offers it: octavo profiles create --type nvidia-h200-141gb"
    );
    assert_eq!(refusal(&found, "a/small"), "needs 74.5 GiB or more per device; it has 16 GiB");
    // The type's problem is reported for the profile.
    assert_eq!(found.refused.len(), 1);
}

#[test]
fn profile_bounds_must_include_the_count() {
    let profiles = || {
        let mut pair = profile("pair", Some(2), vec![h200(8)]);
        pair.picked.min = 2;
        vec![profile("few", Some(3), vec![h200(8)]), pair]
    };
    let found = match_profiles(&count(4), vec![h200(8)], profiles());
    assert_eq!(refusal(&found, "a/few"), "needs 4; the profile allows at most 3");
    assert_eq!(names(&found), ["nvidia-h200-141gb"]);
    assert_eq!(
        found.summary,
        "4 x nvidia-h200-141gb fits and is free; no matching profile offers it; see the reasons of the rejected profiles"
    );
    let found = match_profiles(&count(1), vec![h200(8)], profiles());
    assert_eq!(names(&found), ["a/few"]);
    assert_eq!(refusal(&found, "a/pair"), "needs 1; the profile allows at least 2");
    // Without a requested count, the profile's minimum applies.
    let found = match_profiles(&needs("80GB"), vec![h200(8)], profiles());
    let counts: Vec<u32> = found.matches.iter().map(|one| one.count).collect();
    assert_eq!((names(&found), counts), (vec!["a/few", "a/pair"], vec![1, 2]));
}

#[test]
fn profile_fits_only_if_all_its_types_fit() {
    let any = |offers| vec![profile("any", None, offers)];
    let found = match_profiles(&needs("80GB"), Vec::new(), any(vec![v100(), h200(8)]));
    assert_eq!(found.verdict, MatchOutcome::NothingFits);
    assert_eq!(
        refusal(&found, "a/any"),
        "nvidia-v100-16gb: needs 74.5 GiB or more per device; it has 16 GiB"
    );
    let request = Request { memory_total: Some("300GB".parse().unwrap()), ..Request::default() };
    let found = match_profiles(&request, Vec::new(), any(vec![a100(2), h200(5)]));
    let best = &found.matches[0];
    // The least capable type determines the count.
    assert_eq!((best.count, best.availability.known()), (4, Some(OfferAvailability::Free)));
    assert_eq!(best.other_types, ["nvidia-h200-141gb".parse().unwrap()]);
    assert_eq!(
        best.warnings,
        [
            "it matches nodes of several types (nvidia-a100-80gb and nvidia-h200-141gb); a pod can be scheduled to any of them"
        ]
    );
}

#[test]
fn preferred_type_within_a_multi_type_profile_is_recognized() {
    let warnings = |preferred: &str| {
        let request = needs("80GB").with_preferred(preferred).unwrap();
        let both = profile("any", None, vec![a100(8), h200(8)]);
        let old = profile("old", None, vec![a100(8)]);
        let found = match_profiles(&request, vec![a100(8), h200(8)], vec![both, old]);
        let first = |name: &str| {
            let one = found.matches.iter().find(|one| one.name == name);
            one.unwrap().warnings.first().cloned()
        };
        [first("a/any"), first("a/old")]
    };
    let any = |name: &str| Some(format!("a pod can get a type other than the preferred {name}"));
    let old = "nvidia-a100-80gb instead of the preferred nvidia-h200-141gb, which a/any offers along with other types";
    assert_eq!(warnings("H200"), [any("nvidia-h200-141gb"), Some(old.to_owned())]);
    assert_eq!(warnings("nvidia-a100-80gb"), [any("nvidia-a100-80gb"), None]);
}

#[test]
fn sooner_offer_without_profile_is_mentioned_and_verdict_follows_first() {
    let profiles = vec![profile("large", None, vec![h200(0)])];
    let found = match_profiles(&needs("80GB"), vec![h200(3)], profiles);
    assert_eq!(names(&found), ["a/large", "nvidia-h200-141gb"]);
    assert_eq!(found.verdict, MatchOutcome::NothingFree);
    assert_eq!(
        found.summary,
        "1 x a/large fits, but not enough are free on one node; 1 x nvidia-h200-141gb is free, but no profile makes it available as soon"
    );
}

#[test]
fn unusable_or_empty_profile_is_refused_with_reason() {
    let mut disabled = profile("off", None, vec![h200(8)]);
    disabled.rejections = vec!["it is disabled: users cannot select it".to_owned()];
    let nowhere = profile("nowhere", None, Vec::new());
    let found = match_profiles(&needs("80GB"), Vec::new(), vec![disabled, nowhere]);
    assert_eq!(refusal(&found, "a/off"), "it is disabled: users cannot select it");
    assert_eq!(refusal(&found, "a/nowhere"), "no matching node has a known accelerator");
    assert_eq!(found.verdict, MatchOutcome::NothingFits);
}

#[test]
fn partition_without_profile_suggests_creating_one() {
    let part = Offer {
        name: "nvidia-a100-80gb/3g.40gb".to_owned(),
        shape: Shape::Mig("3g.40gb".to_owned()),
        resource: Some("nvidia.com/mig-3g.40gb".to_owned()),
        ..offer("nvidia-a100-80gb", 40, 14, 3)
    };
    let request = Request { isolation: Isolation::Mig, ..needs("40GB") };
    let found = match_profiles(&request, vec![part.clone()], Vec::new());
    assert_eq!(
        found.matches[0].no_profile_reason.as_deref(),
        Some(
            "no profile offers it: octavo profiles create --type nvidia-a100-80gb --resource nvidia.com/mig-3g.40gb"
        )
    );
    // A request for whole devices does not list partitions as refused.
    let found = match_profiles(&needs("40GB"), vec![part], Vec::new());
    assert_eq!((found.matches.len(), found.refused.len()), (0, 0));
}

/// A generated profile: its number, then the type it reaches, the free units and the maximum per request.
type GeneratedProfile = (usize, (usize, u32, Option<u64>));

proptest! {
    #[test]
    fn answer_is_independent_of_profile_and_offer_order(
        wanted in 1..9_u32,
        (profiles, shuffled) in prop::collection::vec((0..4_usize, 0..9_u32, prop::option::of(1..9_u64)), 0..8)
            .prop_flat_map(|all| {
                let all: Vec<GeneratedProfile> = all.into_iter().enumerate().collect();
                (Just(all.clone()), Just(all).prop_shuffle())
            }),
    ) {
        let made = |all: &[GeneratedProfile]| -> Vec<ProfileOffer> {
            let all = all.iter().map(|(at, (kind, free, max))| {
                let leads = match kind {
                    0 => vec![a100(*free)],
                    1 => vec![h200(*free)],
                    2 => vec![v100()],
                    _ => vec![a100(*free), h200(*free)],
                };
                profile(&format!("p{at}"), *max, leads)
            });
            all.collect()
        };
        let mut offers = vec![a100(3), h200(1), v100()];
        let one = match_profiles(&count(wanted), offers.clone(), made(&profiles));
        offers.reverse();
        let other = match_profiles(&count(wanted), offers, made(&shuffled));
        prop_assert_eq!(&one, &other);
        let is_type: Vec<bool> = one.matches.iter().map(|one| one.profile.is_none()).collect();
        prop_assert!(is_type.is_sorted());
        for one in &one.matches {
            let max = one.profile.as_ref().and_then(|picked| picked.max);
            prop_assert!(max.is_none_or(|max| u64::from(one.count) <= max));
            prop_assert_eq!(one.profile.is_none(), one.no_profile_reason.is_some());
        }
        let matched = one.matches.iter().filter(|one| one.profile.is_some()).count();
        let refused = one.refused.iter().filter(|one| one.name.starts_with("a/")).count();
        prop_assert_eq!(matched + refused, profiles.len());
    }
}
