//! Matches a request against offers: which ones fit, in which order, and why the others do not.
//!
//! The aggregator calls this with offers built from the fleet. The module is pure and independent of any fleet, so
//! offers can come from any source: agents' summaries, a cluster's resources, or profiles created by an administrator.
//! The answer depends only on the request and the offers, not on their order.
//!
//! ```text
//! request.rs        the request as a document, and validated
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

use octavo_model::API_VERSION;
use octavo_model::id::TypeName;
use octavo_model::reported::Reported;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{AsRefStr, IntoStaticStr};
use utoipa::ToSchema;

pub use self::architectures::{Generation, generation};
use self::fit::Fit;
pub use self::offer::{
    AvailabilityChange, FreeUnits, Link, Offer, ProfileInfo, Shape, ShapeKind, TypeAttributes,
};
use self::profile_offer::FittingProfile;
pub use self::profile_offer::ProfileOffer;
use self::rank::RefusedOffer;
pub use self::request::{Bytes, Interconnect, Isolation, MatchRequest, Request, resolve_type};
pub use self::throughput::{Measurement, Throughput, ThroughputTable};
use crate::price::Price;
pub use crate::request_error::RequestError;

/// Maximum number of offers in an answer, and of profiles. A fleet has a few dozen; the limit guards against invented
/// types.
pub const MAX_OFFERS: usize = 2000;

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchAnswer {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `MatchAnswer`.
    pub kind: String,
    /// Revision of the fleet; set by the caller.
    pub revision: u64,
    /// `fits-now`, `nothing-free` or `nothing-fits`.
    #[schema(value_type = String)]
    pub verdict: Reported<MatchOutcome>,
    /// The result as a sentence.
    pub summary: String,
    /// Source of the free counts, set by the caller: `cluster`, as the scheduler would place pods, or `agents`, as they
    /// see devices without a process.
    #[serde(default)]
    pub free_by: String,
    /// Fitting offers, best first.
    pub matches: Vec<Match>,
    /// Offers that do not fit, by name.
    pub refused: Vec<Refusal>,
    /// Notices about the whole answer, such as that the price book cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Overall result of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatchOutcome {
    /// An offer fits and is free.
    FitsNow,
    /// Offers fit, but none is known to be free.
    NothingFree,
    /// No offer fits.
    NothingFits,
}

/// When an offer is available; smaller is sooner.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    AsRefStr,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum OfferAvailability {
    /// Available now.
    Free,
    /// Available after a change that affects no running workload.
    #[serde(rename = "could-become")]
    #[strum(serialize = "could-become")]
    AfterChange,
    /// The number of free units is unknown.
    Unknown,
    /// Available once units are released.
    Taken,
}

/// An offer that fits.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = MatchRow)]
pub struct Match {
    /// Rank; 1 is the best.
    pub rank: usize,
    /// Namespace and name of a hardware profile; or the type, followed by a slash and the partition's profile or
    /// `shared`.
    pub name: String,
    /// The hardware profile; absent for devices of nodes.
    pub profile: Option<ProfileInfo>,
    /// Accelerator type; the first one of a profile that reaches several.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub type_name: TypeName,
    /// Further types that a pod may get instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub other_types: Vec<TypeName>,
    /// Resource that a pod requests; absent if only agents report the units.
    pub resource: Option<String>,
    /// `whole`, `mig`, `part` or `shared`.
    #[schema(value_type = String)]
    pub shape: Reported<ShapeKind>,
    /// Units that a pod requests.
    pub count: u32,
    /// When it is available: `free`, `could-become`, `unknown` or `taken`.
    #[schema(value_type = String)]
    #[serde(alias = "standing")]
    pub availability: Reported<OfferAvailability>,
    /// Memory of one unit; absent if unknown.
    #[schema(value_type = Option<u64>)]
    pub memory_bytes: Option<Bytes>,
    /// Chip family; absent if unknown.
    pub architecture: Option<String>,
    /// Units on all nodes.
    pub total: u64,
    /// Free units; absent if unknown.
    pub free: Option<FreeUnits>,
    /// Units available after a change that affects no running workload.
    pub could_become: Option<AvailabilityChange>,
    /// Price of all units of the pod; absent if unknown.
    pub cost: Option<Price>,
    /// Measured throughput; absent without a performance row.
    pub tokens_per_second: Option<Throughput>,
    /// Reasons why the offer fits, as text.
    pub reasons: Vec<String>,
    /// Warnings to consider before choosing the offer, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Reason why users who choose profiles cannot get this offer; also part of `warnings`.
    #[serde(skip)]
    no_profile_reason: Option<String>,
}

