//! Orders fitting offers by the following criteria, which `docs/tasks/matching.md` documents. Each criterion breaks the ties
//! of all criteria before it:
//!
//! 1. hardware profiles, then offers that no profile makes available, or not as soon;
//! 2. free now, then available after a change that affects no running workload, then unknown, then taken;
//! 3. preferred types, in the given order;
//! 4. fewest generations behind the newest fitting chip of the same line (lines cannot be compared);
//! 5. least memory beyond the request;
//! 6. lowest price of all units: first those in the currency of the price book, then by currency (which cannot be
//!    compared), and those without a price last;
//! 7. whole devices, then partitions, then shared devices;
//! 8. name.
//!
//! For a profile with several types, each criterion uses the least favorable type.

use std::cmp::Reverse;

use octavo_model::id::TypeName;

use super::architectures::{Generation, generation};
use super::fit::{Fit, RejectionReason};
use super::offer::{FreeUnits, Offer, Shape, ShapeKind, TypeAttributes};
use super::request::{Bytes, Request};
use super::throughput::{Throughput, compare};
use super::{Match, OfferAvailability};
use crate::price::{Amount, Currency, Price};

/// An offer that does not fit, with the reasons.
pub(super) type RefusedOffer = (Offer, Vec<RejectionReason>);

/// A fitting offer, for comparison with the others.
struct RankedOffer {
    offer: Offer,
    fit: Fit,
    availability: OfferAvailability,
}

/// Returns the fitting offers in order.
pub(super) fn rank(
    request: &Request,
    fitting: Vec<(Offer, Fit)>,
    refused: &[RefusedOffer],
) -> Vec<Match> {
    let newest = newest(&fitting);
    let mut ordered: Vec<RankedOffer> = fitting
        .into_iter()
        .map(|(offer, fit)| {
            let availability = availability_of(&offer, fit.count);
            RankedOffer { offer, fit, availability }
        })
        .collect();
    ordered.sort_by_cached_key(|one| {
        (
            one.offer.profile.is_none(),
            one.availability,
            preference_rank(request, &one.offer),
            generations_behind(&one.offer, &newest),
            excess_memory(request, one),
            price_rank(request, one),
            one.offer.shape.clone(),
            one.offer.name.clone(),
        )
    });
    let texts = |one| (reasons(request, one), warnings(request, one, &ordered, refused));
    let texts: Vec<(Vec<String>, Vec<String>)> = ordered.iter().map(texts).collect();
    let numbered = (1..).zip(ordered.into_iter().zip(texts));
    numbered
        .map(|(rank, (one, (reasons, warnings)))| Match {
            rank,
            reasons,
            warnings,
            tokens_per_second: speed(request, &one).cloned(),
            count: one.fit.count,
            cost: { one.fit.per_hour.zip(one.offer.price) }
                .map(|(per_hour, price)| Price { per_hour, ..price }),
            availability: one.availability.into(),
            name: one.offer.name,
            profile: one.offer.profile,
            type_name: one.offer.type_name,
            other_types: one.offer.others,
            resource: one.offer.resource,
            shape: ShapeKind::from(&one.offer.shape).into(),
            memory_bytes: one.offer.memory,
            architecture: one.offer.traits.architecture,
            total: one.offer.total,
            free: one.offer.free,
            could_become: one.offer.after_change,
            no_profile_reason: one.offer.no_profile_reason,
        })
        .collect()
}

/// Returns when `count` units of an offer are available on one node.
pub(super) fn availability_of(offer: &Offer, count: u32) -> OfferAvailability {
    let change = offer.after_change.as_ref();
    match offer.free {
        Some(FreeUnits { on_one_node, .. }) if on_one_node >= count => OfferAvailability::Free,
        Some(FreeUnits { .. }) | None
            if change.is_some_and(|change| change.on_one_node >= count) =>
        {
            OfferAvailability::AfterChange
        }
        None => OfferAvailability::Unknown,
        Some(FreeUnits { .. }) => OfferAvailability::Taken,
    }
}

