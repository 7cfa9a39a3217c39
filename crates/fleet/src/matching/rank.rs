//! Orders fitting offers by the following criteria, which `docs/tasks/matching.md` documents. Each criterion breaks the ties
//! of all criteria before it:
//!
//! 1. hardware profiles, then offers that no profile makes available, or not as soon;
//! 2. free now, then available after a change that affects no running workload, then unknown, then taken;
//! 3. preferred types, in the given order;
//! 4. fewest generations behind the newest fitting chip of the same line (lines cannot be compared);
//! 5. least memory beyond the request;
//! 6. lowest price of all units, those without a price last;
//! 7. whole devices, then partitions, then shared devices;
//! 8. name.
//!
//! For a profile with several types, each criterion uses the least favorable type.

use std::cmp::Reverse;

use octavo_model::id::TypeName;

use super::architectures::{Generation, generation};
use super::fit::{Fit, RejectionReason};
use super::offer::{FreeUnits, Offer, Shape, Traits};
use super::request::{Bytes, Request};
use super::throughput::{Throughput, compare};
use super::{Match, OfferAvailability};
use crate::price::{Amount, Price};

/// A fitting offer, for comparison with the others.
struct RankedOffer {
    offer: Offer,
    fit: Fit,
    standing: OfferAvailability,
}