/// An offer that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RefusalRow)]
pub struct Refusal {
    /// Offer name.
    pub name: String,
    /// All reasons, as text; never empty.
    pub why: Vec<String>,
}

/// Matches `request` against the devices of nodes, without hardware profiles.
pub fn answer(request: &Request, offers: Vec<Offer>) -> MatchAnswer {
    build_answer(request, sorted(offers), ProfileMatches::default())
}

/// Matches `request` where users choose from `profiles`, which come first. Devices of nodes follow only if no fitting
/// profile reaches them, or none makes them available as soon.
pub fn match_profiles(
    request: &Request,
    offers: Vec<Offer>,
    mut profiles: Vec<ProfileOffer>,
) -> MatchAnswer {
    profiles.sort_by(|one, other| one.name.cmp(&other.name));
    profiles.dedup_by(|one, other| one.name == other.name);
    profiles.truncate(MAX_OFFERS);
    let mut picking = ProfileMatches { is_enabled: true, ..ProfileMatches::default() };
    for profile in profiles {
        picking.reached.append(&mut profile_offer::offer_names(&profile));
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

fn build_answer(request: &Request, offers: Vec<Offer>, picking: ProfileMatches) -> MatchAnswer {
    let hopes = fit::largest_memory(&offers);
    let mut fitting: Vec<(Offer, Fit)> = Vec::new();
    let mut refused: Vec<RefusedOffer> = Vec::new();
    for offer in offers {
        match fit::check(request, &offer, 1) {
            Ok(fit) => fitting.extend(picking.unprofiled_match(offer, fit)),
            Err(why) => refused.push((offer, why)),
        }
    }
    let through = picking.fitting.into_iter();
    fitting.extend(through.map(|one| (one.offer, one.fit)));
    let matches = rank::rank(request, fitting, &refused);
    let verdict = match matches.first() {
        Some(best) if best.availability == OfferAvailability::Free => MatchOutcome::FitsNow,
        Some(_) => MatchOutcome::NothingFree,
        None => MatchOutcome::NothingFits,
    };
    let summary = rank::summary(request, &matches, &refused, hopes.as_ref());
    // Problems with a type that profiles reach are reported for each profile. Partitions are not reported to a request
    // for whole devices.
    let is_reported = |(offer, _): &RefusedOffer| {
        let is_unwanted = offer.shape.is_part() && request.isolation == Isolation::Exclusive;
        !picking.is_enabled || !(picking.reached.contains(&offer.name) || is_unwanted)
    };
    let to_refusal = |(offer, why): RefusedOffer| Refusal {
        name: offer.name,
        why: why.iter().map(ToString::to_string).collect(),
    };
    let bare = refused.into_iter().filter(is_reported).map(to_refusal);
    MatchAnswer {
        api_version: API_VERSION.to_owned(),
        kind: "MatchAnswer".to_owned(),
        revision: 0,
        verdict: verdict.into(),
        summary,
        free_by: String::new(),
        matches,
        refused: picking.refused.into_iter().chain(bare).collect(),
        notices: Vec::new(),
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
        let availabilities = self.fitting.iter().filter(leads);
        let availabilities =
            availabilities.map(|one| rank::availability_of(&one.offer, one.fit.count));
        let why = match availabilities.min() {
            Some(soonest) if soonest <= own => return None,
            Some(_) => "no profile makes it available as soon".to_owned(),
            None if self.reached.contains(&offer.name) => {
                "no matching profile offers it; see the reasons of the rejected profiles".to_owned()
            }
            None => format!("no profile offers it: {}", create_command(&offer)),
        };
        offer.no_profile_reason = Some(why);
        Some((offer, fit))
    }
}

/// Returns the command that creates a profile for an offer.
fn create_command(offer: &Offer) -> String {
    let whole = format!("octavo profiles create --type {}", offer.type_name);
    match &offer.resource {
        Some(name) if offer.shape != Shape::Whole => format!("{whole} --resource {name}"),
        Some(_) | None => whole,
    }
}

impl OfferAvailability {
    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests;