/// Returns the newest chip family of each line.
fn newest(fitting: &[(Offer, Fit)]) -> Vec<Generation> {
    let mut newest: Vec<Generation> = Vec::new();
    for place in fitting.iter().flat_map(|(offer, _)| generations(offer)) {
        match newest.iter_mut().find(|known| known.line == place.line) {
            Some(known) if known.step < place.step => *known = place,
            Some(_) => {}
            None => newest.push(place),
        }
    }
    newest
}

/// Returns the chip families of an offer's types that belong to a line.
fn generations(offer: &Offer) -> Vec<Generation> {
    if offer.others.is_empty() {
        return place(offer).into_iter().collect();
    }
    let names = offer.types().filter_map(|name| TypeAttributes::from_type(name).architecture);
    names.filter_map(|name| generation(&name)).collect()
}

fn place(offer: &Offer) -> Option<Generation> {
    offer.traits.architecture.as_deref().and_then(generation)
}

fn preference_rank(request: &Request, offer: &Offer) -> usize {
    let place = |name| request.preferred.iter().position(|one| one == name);
    let liked = offer.types().map(|name| place(name).unwrap_or(usize::MAX));
    liked.max().unwrap_or(usize::MAX)
}

fn generations_behind(offer: &Offer, newest: &[Generation]) -> usize {
    let places = generations(offer);
    let known = offer.types().count();
    let behind = places.iter().map(|own| {
        let newest = newest.iter().find(|one| one.line == own.line);
        newest.and_then(|newest| newest.step.checked_sub(own.step))
    });
    let most = behind.map(|one| one.unwrap_or(usize::MAX)).max().filter(|_| places.len() == known);
    most.unwrap_or(usize::MAX)
}

/// Returns whether the price is unknown, whether its currency is another one than that of the price book, the currency,
/// and the price.
fn price_rank(
    request: &Request,
    one: &RankedOffer,
) -> (bool, bool, Option<Currency>, Option<Amount>) {
    let currency = one.offer.price.as_ref().map(|price| price.currency.clone());
    let is_foreign = request.currency.is_some() && currency != request.currency;
    (one.fit.per_hour.is_none(), is_foreign, currency, one.fit.per_hour)
}

/// Returns the measured throughput of all units. `None` for partitions, which no row covers, and for several types,
/// because the actual one is unknown.
fn speed<'r>(request: &'r Request, one: &RankedOffer) -> Option<&'r Throughput> {
    let is_sure = one.offer.shape == Shape::Whole && one.offer.others.is_empty();
    is_sure.then(|| request.throughput.get(&one.offer.type_name, one.fit.count)).flatten()
}

fn excess_memory(request: &Request, one: &RankedOffer) -> Bytes {
    let each = request.memory_each.unwrap_or_default().times(one.fit.count);
    let requested = each.max(request.memory_total.unwrap_or_default());
    let all = one.offer.memory.map(|memory| memory.times(one.fit.count).get());
    Bytes::new(all.map_or(u64::MAX, |all| all.saturating_sub(requested.get())))
}

fn reasons(request: &Request, one: &RankedOffer) -> Vec<String> {
    let RankedOffer { offer, fit, .. } = one;
    let count = fit.count;
    let mut parts = Vec::new();
    if let (Some(needed), Some(has)) = (request.memory_each, offer.memory) {
        parts.push(format!("{has} each, {needed} needed"));
    }
    if let (Some(needed), Some(has)) = (request.memory_total, offer.memory) {
        parts.push(format!("{} in {count}, {needed} needed in total", has.times(count)));
    }
    if let (Some(requested), Some(has)) = (request.architecture, &offer.traits.architecture) {
        parts.push(if requested.name == has {
            format!("it is {has}, as requested")
        } else {
            format!("{has} is newer than {}", requested.name)
        });
    }
    let capabilities = request.compute_capability.zip(offer.traits.compute_capability);
    if let Some((requested, has)) = capabilities {
        parts.push(format!("compute capability {has}, {requested} needed"));
    }
    if offer.types().all(|name| request.preferred.contains(name)) {
        parts.push("a preferred type".to_owned());
    }
    if let Some(speed) = speed(request, one) {
        let rows = speed.rows().join(", ");
        parts.push(format!("expect {speed} tokens/s of {count} (benchmark results: {rows})"));
    }
    parts.push(availability(one));
    if let (Some(all), Some(price)) = (fit.per_hour, &offer.price) {
        let (all, currency, option) = (all.shown(), &price.currency, &price.purchase_option);
        parts.push(format!("cost for {count}: {all} {currency} per hour ({option})"));
    }
    parts
}

