//! Matches a request against offers: which ones fit, in which order, and why the others do not.
//!
//! The aggregator calls this with offers built from the fleet. The module is pure and independent of any fleet, so
//! offers can come from any source: agents' summaries, a cluster's resources, or profiles created by an administrator.
//! The answer depends only on the request and the offers, not on their order.
//!
//! ```text
//! request.rs        the request
//! offer.rs          available units
//! profile_offer.rs  hardware profiles that lead to offers
//! throughput.rs     measured throughput of a model by hardware
//! architectures.rs  the order of chip families, where one exists
//! fit.rs            one offer against the request: fits, or the reasons why not
//! rank.rs           the order of fitting offers, and their warnings
//! ```

mod architectures;
mod fit;
mod offer;
mod profile_offer;
mod rank;
mod request;
mod throughput;

use std::collections::BTreeSet;

pub use self::architectures::{Generation, generation};
use self::fit::{Fit, RejectionReason};
pub use self::offer::{AvailabilityChange, FreeUnits, Link, Offer, ProfileInfo, Shape, Traits};
use self::profile_offer::FittingProfile;
pub use self::profile_offer::ProfileOffer;
pub use self::request::{Bytes, Interconnect, Isolation, Request, RequestError, resolve_type};
pub use self::throughput::{Measurement, Throughput, ThroughputTable};
use crate::price::Amount;

/// Maximum number of offers in an answer, and of profiles. A fleet has a few dozen; the limit guards against invented
/// types.
pub const MAX_OFFERS: usize = 2000;

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The overall result.
    pub verdict: Verdict,
    /// The result as a sentence.
    pub summary: String,
    /// Fitting offers, best first.
    pub matches: Vec<Match>,
    /// Offers that do not fit, by name.
    pub refused: Vec<Refusal>,
}

/// Overall result of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// An offer fits and is free.
    FitsNow,
    /// Offers fit, but none is known to be free.
    NothingFree,
    /// No offer fits.
    NothingFits,
}

/// When an offer is available; smaller is sooner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfferAvailability {
    /// Available now.
    Free,
    /// Available after a change that affects no running workload.
    AfterChange,
    /// The number of free units is unknown.
    Unknown,
    /// Available once units are released.
    Taken,
}

/// An offer that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The offer.
    pub offer: Offer,
    /// Rank; 1 is the best.
    pub rank: usize,
    /// Units that a pod requests.
    pub count: u32,
    /// When the offer is available.
    pub standing: OfferAvailability,
    /// Measured throughput, if a performance row exists.
    pub speed: Option<Throughput>,
    /// Price of all units per hour, if known.
    pub per_hour: Option<Amount>,
    /// Reasons why the offer fits, as text.
    pub reasons: Vec<String>,
    /// Warnings to consider before choosing the offer, as text.
    pub warnings: Vec<String>,
}

/// An offer that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Offer name.
    pub name: String,
    /// All reasons, as text; never empty.
    pub why: Vec<String>,
}

/// Matches `request` against the devices of nodes, without hardware profiles.
pub fn answer(request: &Request, offers: Vec<Offer>) -> Answer {
    build_answer(request, sorted(offers), ProfileMatches::default())
}

/// Matches `request` where users choose from `profiles`, which come first. Devices of nodes follow only if no fitting
/// profile reaches them, or none makes them available as soon.
pub fn match_profiles(
    request: &Request,
    offers: Vec<Offer>,
    profiles: Vec<ProfileOffer>,
) -> Answer {
    let mut profiles = profiles;
    profiles.sort_by(|one, other| one.name.cmp(&other.name));
    profiles.dedup_by(|one, other| one.name == other.name);
    profiles.truncate(MAX_OFFERS);
    let mut picking = ProfileMatches {
        is_enabled: true,
        ..ProfileMatches::default()
    };
    for profile in profiles {
        picking
            .reached
            .append(&mut profile_offer::offer_names(&profile));
        match profile_offer::check(request, profile) {
            Ok(fitting) => picking.fitting.push(fitting),
            Err(refusal) => picking.refused.push(refusal),
        }
    }
    build_answer(request, sorted(offers), picking)
}

