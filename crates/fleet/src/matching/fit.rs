//! Checks one offer against a request: it fits, or all reasons why not. An unknown attribute never fits: a pod
//! scheduled to unknown hardware may wait or fail.

use octavo_model::quantity::ComputeCapability;
use thiserror::Error;

use super::architectures::generation;
use super::offer::{Link, Offer, Shape};
use super::request::{Bytes, Interconnect, Isolation, Request};
use crate::price::{Amount, Currency, PurchaseOption};

/// A fitting offer's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fit {
    /// Units per pod.
    pub(super) count: u32,
    /// Price of all units per hour.
    pub(super) per_hour: Option<Amount>,
    /// Caveat about the links between devices.
    pub(super) links: Option<String>,
}

/// Reason why an offer does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum RejectionReason {
    #[error("its memory is unknown")]
    MemoryUnknown,
    #[error("needs {needed} or more per device; it has {has}")]
    Memory { needed: Bytes, has: Bytes },
    #[error("needs {needed} or more in total; the total for {count} is {has}")]
    MemoryTotal { needed: Bytes, has: Bytes, count: u32 },
    #[error("needs {needed} on one node; no node has more than {most}")]
    Count { needed: u32, most: u32 },
    #[error("needs {needed} on one node; no matching node has more than {most}")]
    ProfileCount { needed: u32, most: u32 },
    #[error("needs {needed}; the profile allows at most {max}")]
    AboveMax { needed: u32, max: u64 },
    #[error("needs {needed}; the profile allows at least {min}")]
    BelowMin { needed: u32, min: u64 },
    #[error("needs {requested} or newer; its architecture is unknown")]
    ArchitectureUnknown { requested: &'static str },
    #[error(
        "needs {requested} or newer; {has} belongs to another product line and cannot be compared"
    )]
    OtherProductLine { requested: &'static str, has: String },
    #[error("needs {requested} or newer; it is {has}, which is older")]
    OlderArchitecture { requested: &'static str, has: String },
    #[error("needs compute capability {0} or higher; its compute capability is unknown")]
    CapabilityUnknown(ComputeCapability),
    #[error("needs compute capability {requested} or higher, which {vendor} devices do not have")]
    CapabilityNotApplicable { requested: ComputeCapability, vendor: String },
    #[error("needs compute capability {requested} or higher; it has {has}")]
    Capability { requested: ComputeCapability, has: ComputeCapability },
    #[error("needs {}; its devices do not have such links", link_words(*.0))]
    Link(Interconnect),
    #[error("needs {}; the links between its devices are unknown", link_words(*.0))]
    LinkUnknown(Interconnect),
    #[error("needs {}; partitions have no links to each other", link_words(*.0))]
    PartitionLink(Interconnect),
    #[error("needs whole devices; this is a part of a device")]
    Partition,
    #[error("needs {}; this device is time-sliced", isolation_words(*.0))]
    Shared(Isolation),
    #[error(
        "the request has a price limit, but the price ({0}) is unknown: the price book has no entry for it"
    )]
    PriceUnknown(PurchaseOption),
    #[error(
        "must cost at most {} {currency} per hour; the cost for {count} is {} {currency}",
        ceiling.shown(), price.shown()
    )]
    TooExpensive { ceiling: Amount, price: Amount, currency: Currency, count: u32 },
    #[error("the price limit is in {limit}; its price is in {price}, which cannot be compared")]
    OtherCurrency { limit: Currency, price: Currency },
}

/// Returns the largest memory of one unit and its offer; the first by name in case of a tie.
pub(super) fn largest_memory(offers: &[Offer]) -> Option<(String, Bytes)> {
    let known = offers.iter().filter_map(|offer| Some((offer, offer.memory?)));
    let most = known.clone().map(|(_, memory)| memory).max()?;
    let (offer, memory) = known.into_iter().find(|(_, memory)| *memory == most)?;
    Some((offer.name.clone(), memory))
}

/// Checks `offer` against `request`. Without a requested count, the count is at least `least`.
pub(super) fn check(
    request: &Request,
    offer: &Offer,
    least: u32,
) -> Result<Fit, Vec<RejectionReason>> {
    let count = count(request, offer, least);
    let per_hour = offer.price.as_ref().map(|price| price.per_hour.times(count));
    let (links, unsuitable_links) = links(request, offer);
    let mut why: Vec<RejectionReason> = isolation(request, offer).into_iter().collect();
    why.extend(units(request, offer, count));
    why.extend(architecture(request, offer));
    why.extend(capability(request, offer));
    why.extend(unsuitable_links);
    why.extend(price(request, offer, count));
    if why.is_empty() { Ok(Fit { count, per_hour, links }) } else { Err(why) }
}

fn isolation(request: &Request, offer: &Offer) -> Option<RejectionReason> {
    match (&offer.shape, request.isolation) {
        (Shape::Whole, _)
        | (Shape::Mig(_) | Shape::Part(_), Isolation::Mig | Isolation::Shared)
        | (Shape::Shared, Isolation::Shared) => None,
        (Shape::Mig(_) | Shape::Part(_), Isolation::Exclusive) => Some(RejectionReason::Partition),
        (Shape::Shared, requested @ (Isolation::Exclusive | Isolation::Mig)) => {
            Some(RejectionReason::Shared(requested))
        }
    }
}

