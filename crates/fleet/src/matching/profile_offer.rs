//! Matches hardware profiles against a request. Users choose a profile, and its pods may get any device that it
//! reaches.
//!
//! A profile therefore fits only if all types that it reaches fit, and if the requested count is within its bounds.

use std::collections::BTreeSet;

use octavo_model::id::TypeName;

use super::Refusal;
use super::fit::{self, Fit, RejectionReason};
use super::offer::{FreeUnits, Offer, ProfileInfo, TypeAttributes};
use super::request::Request;

/// A hardware profile and the offers that it reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOffer {
    /// Unique name, shown to users and used by other programs.
    pub name: String,
    /// The profile.
    pub picked: ProfileInfo,
    /// Resource that its pods request.
    pub resource: String,
    /// The offers that it reaches, by type and shape, with the numbers of only the nodes that it reaches. Each has the
    /// name of the corresponding plain offer.
    pub offers: Vec<Offer>,
    /// Reasons why users cannot choose the profile, or why its pods would stay pending, as text.
    pub rejections: Vec<String>,
    /// Notes about the profile, as text.
    pub notes: Vec<String>,
}

/// A fitting profile.
pub(super) struct FittingProfile {
    /// All offers that the profile reaches, merged into one.
    pub(super) offer: Offer,
    pub(super) fit: Fit,
    /// Names of the plain offers that the profile reaches.
    pub(super) leads_to: BTreeSet<String>,
}

/// Checks a profile against a request.
pub(super) fn check(request: &Request, through: ProfileOffer) -> Result<FittingProfile, Refusal> {
    let mut why = through.rejections.clone();
    let picked = &through.picked;
    let least = u32::try_from(picked.min).unwrap_or(u32::MAX).max(1);
    // A pod may get any of the types, so the one that requires the most units decides.
    let counts = through.offers.iter().map(|offer| fit::count(request, offer, least));
    let count = counts.max().unwrap_or(least);
    let is_several = through.offers.len() > 1;
    let mut links = None;
    for offer in &through.offers {
        match fit::check(request, offer, count) {
            Ok(fit) => links = links.or(fit.links),
            Err(all) if is_several => {
                why.extend(all.iter().map(|one| format!("{}: {one}", offer.name)));
            }
            Err(all) => why.extend(all.iter().map(ToString::to_string)),
        }
    }
    why.extend(limits(count, picked).map(|one| one.to_string()));
    let merged = merged(&through);
    if why.is_empty() && merged.is_none() {
        why.push("no matching node has a known accelerator".to_owned());
    }
    let Some(offer) = merged.filter(|_| why.is_empty()) else {
        return Err(Refusal { name: through.name, why });
    };
    let per_hour = offer.price.as_ref().map(|price| price.per_hour.times(count));
    let leads_to = offer_names(&through);
    Ok(FittingProfile { leads_to, offer, fit: Fit { count, per_hour, links } })
}

/// Returns the names of the plain offers that a profile reaches.
pub(super) fn offer_names(through: &ProfileOffer) -> BTreeSet<String> {
    through.offers.iter().map(|offer| offer.name.clone()).collect()
}

fn limits(needed: u32, picked: &ProfileInfo) -> Option<RejectionReason> {
    let max = picked.max.filter(|max| u64::from(needed) > *max);
    let above = max.map(|max| RejectionReason::AboveMax { needed, max });
    let is_below = u64::from(needed) < picked.min;
    above.or_else(|| is_below.then_some(RejectionReason::BelowMin { needed, min: picked.min }))
}

/// Merges the offers of a profile into one with the attributes that every pod is guaranteed.
fn merged(through: &ProfileOffer) -> Option<Offer> {
    let mut offers = through.offers.iter().cloned();
    let first = offers.next()?;
    let mut all = offers.fold(first, merge_offers);
    if !all.others.is_empty() {
        let types: Vec<&str> = all.types().map(TypeName::as_str).collect();
        all.notes.push(format!(
            "it matches nodes of several types ({}); a pod can be scheduled to any of them",
            types.join(" and ")
        ));
    }
    all.notes.extend(through.notes.iter().cloned());
    all.name.clone_from(&through.name);
    all.resource = Some(through.resource.clone());
    all.profile = Some(through.picked.clone());
    Some(all)
}

/// Merges two offers.
fn merge_offers(mut all: Offer, offer: Offer) -> Offer {
    all.memory = all.memory.zip(offer.memory).map(|(one, other)| one.min(other));
    all.max_per_node = all.max_per_node.max(offer.max_per_node);
    all.total = all.total.saturating_add(offer.total);
    all.free = merge_free(all.free, offer.free);
    let better = match (&all.after_change, &offer.after_change) {
        (Some(one), Some(other)) => other.on_one_node > one.on_one_node,
        (one, other) => one.is_none() && other.is_some(),
    };
    if better {
        all.after_change = offer.after_change;
    }
    // Prices in several currencies have no highest one.
    all.price = all
        .price
        .zip(offer.price)
        .filter(|(one, other)| one.currency == other.currency)
        .map(|(one, other)| if other.per_hour > one.per_hour { other } else { one });
    all.shape = all.shape.max(offer.shape);
    all.traits = common_traits(all.traits, &offer.traits);
    let is_new = offer.type_name != all.type_name && !all.others.contains(&offer.type_name);
    all.others.extend(is_new.then_some(offer.type_name));
    for note in offer.notes {
        if !all.notes.contains(&note) {
            all.notes.push(note);
        }
    }
    all
}

fn merge_free(one: Option<FreeUnits>, other: Option<FreeUnits>) -> Option<FreeUnits> {
    match (one, other) {
        (
            Some(FreeUnits { total, on_one_node }),
            Some(FreeUnits { total: more, on_one_node: there }),
        ) => Some(FreeUnits {
            total: total.saturating_add(more),
            on_one_node: on_one_node.max(there),
        }),
        (known @ Some(FreeUnits { on_one_node, .. }), None)
        | (None, known @ Some(FreeUnits { on_one_node, .. }))
            if on_one_node > 0 =>
        {
            known
        }
        (_, _) => None,
    }
}

fn common_traits(one: TypeAttributes, other: &TypeAttributes) -> TypeAttributes {
    TypeAttributes {
        vendor: one.vendor.filter(|own| Some(own) == other.vendor.as_ref()),
        architecture: one.architecture.filter(|own| Some(own) == other.architecture.as_ref()),
        compute_capability: one
            .compute_capability
            .zip(other.compute_capability)
            .map(|(one, other)| one.min(other)),
        ..one
    }
}
