//! The order of what fits. The rule, which `docs/matching.md` promises; each later line decides only among those that all
//! lines before it find alike:
//!
//! 1. what is free now, then what could become free without disturbing anybody, then what nobody knows of, then what is taken;
//! 2. the preferred types, in the order in which they were given;
//! 3. the fewest generations behind the newest chip of the same line that fits (lines cannot be compared with each other);
//! 4. the least memory that was not asked for;
//! 5. the lowest price of all units, those without one last;
//! 6. whole devices, partitions, shared devices;
//! 7. the name.

use std::cmp::Reverse;

use super::architectures::{Generation, generation};
use super::fit::{Fit, Why};
use super::offer::{Free, Offer, Shape};
use super::request::{Bytes, Request};
use super::{Match, Standing};
use crate::domain::price::Amount;

/// Those that fit, in their order.
pub(super) fn ranked(
    request: &Request,
    fitting: Vec<(Offer, Fit)>,
    refused: &[(Offer, Vec<Why>)],
) -> Vec<Match> {
    let newest = newest(&fitting);
    let mut ordered: Vec<(Offer, Fit, Standing)> = fitting
        .into_iter()
        .map(|(offer, fit)| {
            let standing = standing(&offer, fit.count);
            (offer, fit, standing)
        })
        .collect();
    ordered.sort_by_cached_key(|(offer, fit, standing)| {
        (
            *standing,
            liking(request, offer),
            behind(offer, &newest),
            waste(request, offer, fit.count),
            price(fit),
            offer.shape.clone(),
            offer.name.clone(),
        )
    });
    let standings: Vec<(&Offer, Standing)> = ordered
        .iter()
        .map(|(offer, _, how)| (offer, *how))
        .collect();
    let warnings: Vec<Vec<String>> = ordered
        .iter()
        .map(|one| warnings(request, one, &standings, refused))
        .collect();
    let numbered = ordered.into_iter().zip(warnings).enumerate();
    numbered
        .map(|(at, ((offer, fit, standing), warnings))| Match {
            rank: at.saturating_add(1),
            reasons: reasons(request, &offer, &fit, standing),
            warnings,
            count: fit.count,
            per_hour: fit.per_hour,
            standing,
            offer,
        })
        .collect()
}

/// How soon `count` units of an offer can be had on one node.
fn standing(offer: &Offer, count: u32) -> Standing {
    let change = offer.could_become.as_ref();
    match offer.free {
        Free::Known { on_one_node, .. } if on_one_node >= count => Standing::Free,
        Free::Known { .. } | Free::Unknown
            if change.is_some_and(|change| change.on_one_node >= count) =>
        {
            Standing::CouldBecome
        }
        Free::Unknown => Standing::Unknown,
        Free::Known { .. } => Standing::Taken,
    }
}

/// The newest chip of each line.
fn newest(fitting: &[(Offer, Fit)]) -> Vec<Generation> {
    let mut newest: Vec<Generation> = Vec::new();
    for place in fitting.iter().filter_map(|(offer, _)| place(offer)) {
        match newest.iter_mut().find(|known| known.line == place.line) {
            Some(known) if known.step < place.step => *known = place,
            Some(_) => {}
            None => newest.push(place),
        }
    }
    newest
}

fn place(offer: &Offer) -> Option<Generation> {
    offer.traits.architecture.as_deref().and_then(generation)
}

fn liking(request: &Request, offer: &Offer) -> usize {
    let mut liked = request.preferred.iter();
    liked
        .position(|one| *one == offer.type_name)
        .unwrap_or(usize::MAX)
}

fn behind(offer: &Offer, newest: &[Generation]) -> usize {
    let behind = place(offer).and_then(|own| {
        let newest = newest.iter().find(|one| one.line == own.line)?;
        newest.step.checked_sub(own.step)
    });
    behind.unwrap_or(usize::MAX)
}

fn waste(request: &Request, offer: &Offer, count: u32) -> Bytes {
    let each = request.memory_each.unwrap_or_default().times(count);
    let asked = each.max(request.memory_total.unwrap_or_default());
    let all = offer
        .memory
        .map(|memory| memory.times(count).get().saturating_sub(asked.get()));
    Bytes::new(all.unwrap_or(u64::MAX))
}

fn price(fit: &Fit) -> (bool, Option<Amount>) {
    (fit.per_hour.is_none(), fit.per_hour)
}

fn reasons(request: &Request, offer: &Offer, fit: &Fit, standing: Standing) -> Vec<String> {
    let mut said = Vec::new();
    if let (Some(needed), Some(has)) = (request.memory_each, offer.memory) {
        said.push(format!("{has} each, {needed} needed"));
    }
    if let (Some(needed), Some(has)) = (request.memory_total, offer.memory) {
        let all = has.times(fit.count);
        said.push(format!("{all} in {}, {needed} needed in all", fit.count));
    }
    if let (Some(asked), Some(has)) = (request.architecture, &offer.traits.architecture) {
        said.push(if asked.name == has {
            format!("it is {has}, as asked for")
        } else {
            format!("{has} is newer than {}", asked.name)
        });
    }
    if let (Some(asked), Some(has)) = (request.compute_capability, offer.traits.compute_capability)
    {
        said.push(format!("compute capability {has}, {asked} needed"));
    }
    if request.preferred.contains(&offer.type_name) {
        said.push("a preferred type".to_owned());
    }
    said.push(availability(offer, fit.count, standing));
    if let (Some(all), Some(price)) = (fit.per_hour, &offer.price) {
        let (count, currency, option) = (fit.count, &price.currency, price.option);
        said.push(format!("{count} cost {all} {currency} an hour {option}"));
    }
    said
}