/// Returns the fitting offers in order.
pub(super) fn rank(
    request: &Request,
    fitting: Vec<(Offer, Fit)>,
    refused: &[(Offer, Vec<RejectionReason>)],
) -> Vec<Match> {
    let newest = newest(&fitting);
    let mut ordered: Vec<RankedOffer> = fitting
        .into_iter()
        .map(|(offer, fit)| {
            let standing = availability_of(&offer, fit.count);
            RankedOffer { offer, fit, standing }
        })
        .collect();
    ordered.sort_by_cached_key(|RankedOffer { offer, fit, standing }| {
        (
            offer.profile.is_none(),
            *standing,
            preference_rank(request, offer),
            generations_behind(offer, &newest),
            excess_memory(request, offer, fit.count),
            price(fit),
            offer.shape.clone(),
            offer.name.clone(),
        )
    });
    let warnings: Vec<Vec<String>> =
        ordered.iter().map(|one| warnings(request, one, &ordered, refused)).collect();
    let numbered = ordered.into_iter().zip(warnings).enumerate();
    numbered
        .map(|(at, (RankedOffer { offer, fit, standing }, warnings))| Match {
            rank: at.saturating_add(1),
            reasons: reasons(request, &offer, &fit, standing),
            tokens_per_second: speed(request, &offer, fit.count).cloned(),
            warnings,
            count: fit.count,
            cost: { fit.per_hour.zip(offer.price) }
                .map(|(per_hour, price)| Price { per_hour, ..price }),
            standing: standing.into(),
            name: offer.name,
            profile: offer.profile,
            type_name: offer.type_name,
            other_types: offer.others,
            resource: offer.resource,
            shape: offer.shape.kind().into(),
            memory_bytes: offer.memory,
            architecture: offer.traits.architecture,
            total: offer.total,
            free: offer.free,
            could_become: offer.after_change,
            no_profile_reason: offer.no_profile_reason,
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
    let traits = offer.types().map(Traits::from_type);
    let names = traits.filter_map(|one| one.architecture);
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

/// Returns the measured throughput of `count` units. `None` for partitions, which no row covers, and for several types,
/// because the actual one is unknown.
fn speed<'r>(request: &'r Request, offer: &Offer, count: u32) -> Option<&'r Throughput> {
    let is_sure = offer.shape == Shape::Whole && offer.others.is_empty();
    let found = is_sure.then(|| request.throughput.get(&offer.type_name, count));
    found.flatten()
}

fn excess_memory(request: &Request, offer: &Offer, count: u32) -> Bytes {
    let each = request.memory_each.unwrap_or_default().times(count);
    let requested = each.max(request.memory_total.unwrap_or_default());
    let all = offer.memory.map(|memory| memory.times(count).get().saturating_sub(requested.get()));
    Bytes::new(all.unwrap_or(u64::MAX))
}

fn price(fit: &Fit) -> (bool, Option<Amount>) {
    (fit.per_hour.is_none(), fit.per_hour)
}

fn reasons(
    request: &Request,
    offer: &Offer,
    fit: &Fit,
    standing: OfferAvailability,
) -> Vec<String> {
    let mut parts = Vec::new();
    if let (Some(needed), Some(has)) = (request.memory_each, offer.memory) {
        parts.push(format!("{has} each, {needed} needed"));
    }
    if let (Some(needed), Some(has)) = (request.memory_total, offer.memory) {
        let all = has.times(fit.count);
        parts.push(format!("{all} in {}, {needed} needed in total", fit.count));
    }
    if let (Some(requested), Some(has)) = (request.architecture, &offer.traits.architecture) {
        parts.push(if requested.name == has {
            format!("it is {has}, as requested")
        } else {
            format!("{has} is newer than {}", requested.name)
        });
    }
    if let (Some(requested), Some(has)) =
        (request.compute_capability, offer.traits.compute_capability)
    {
        parts.push(format!("compute capability {has}, {requested} needed"));
    }
    if offer.types().all(|name| request.preferred.contains(name)) {
        parts.push("a preferred type".to_owned());
    }
    if let Some(speed) = speed(request, offer, fit.count) {
        let rows: Vec<&str> = speed.rows().iter().map(String::as_str).collect();
        let rows = rows.join(", ");
        parts.push(format!("expect {speed} tokens/s of {} (benchmark results: {rows})", fit.count));
    }
    parts.push(availability(offer, fit.count, standing));
    if let (Some(all), Some(price)) = (fit.per_hour, &offer.price) {
        let (count, currency, option) = (fit.count, &price.currency, &price.purchase_option);
        let all = all.shown();
        parts.push(format!("cost for {count}: {all} {currency} per hour ({option})"));
    }
    parts
}

/// Describes the free units.
fn availability(offer: &Offer, count: u32, standing: OfferAvailability) -> String {
    let free = match offer.free {
        None => "the number of free units is unknown".to_owned(),
        Some(FreeUnits { total: 0, .. }) => format!("none of {} is free", offer.total),
        Some(FreeUnits { total, on_one_node }) if on_one_node >= count => {
            format!("{total} of {} free, {on_one_node} on one node", offer.total)
        }
        Some(FreeUnits { total, on_one_node }) => format!(
            "{total} of {} free, but at most {on_one_node} on one node, and {count} are needed on one node",
            offer.total
        ),
    };
    match &offer.after_change {
        Some(change) if standing == OfferAvailability::AfterChange => {
            format!("{free}; could become free {}", change.how)
        }
        Some(_) | None => free,
    }
}

fn warnings(
    request: &Request,
    own: &RankedOffer,
    fitting: &[RankedOffer],
    refused: &[(Offer, Vec<RejectionReason>)],
) -> Vec<String> {
    let offer = &own.offer;
    let mut parts: Vec<String> = Vec::new();
    parts.extend(offer.no_profile_reason.clone());
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
    refused: &[(Offer, Vec<RejectionReason>)],
) -> Option<String> {
    let offer = &own.offer;
    let best = request.preferred.first();
    let best = best.filter(|best| offer.types().any(|name| name != *best))?;
    let has_best = |one: &Offer| one.types().any(|name| name == best);
    if has_best(offer) {
        let sentence = format!("a pod can get a type other than the preferred {best}");
        return Some(sentence);
    }
    let of_best = fitting.iter().filter(|one| has_best(&one.offer));
    // For a profile of several types, it is unknown which of them is free.
    let (alone, several): (Vec<_>, Vec<_>) = of_best.partition(|one| one.offer.others.is_empty());
    let soonest = alone.into_iter().min_by_key(|one| one.standing);
    let refusal = refused.iter().find(|(other, _)| other.type_name == *best);
    let standing = soonest.map(|one| one.standing);
    let but = match (standing, several.first(), refusal) {
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
    let types: Vec<&str> = offer.types().map(TypeName::as_str).collect();
    let count = soonest.map_or(own.fit.count, |one| one.fit.count);
    Some(with_speeds(
        format!("{} instead of the preferred {best}, {but}", types.join(" or ")),
        speed(request, offer, own.fit.count),
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
    let newer = fitting.iter().filter_map(|other| {
        let place = place(&other.offer);
        let place = place.filter(|place| place.line == mine.line && place.step > mine.step)?;
        (other.standing > own.standing).then_some((other, place))
    });
    let newer = newer.min_by_key(|(other, place)| (Reverse(place.step), &other.offer.name));
    let (other, place) = newer?;
    let (name, newer) = (&other.offer.name, place.name);
    // Avoids repeating what the warning about the preferred type contains.
    let is_mentioned = request.preferred.first() == Some(&other.offer.type_name);
    let (one, another) =
        (speed(request, offer, own.fit.count), speed(request, &other.offer, other.fit.count));
    Some(with_speeds(
        format!(
            "{} is {}; {name} is {newer}, which is newer and fits, but not enough are free",
            offer.name, mine.name
        ),
        one.filter(|_| !is_mentioned),
        another,
    ))
}

fn with_speeds(text: String, own: Option<&Throughput>, other: Option<&Throughput>) -> String {
    match (own, other) {
        (Some(own), Some(other)) => format!("{text}: {}", compare(own, other)),
        (_, _) => text,
    }
}

/// Appends to the summary an offer without a profile that would be available sooner.
fn with_sooner_offer(sentence: String, best: &Match, matches: &[Match]) -> String {
    let sooner = matches
        .iter()
        .filter(|one| one.no_profile_reason.is_some() && one.standing < best.standing);
    let first = sooner.min_by_key(|one| one.rank);
    match first.map(|one| (one, &one.no_profile_reason)) {
        Some((one, Some(why))) => {
            let (count, name) = (one.count, &one.name);
            let is_free = one.standing == OfferAvailability::Free;
            let how = if is_free { "is free" } else { "could be available sooner" };
            format!("{sentence}; {count} x {name} {how}, but {why}")
        }
        _ => sentence,
    }
}

/// Summarizes the answer in one sentence.
pub(super) fn summary(
    request: &Request,
    matches: &[Match],
    refused: &[(Offer, Vec<RejectionReason>)],
    largest: Option<&(String, Bytes)>,
) -> String {
    if let Some(best) = matches.first() {
        let (count, name) = (best.count, &best.name);
        let sentence = match (best.standing.known(), &best.could_become) {
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
        return match &best.no_profile_reason {
            Some(why) => format!("{sentence}; {why}"),
            None => with_sooner_offer(sentence, best, matches),
        };
    }
    if refused.is_empty() {
        return "there is nothing to match: no known node has an accelerator of a known type"
            .to_owned();
    }
    let too_small = |(_, why): &(Offer, Vec<RejectionReason>)| {
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