/// Hardware profiles after matching.
#[derive(Default)]
struct ProfileMatches {
    is_enabled: bool,
    fitting: Vec<FittingProfile>,
    refused: Vec<Refusal>,
    /// Names of all offers that any profile reaches.
    reached: BTreeSet<String>,
}

fn sorted(mut offers: Vec<Offer>) -> Vec<Offer> {
    offers.sort_by(|one, other| one.name.cmp(&other.name));
    offers.dedup_by(|one, other| one.name == other.name);
    offers.truncate(MAX_OFFERS);
    offers
}

fn build_answer(request: &Request, offers: Vec<Offer>, picking: ProfileMatches) -> Answer {
    let hopes = fit::largest_memory(&offers);
    let mut fitting: Vec<(Offer, Fit)> = Vec::new();
    let mut refused: Vec<(Offer, Vec<RejectionReason>)> = Vec::new();
    for offer in offers {
        match fit::check(request, &offer, 1) {
            Ok(fit) => fitting.extend(picking.unprofiled_match(offer, fit)),
            Err(why) => refused.push((offer, why)),
        }
    }
    let through = picking.fitting.into_iter();
    fitting.extend(through.map(|one| (one.offer, one.fit)));
    let matches = rank::rank(request, fitting, &refused);
    let verdict = match matches.first().map(|best| best.standing) {
        Some(OfferAvailability::Free) => Verdict::FitsNow,
        Some(
            OfferAvailability::AfterChange | OfferAvailability::Unknown | OfferAvailability::Taken,
        ) => Verdict::NothingFree,
        None => Verdict::NothingFits,
    };
    let summary = rank::summary(request, &matches, &refused, hopes.as_ref());
    // Problems with a type that profiles reach are reported for each profile. Partitions are not reported to a request
    // for whole devices.
    let is_told = |(offer, _): &(Offer, Vec<RejectionReason>)| {
        let is_unwanted = offer.shape.is_part() && request.isolation == Isolation::Exclusive;
        !picking.is_enabled || !(picking.reached.contains(&offer.name) || is_unwanted)
    };
    let told = |(offer, why): (Offer, Vec<RejectionReason>)| Refusal {
        name: offer.name,
        why: why.iter().map(ToString::to_string).collect(),
    };
    let bare = refused.into_iter().filter(is_told).map(told);
    Answer {
        verdict,
        summary,
        matches,
        refused: picking.refused.into_iter().chain(bare).collect(),
    }
}

impl ProfileMatches {
    /// Returns the devices of nodes as a match of their own, unless a profile makes them available as soon.
    fn unprofiled_match(&self, mut offer: Offer, fit: Fit) -> Option<(Offer, Fit)> {
        if !self.is_enabled {
            return Some((offer, fit));
        }
        let own = rank::availability_of(&offer, fit.count);
        let leads = |one: &&FittingProfile| one.leads_to.contains(&offer.name);
        let standings = self.fitting.iter().filter(leads);
        let standings = standings.map(|one| rank::availability_of(&one.offer, one.fit.count));
        let why = match standings.min() {
            Some(soonest) if soonest <= own => return None,
            Some(_) => "no profile has it as soon".to_owned(),
            None if self.reached.contains(&offer.name) => {
                "no profile that fits has it; what does not fit says why".to_owned()
            }
            None => format!("no profile offers it: {}", create_command(&offer)),
        };
        offer.no_profile_reason = Some(why);
        Some((offer, fit))
    }
}

/// Returns the command that creates a profile for an offer.
fn create_command(offer: &Offer) -> String {
    let resource = offer.resource.as_ref();
    let resource = resource.filter(|_| offer.shape != Shape::Whole);
    let resource = resource.map(|name| format!(" --resource {name}"));
    format!(
        "octavo profiles create --type {}{}",
        offer.type_name,
        resource.unwrap_or_default()
    )
}

impl Verdict {
    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FitsNow => "fits-now",
            Self::NothingFree => "nothing-free",
            Self::NothingFits => "nothing-fits",
        }
    }
}

impl OfferAvailability {
    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::AfterChange => "could-become",
            Self::Unknown => "unknown",
            Self::Taken => "taken",
        }
    }
}

#[cfg(test)]
mod tests;