/// What is free, in words.
fn availability(offer: &Offer, count: u32, standing: Standing) -> String {
    let free = match offer.free {
        Free::Unknown => "how many are free is not known".to_owned(),
        Free::Known { total: 0, .. } => format!("nothing is free of {}", offer.total),
        Free::Known { total, on_one_node } if on_one_node >= count => {
            format!("{total} of {} free, {on_one_node} on one node", offer.total)
        }
        Free::Known { total, on_one_node } => format!(
            "{total} of {} free, but {on_one_node} at most on one node, and {count} are needed there",
            offer.total
        ),
    };
    match &offer.could_become {
        Some(change) if standing == Standing::CouldBecome => {
            format!("{free}; could become free {}", change.how)
        }
        Some(_) | None => free,
    }
}

fn warnings(
    request: &Request,
    (offer, fit, standing): &(Offer, Fit, Standing),
    fitting: &[(&Offer, Standing)],
    refused: &[(Offer, Vec<Why>)],
) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    said.extend(instead(request, offer, fitting, refused));
    said.extend(fallback(offer, *standing, fitting));
    if offer.shape == Shape::Shared {
        said.push(
            "others use the same device by turns: memory is not kept apart, and speed depends on them".to_owned(),
        );
    }
    said.extend(fit.links.clone());
    said.extend(offer.notes.iter().cloned());
    said
}

/// That it is not the type that was liked best, and what is with that one.
fn instead(
    request: &Request,
    offer: &Offer,
    fitting: &[(&Offer, Standing)],
    refused: &[(Offer, Vec<Why>)],
) -> Option<String> {
    let best = request
        .preferred
        .first()
        .filter(|best| **best != offer.type_name)?;
    let of_best = fitting.iter().filter(|(other, _)| other.type_name == *best);
    let standing = of_best.map(|(_, standing)| *standing).min();
    let refusal = refused.iter().find(|(other, _)| other.type_name == *best);
    let but = match (standing, refusal) {
        (Some(Standing::Free), _) => "which fits and is free too".to_owned(),
        (Some(Standing::CouldBecome), _) => {
            "of which nothing is free until something changes".to_owned()
        }
        (Some(Standing::Unknown), _) => "of which nobody says what is free".to_owned(),
        (Some(Standing::Taken), _) => "of which not enough is free".to_owned(),
        (None, Some((_, why))) => {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            format!("which does not fit: it {}", why.join("; it "))
        }
        (None, None) => "which is not here".to_owned(),
    };
    Some(format!(
        "{} instead of the preferred {best}, {but}",
        offer.type_name
    ))
}

/// That a newer chip fits too and is not to be had as soon.
fn fallback(offer: &Offer, standing: Standing, fitting: &[(&Offer, Standing)]) -> Option<String> {
    let own = place(offer)?;
    let newer = fitting.iter().filter_map(|(other, how)| {
        let place = place(other).filter(|place| place.line == own.line && place.step > own.step)?;
        (*how > standing).then_some((Reverse(place.step), &other.name, place.name))
    });
    let (_, name, newer) = newer.min_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1)))?;
    Some(format!(
        "{} is {}; {name} is {newer}, which is newer and fits, but not enough of it is free",
        offer.name, own.name
    ))
}

/// The answer in one sentence.
pub(super) fn summary(
    request: &Request,
    matches: &[Match],
    refused: &[(Offer, Vec<Why>)],
    largest: Option<&(String, Bytes)>,
) -> String {
    if let Some(best) = matches.first() {
        let (count, name) = (best.count, &best.offer.name);
        return match (best.standing, &best.offer.could_become) {
            (Standing::Free, _) => format!("{count} x {name} fits and is free"),
            (Standing::CouldBecome, Some(change)) => {
                format!(
                    "{count} x {name} fits, nothing is free, could become free {}",
                    change.how
                )
            }
            (Standing::Unknown, _) => {
                format!("{count} x {name} fits; nobody says whether it is free")
            }
            (Standing::CouldBecome | Standing::Taken, _) => {
                format!("{count} x {name} fits, but not enough is free on one node")
            }
        };
    }
    if refused.is_empty() {
        return "there is nothing to match: no node that is known has an accelerator of a known type".to_owned();
    }
    let too_small =
        |(_, why): &(Offer, Vec<Why>)| why.iter().any(|one| matches!(one, Why::Memory { .. }));
    match (request.memory_each, largest) {
        (Some(needed), Some((name, has))) if refused.iter().all(too_small) => {
            format!("needs {needed} or more per device; the largest here is {name} with {has}")
        }
        (_, _) => "nothing here fits; each refusal says why".to_owned(),
    }
}
