//! Checks one offer against a request: it fits, or all reasons why not. An unknown attribute never fits: a pod
//! scheduled to unknown hardware may wait or fail.

use std::fmt;

use octavo_model::quantity::ComputeCapability;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RejectionReason {
    MemoryUnknown,
    Memory {
        needed: Bytes,
        has: Bytes,
    },
    MemoryTotal {
        needed: Bytes,
        has: Bytes,
        count: u32,
    },
    Count {
        needed: u32,
        most: u32,
        /// True if `most` covers only the nodes of a profile.
        is_profile_limit: bool,
    },
    /// The count exceeds the profile's maximum.
    AboveMax {
        needed: u32,
        max: u64,
    },
    /// The count is below the profile's minimum.
    BelowMin {
        needed: u32,
        min: u64,
    },
    ArchitectureUnknown {
        requested: &'static str,
    },
    OtherProductLine {
        requested: &'static str,
        has: String,
    },
    OlderArchitecture {
        requested: &'static str,
        has: String,
    },
    CapabilityUnknown {
        requested: ComputeCapability,
    },
    CapabilityNotApplicable {
        requested: ComputeCapability,
        vendor: String,
    },
    Capability {
        requested: ComputeCapability,
        has: ComputeCapability,
    },
    Link {
        requested: Interconnect,
    },
    LinkUnknown {
        requested: Interconnect,
    },
    PartitionLink {
        requested: Interconnect,
    },
    Partition,
    Shared {
        requested: Isolation,
    },
    PriceUnknown {
        option: PurchaseOption,
    },
    TooExpensive {
        ceiling: Amount,
        price: Amount,
        currency: Currency,
        count: u32,
    },
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
    let mut why = Vec::new();
    isolation(request, offer, &mut why);
    let count = count(request, offer, least);
    units(request, offer, count, &mut why);
    architecture(request, offer, &mut why);
    capability(request, offer, &mut why);
    let links = links(request, offer, &mut why);
    let per_hour = offer.price.as_ref().map(|price| price.per_hour.times(count));
    price(request, offer, (count, per_hour), &mut why);
    if why.is_empty() { Ok(Fit { count, per_hour, links }) } else { Err(why) }
}