/// Describes the free units.
fn availability(RankedOffer { offer, fit, availability }: &RankedOffer) -> String {
    let (all, count) = (offer.total, fit.count);
    let free = match offer.free {
        None => "the number of free units is unknown".to_owned(),
        Some(FreeUnits { total: 0, .. }) => format!("none of {all} is free"),
        Some(FreeUnits { total, on_one_node }) if on_one_node >= count => {
            format!("{total} of {all} free, {on_one_node} on one node")
        }
        Some(FreeUnits { total, on_one_node }) => format!(
            "{total} of {all} free, but at most {on_one_node} on one node, and {count} are needed on one node"
        ),
    };
    match &offer.after_change {
        Some(change) if *availability == OfferAvailability::AfterChange => {
            format!("{free}; could become free {}", change.how)
        }
        Some(_) | None => free,
    }
}

fn warnings(
    request: &Request,
    own: &RankedOffer,
    fitting: &[RankedOffer],
    refused: &[RefusedOffer],
) -> Vec<String> {
    let offer = &own.offer;
    let mut parts: Vec<String> = offer.no_profile_reason.iter().cloned().collect();
    parts.extend(preferred_type_warning(request, own, fitting, refused));
    parts.extend(newer_chip_warning(request, own, fitting));
    if offer.shape == Shape::Shared {
        parts.push(
            "the device is time-sliced: memory is not isolated, and speed depends on other pods"
                .to_owned(),
        );
    }
    parts.extend(own.fit.links.clone());
    parts.extend(offer.notes.iter().cloned());
    parts
}

/// Returns a warning if the offer is not the most preferred type, with the reason.
fn preferred_type_warning(
    request: &Request,
    own: &RankedOffer,
    fitting: &[RankedOffer],
    refused: &[RefusedOffer],
) -> Option<String> {
    let offer = &own.offer;
    let best = request.preferred.first();
    let best = best.filter(|best| offer.types().any(|name| name != *best))?;
    let has_best = |one: &Offer| one.types().any(|name| name == best);
    if has_best(offer) {
        return Some(format!("a pod can get a type other than the preferred {best}"));
    }
    let of_best = fitting.iter().filter(|one| has_best(&one.offer));
    // For a profile of several types, it is unknown which of them is free.
    let (alone, several): (Vec<_>, Vec<_>) = of_best.partition(|one| one.offer.others.is_empty());
    let soonest = alone.into_iter().min_by_key(|one| one.availability);
    let refusal = refused.iter().find(|(other, _)| other.type_name == *best);
    let availability = soonest.map(|one| one.availability);
    let but = match (availability, several.first(), refusal) {
        (Some(OfferAvailability::Free), ..) => "which also fits and is free".to_owned(),
        (Some(OfferAvailability::AfterChange), ..) => {
            "of which none is free without a change".to_owned()
        }
        (Some(OfferAvailability::Unknown), ..) => "whose availability is unknown".to_owned(),
        (Some(OfferAvailability::Taken), ..) => "of which not enough are free".to_owned(),
        (None, Some(one), _) => format!("which {} offers along with other types", one.offer.name),
        (None, None, Some((_, why))) => {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            format!("which does not fit: it {}", why.join("; it "))
        }
        (None, None, None) => "which is not in this fleet".to_owned(),
    };
    let types = offer.types().map(TypeName::as_str).collect::<Vec<_>>().join(" or ");
    let count = soonest.map_or(own.fit.count, |one| one.fit.count);
    Some(with_speeds(
        format!("{types} instead of the preferred {best}, {but}"),
        speed(request, own),
        request.throughput.get(best, count),
    ))
}