/// Returns the units per pod: the requested count, or the fewest that have the memory, but at least `least`.
pub(super) fn count(request: &Request, offer: &Offer, least: u32) -> u32 {
    let fewest = |needed: Bytes| offer.memory.and_then(|each| needed.units_needed(each));
    let fewest = request.memory_total.and_then(fewest).unwrap_or(1);
    let fewest = u32::try_from(fewest.max(1)).unwrap_or(u32::MAX);
    request.count.unwrap_or_else(|| fewest.max(least))
}

fn units(request: &Request, offer: &Offer, count: u32) -> Vec<RejectionReason> {
    let (each, total) = (request.memory_each, request.memory_total);
    let mut why = Vec::new();
    if let Some(has) = offer.memory {
        let all = has.times(count);
        let each = each.filter(|needed| has < *needed);
        let total = total.filter(|needed| all < *needed);
        why.extend(each.map(|needed| RejectionReason::Memory { needed, has }));
        why.extend(total.map(|needed| RejectionReason::MemoryTotal { needed, has: all, count }));
    } else if each.is_some() || total.is_some() {
        why.push(RejectionReason::MemoryUnknown);
    }
    let (needed, most) = (count, offer.max_per_node);
    if needed > most {
        why.push(match offer.profile {
            Some(_) => RejectionReason::ProfileCount { needed, most },
            None => RejectionReason::Count { needed, most },
        });
    }
    why
}

fn architecture(request: &Request, offer: &Offer) -> Option<RejectionReason> {
    let wanted = request.architecture?;
    let requested = wanted.name;
    let Some(has) = offer.traits.architecture.clone() else {
        return Some(RejectionReason::ArchitectureUnknown { requested });
    };
    match generation(&has) {
        Some(own) if own.line == wanted.line => (own.step < wanted.step)
            .then_some(RejectionReason::OlderArchitecture { requested, has }),
        Some(_) | None => Some(RejectionReason::OtherProductLine { requested, has }),
    }
}

fn capability(request: &Request, offer: &Offer) -> Option<RejectionReason> {
    let requested = request.compute_capability?;
    match (offer.traits.compute_capability, offer.traits.vendor.as_deref()) {
        (Some(has), _) => {
            (has < requested).then_some(RejectionReason::Capability { requested, has })
        }
        (None, Some("nvidia") | None) => Some(RejectionReason::CapabilityUnknown(requested)),
        (None, Some(vendor)) => {
            let vendor = vendor.to_owned();
            Some(RejectionReason::CapabilityNotApplicable { requested, vendor })
        }
    }
}

/// Checks the links: a caveat if the requested ones are not guaranteed, or the reason why none suits.
fn links(request: &Request, offer: &Offer) -> (Option<String>, Option<RejectionReason>) {
    let requested = request.interconnect;
    if requested == Interconnect::Any {
        return (None, None);
    }
    if offer.shape.is_part() {
        return (None, Some(RejectionReason::PartitionLink(requested)));
    }
    let suits = |link: &Link| match requested {
        Interconnect::Any => true,
        Interconnect::Direct => *link != Link::Bus,
        Interconnect::NvLink => matches!(link, Link::NvLink | Link::NvLinkBridge),
        Interconnect::InfinityFabric => *link == Link::InfinityFabric,
        Interconnect::NeuronLink => *link == Link::NeuronLink,
    };
    let (links, all_known) = (&offer.traits.links, offer.traits.all_links_known);
    let type_name = &offer.type_name;
    if !links.iter().any(suits) {
        let is_certain = all_known && !links.is_empty();
        let reason = if is_certain { RejectionReason::Link } else { RejectionReason::LinkUnknown };
        return (None, Some(reason(requested)));
    }
    let caveat = if !all_known || !links.iter().all(suits) {
        Some(format!(
            "not all products of {type_name} have the requested links ({requested}): also select by the label octavo.dev/interconnect"
        ))
    } else if links.contains(&Link::NvLinkBridge) {
        Some(format!(
            "some products of {type_name} have NVLink only with an optional bridge: also select by the label \
             octavo.dev/interconnect"
        ))
    } else {
        None
    };
    (caveat, None)
}

fn price(request: &Request, offer: &Offer, count: u32) -> Option<RejectionReason> {
    let ceiling = request.max_price?;
    let Some(of_one) = &offer.price else {
        return Some(RejectionReason::PriceUnknown(request.purchase_option));
    };
    let (price, currency) = (of_one.per_hour.times(count), of_one.currency.clone());
    if let Some(limit) = request.currency.clone().filter(|limit| *limit != currency) {
        return Some(RejectionReason::OtherCurrency { limit, price: currency });
    }
    (price > ceiling).then_some(RejectionReason::TooExpensive { ceiling, price, currency, count })
}

fn link_words(requested: Interconnect) -> &'static str {
    match requested {
        Interconnect::Any => "no link",
        Interconnect::Direct => "direct links between devices",
        Interconnect::NvLink => "NVLink",
        Interconnect::InfinityFabric => "Infinity Fabric",
        Interconnect::NeuronLink => "NeuronLink",
    }
}

fn isolation_words(requested: Isolation) -> &'static str {
    match requested {
        Isolation::Mig => "isolated memory",
        Isolation::Exclusive | Isolation::Shared => "exclusive devices",
    }
}