fn isolation(request: &Request, offer: &Offer, why: &mut Vec<RejectionReason>) {
    match (&offer.shape, request.isolation) {
        (Shape::Whole, _)
        | (Shape::Mig(_) | Shape::Part(_), Isolation::Mig | Isolation::Shared)
        | (Shape::Shared, Isolation::Shared) => {}
        (Shape::Mig(_) | Shape::Part(_), Isolation::Exclusive) => {
            why.push(RejectionReason::Partition);
        }
        (Shape::Shared, requested @ (Isolation::Exclusive | Isolation::Mig)) => {
            why.push(RejectionReason::Shared { requested });
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

fn units(request: &Request, offer: &Offer, count: u32, why: &mut Vec<RejectionReason>) {
    match offer.memory {
        None => {
            if request.memory_each.is_some() || request.memory_total.is_some() {
                why.push(RejectionReason::MemoryUnknown);
            }
        }
        Some(has) => {
            if let Some(needed) = request.memory_each.filter(|needed| has < *needed) {
                why.push(RejectionReason::Memory { needed, has });
            }
            let all = has.times(count);
            if let Some(needed) = request.memory_total.filter(|needed| all < *needed) {
                why.push(RejectionReason::MemoryTotal { needed, has: all, count });
            }
        }
    }
    if count > offer.max_per_node {
        why.push(RejectionReason::Count {
            needed: count,
            most: offer.max_per_node,
            is_profile_limit: offer.profile.is_some(),
        });
    }
}

fn architecture(request: &Request, offer: &Offer, why: &mut Vec<RejectionReason>) {
    let Some(requested) = request.architecture else {
        return;
    };
    let Some(has) = &offer.traits.architecture else {
        why.push(RejectionReason::ArchitectureUnknown { requested: requested.name });
        return;
    };
    match generation(has) {
        Some(place) if place.line == requested.line => {
            if place.step < requested.step {
                why.push(RejectionReason::OlderArchitecture {
                    requested: requested.name,
                    has: has.clone(),
                });
            }
        }
        Some(_) | None => {
            why.push(RejectionReason::OtherProductLine {
                requested: requested.name,
                has: has.clone(),
            });
        }
    }
}

fn capability(request: &Request, offer: &Offer, why: &mut Vec<RejectionReason>) {
    let Some(requested) = request.compute_capability else {
        return;
    };
    let vendor = offer.traits.vendor.as_deref();
    match (offer.traits.compute_capability, vendor) {
        (Some(has), _) if has >= requested => {}
        (Some(has), _) => why.push(RejectionReason::Capability { requested, has }),
        (None, Some("nvidia") | None) => why.push(RejectionReason::CapabilityUnknown { requested }),
        (None, Some(vendor)) => {
            why.push(RejectionReason::CapabilityNotApplicable {
                requested,
                vendor: vendor.to_owned(),
            });
        }
    }
}

/// Checks the links and returns a caveat if the requested ones are not guaranteed.
fn links(request: &Request, offer: &Offer, why: &mut Vec<RejectionReason>) -> Option<String> {
    let requested = request.interconnect;
    if requested == Interconnect::Any {
        return None;
    }
    if offer.shape.is_part() {
        why.push(RejectionReason::PartitionLink { requested });
        return None;
    }
    let suits = |link: &Link| match requested {
        Interconnect::Any => true,
        Interconnect::Direct => *link != Link::Bus,
        Interconnect::NvLink => matches!(link, Link::NvLink | Link::NvLinkBridge),
        Interconnect::InfinityFabric => *link == Link::InfinityFabric,
        Interconnect::NeuronLink => *link == Link::NeuronLink,
    };
    let traits = &offer.traits;
    let suiting: Vec<Link> = traits.links.iter().copied().filter(suits).collect();
    if suiting.is_empty() {
        why.push(if traits.all_links_known && !traits.links.is_empty() {
            RejectionReason::Link { requested }
        } else {
            RejectionReason::LinkUnknown { requested }
        });
        return None;
    }
    let certain = traits.all_links_known && traits.links.iter().all(suits);
    if !certain {
        return Some(format!(
            "not all products of {} have the requested links ({}): also select by the label octavo.dev/interconnect",
            offer.type_name,
            requested.as_str()
        ));
    }
    suiting.contains(&Link::NvLinkBridge).then(|| {
        format!(
            "some products of {} have NVLink only with an optional bridge: also select by the label \
             octavo.dev/interconnect",
            offer.type_name
        )
    })
}

fn price(
    request: &Request,
    offer: &Offer,
    (count, per_hour): (u32, Option<Amount>),
    why: &mut Vec<RejectionReason>,
) {
    let Some(ceiling) = request.max_price else {
        return;
    };
    match (per_hour, &offer.price) {
        (Some(price), Some(of_one)) if price > ceiling => why.push(RejectionReason::TooExpensive {
            ceiling,
            price,
            currency: of_one.currency.clone(),
            count,
        }),
        (Some(_), Some(_)) => {}
        (None, _) | (_, None) => {
            why.push(RejectionReason::PriceUnknown { option: request.purchase_option });
        }
    }
}

impl fmt::Display for RejectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryUnknown => f.write_str("its memory is unknown"),
            Self::Memory { needed, has } => {
                write!(f, "needs {needed} or more per device; it has {has}")
            }
            Self::MemoryTotal { needed, has, count } => {
                write!(f, "needs {needed} or more in total; the total for {count} is {has}")
            }
            Self::Count { needed, most, is_profile_limit: is_reach } => {
                fmt_count(f, (*needed, *most), *is_reach)
            }
            Self::AboveMax { needed, max } => fmt_bound(f, *needed, *max, "most"),
            Self::BelowMin { needed, min } => fmt_bound(f, *needed, *min, "least"),
            Self::ArchitectureUnknown { requested } => {
                write!(f, "needs {requested} or newer; its architecture is unknown")
            }
            Self::OtherProductLine { requested, has } => write!(
                f,
                "needs {requested} or newer; {has} belongs to another product line and cannot be compared"
            ),
            Self::OlderArchitecture { requested, has } => {
                write!(f, "needs {requested} or newer; it is {has}, which is older")
            }
            Self::CapabilityUnknown { requested } => {
                fmt_capability(f, requested, format_args!("; its compute capability is unknown"))
            }
            Self::CapabilityNotApplicable { requested, vendor } => {
                fmt_capability(f, requested, format_args!(", which {vendor} devices do not have"))
            }
            Self::Capability { requested, has } => {
                fmt_capability(f, requested, format_args!("; it has {has}"))
            }
            Self::Link { requested } => {
                fmt_links(f, *requested, "its devices do not have such links")
            }
            Self::LinkUnknown { requested } => {
                fmt_links(f, *requested, "the links between its devices are unknown")
            }
            Self::PartitionLink { requested } => {
                fmt_links(f, *requested, "partitions have no links to each other")
            }
            Self::Partition => f.write_str("needs whole devices; this is a part of a device"),
            Self::Shared { requested: Isolation::Mig } => {
                f.write_str("needs isolated memory; this device is time-sliced")
            }
            Self::Shared { .. } => {
                f.write_str("needs exclusive devices; this device is time-sliced")
            }
            Self::PriceUnknown { option } => write!(
                f,
                "the request has a price limit, but the price ({option}) is unknown: the price book has no entry \
                 for it"
            ),
            Self::TooExpensive { ceiling, price, currency, count } => {
                let [ceiling, price] = [ceiling, price].map(|amount| amount.shown());
                write!(f, "must cost at most {ceiling} {currency} per hour; ")?;
                write!(f, "the cost for {count} is {price} {currency}")
            }
        }
    }
}

fn fmt_count(
    f: &mut fmt::Formatter<'_>,
    (needed, most): (u32, u32),
    is_reach: bool,
) -> fmt::Result {
    let node = if is_reach { "matching node" } else { "node" };
    write!(f, "needs {needed} on one node; no {node} has more than {most}")
}

fn fmt_bound(f: &mut fmt::Formatter<'_>, needed: u32, bound: u64, at: &str) -> fmt::Result {
    write!(f, "needs {needed}; the profile allows at {at} {bound}")
}

fn fmt_capability(
    f: &mut fmt::Formatter<'_>,
    requested: &impl fmt::Display,
    but: fmt::Arguments<'_>,
) -> fmt::Result {
    write!(f, "needs compute capability {requested} or higher{but}")
}

fn fmt_links(f: &mut fmt::Formatter<'_>, requested: Interconnect, but: &str) -> fmt::Result {
    write!(f, "needs {}; {but}", link_words(requested))
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