/// Returns a warning if a newer chip also fits but is not available as soon.
fn newer_chip_warning(
    request: &Request,
    own: &RankedOffer,
    fitting: &[RankedOffer],
) -> Option<String> {
    let offer = &own.offer;
    let mine = place(offer)?;
    let newer = fitting.iter().filter(|other| other.availability > own.availability);
    let newer = newer.filter_map(|other| Some((other, place(&other.offer)?)));
    let newer = newer.filter(|(_, place)| place.line == mine.line && place.step > mine.step);
    let (other, place) =
        newer.min_by_key(|(other, place)| (Reverse(place.step), &other.offer.name))?;
    let (name, newer) = (&other.offer.name, place.name);
    // Avoids repeating what the warning about the preferred type contains.
    let is_mentioned = request.preferred.first() == Some(&other.offer.type_name);
    Some(with_speeds(
        format!(
            "{} is {}; {name} is {newer}, which is newer and fits, but not enough are free",
            offer.name, mine.name
        ),
        speed(request, own).filter(|_| !is_mentioned),
        speed(request, other),
    ))
}

fn with_speeds(text: String, own: Option<&Throughput>, other: Option<&Throughput>) -> String {
    match (own, other) {
        (Some(own), Some(other)) => format!("{text}: {}", compare(own, other)),
        (_, _) => text,
    }
}

/// Describes an offer without a profile that would be available sooner.
fn sooner_offer(best: &Match, matches: &[Match]) -> Option<String> {
    let sooner = matches.iter().filter(|one| one.availability < best.availability);
    let without_profile = sooner.filter_map(|one| Some((one, one.no_profile_reason.as_ref()?)));
    let (one, why) = without_profile.min_by_key(|(one, _)| one.rank)?;
    let is_free = one.availability == OfferAvailability::Free;
    let how = if is_free { "is free" } else { "could be available sooner" };
    Some(format!("{} x {} {how}, but {why}", one.count, one.name))
}

/// Summarizes the answer in one sentence.
pub(super) fn summary(
    request: &Request,
    matches: &[Match],
    refused: &[RefusedOffer],
    largest: Option<&(String, Bytes)>,
) -> String {
    if let Some(best) = matches.first() {
        let (count, name) = (best.count, &best.name);
        let sentence = match (best.availability.known(), &best.could_become) {
            (Some(OfferAvailability::Free), _) => format!("{count} x {name} fits and is free"),
            (Some(OfferAvailability::AfterChange), Some(change)) => {
                format!("{count} x {name} fits, none is free, could become free {}", change.how)
            }
            (Some(OfferAvailability::Unknown), _) => {
                format!("{count} x {name} fits; its availability is unknown")
            }
            (Some(OfferAvailability::AfterChange | OfferAvailability::Taken) | None, _) => {
                format!("{count} x {name} fits, but not enough are free on one node")
            }
        };
        let note = best.no_profile_reason.clone().or_else(|| sooner_offer(best, matches));
        return match note {
            Some(note) => format!("{sentence}; {note}"),
            None => sentence,
        };
    }
    if refused.is_empty() {
        return "there is nothing to match: no known node has an accelerator of a known type"
            .to_owned();
    }
    let too_small = |(_, why): &RefusedOffer| {
        why.iter().any(|one| matches!(one, RejectionReason::Memory { .. }))
    };
    match (request.memory_each, largest) {
        (Some(needed), Some((name, has))) if refused.iter().all(too_small) => {
            format!(
                "needs {needed} or more per device; the largest in this fleet is {name} with {has}"
            )
        }
        (_, _) => "no match; each rejected candidate lists its reasons".to_owned(),
    }
}
