//! Which of what there is suits a request, in which order, and why not the rest.
//!
//! Called by the aggregator with offers made of the fleet. It is pure and knows no fleet of its own, so that offers can come
//! from anywhere: agents' summaries, a cluster's resources, profiles that an administrator wrote. The answer depends on the
//! request and on the offers alone, and not on the order in which they are given.
//!
//! ```text
//! request.rs        what is asked for
//! offer.rs          what there is
//! through.rs        hardware profiles as ways to it
//! speed.rs          how fast a model was measured to be on what
//! architectures.rs  which chip family is newer, where that can be said
//! fit.rs            one offer against the request: it fits, or it does not and why
//! rank.rs           the order of those that fit, and their warnings
//! ```

mod architectures;
mod fit;
mod offer;
mod rank;
mod request;
mod speed;
mod through;

use std::collections::BTreeSet;

pub use self::architectures::{Generation, generation};
use self::fit::{Fit, Why};
pub use self::offer::{Change, Free, Link, Offer, Picked, Shape, Traits};
pub use self::request::{Bytes, Interconnect, Isolation, Request, RequestError, type_named};
pub use self::speed::{Measured, Speed, Speeds};
use self::through::Fitting;
pub use self::through::Through;
use crate::domain::price::Amount;

/// Most offers of one answer, and most profiles; a fleet has a few dozens, and who invents types shall not make an answer long.
pub const MOST_OFFERS: usize = 2000;

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What it comes to.
    pub verdict: Verdict,
    /// The same in words.
    pub summary: String,
    /// What fits, the best first.
    pub matches: Vec<Match>,
    /// What does not, by name.
    pub refused: Vec<Refusal>,
}

/// What an answer comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Something fits and is free.
    FitsNow,
    /// Something fits, and none of it is known to be free.
    NothingFree,
    /// Nothing fits.
    NothingFits,
}

/// How soon an offer could be had; the first is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Now.
    Free,
    /// After a change that disturbs nobody.
    CouldBecome,
    /// Nobody says what is free.
    Unknown,
    /// When somebody lets go.
    Taken,
}

/// An offer that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The offer.
    pub offer: Offer,
    /// 1 is the best.
    pub rank: usize,
    /// Units that a pod asks for.
    pub count: u32,
    /// How soon.
    pub standing: Standing,
    /// How fast it was measured to be, where a row says so.
    pub speed: Option<Speed>,
    /// All units together for an hour, where there is a price.
    pub per_hour: Option<Amount>,
    /// Why it fits, in words.
    pub reasons: Vec<String>,
    /// What to know before it is taken, in words.
    pub warnings: Vec<String>,
}

/// An offer that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its name.
    pub name: String,
    /// All that speaks against it, in words; never empty.
    pub why: Vec<String>,
}

/// The answer to `request` from what nodes have as such.
pub fn answer(request: &Request, offers: Vec<Offer>) -> Answer {
    of(request, sorted(offers), Picking::default())
}

/// The answer to `request` where people pick `profiles`: those come first, and what nodes have as such only where no profile that fits
/// has it, or none of it that could be had as soon.
pub fn answer_by_profiles(request: &Request, offers: Vec<Offer>, profiles: Vec<Through>) -> Answer {
    let mut profiles = profiles;
    profiles.sort_by(|one, other| one.name.cmp(&other.name));
    profiles.dedup_by(|one, other| one.name == other.name);
    profiles.truncate(MOST_OFFERS);
    let mut picking = Picking {
        is_asked: true,
        ..Picking::default()
    };
    for profile in profiles {
        picking.reached.append(&mut through::leads_to(&profile));
        match through::judge(request, profile) {
            Ok(fitting) => picking.fitting.push(fitting),
            Err(refusal) => picking.refused.push(refusal),
        }
    }
    of(request, sorted(offers), picking)
}

/// What profiles come to.
#[derive(Default)]
struct Picking {
    is_asked: bool,
    fitting: Vec<Fitting>,
    refused: Vec<Refusal>,
    /// Names of all that any profile leads to.
    reached: BTreeSet<String>,
}

fn sorted(mut offers: Vec<Offer>) -> Vec<Offer> {
    offers.sort_by(|one, other| one.name.cmp(&other.name));
    offers.dedup_by(|one, other| one.name == other.name);
    offers.truncate(MOST_OFFERS);
    offers
}

fn of(request: &Request, offers: Vec<Offer>, picking: Picking) -> Answer {
    let hopes = fit::best_memory(&offers);
    let mut fitting: Vec<(Offer, Fit)> = Vec::new();
    let mut refused: Vec<(Offer, Vec<Why>)> = Vec::new();
    for offer in offers {
        match fit::judge(request, &offer, 1) {
            Ok(fit) => fitting.extend(picking.alone(offer, fit)),
            Err(why) => refused.push((offer, why)),
        }
    }
    let through = picking.fitting.into_iter();
    fitting.extend(through.map(|one| (one.offer, one.fit)));
    let matches = rank::ranked(request, fitting, &refused);
    let verdict = match matches.first().map(|best| best.standing) {
        Some(Standing::Free) => Verdict::FitsNow,
        Some(Standing::CouldBecome | Standing::Unknown | Standing::Taken) => Verdict::NothingFree,
        None => Verdict::NothingFits,
    };
    let summary = rank::summary(request, &matches, &refused, hopes.as_ref());
    // What is wrong with a type that profiles lead to is wrong with each of them, and is said there. A part is no news to who wants
    // whole devices.
    let is_told = |(offer, _): &(Offer, Vec<Why>)| {
        let is_unwanted = offer.shape.is_part() && request.isolation == Isolation::Exclusive;
        !picking.is_asked || !(picking.reached.contains(&offer.name) || is_unwanted)
    };
    let told = |(offer, why): (Offer, Vec<Why>)| Refusal {
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

impl Picking {
    /// What nodes have as such, where that is worth a line of its own.
    fn alone(&self, mut offer: Offer, fit: Fit) -> Option<(Offer, Fit)> {
        if !self.is_asked {
            return Some((offer, fit));
        }
        let own = rank::standing(&offer, fit.count);
        let leads = |one: &&Fitting| one.leads_to.contains(&offer.name);
        let standings = self.fitting.iter().filter(leads);
        let standings = standings.map(|one| rank::standing(&one.offer, one.fit.count));
        let why = match standings.min() {
            Some(soonest) if soonest <= own => return None,
            Some(_) => "no profile has it as soon".to_owned(),
            None if self.reached.contains(&offer.name) => {
                "no profile that fits has it; what does not fit says why".to_owned()
            }
            None => format!("no profile offers it: {}", create(&offer)),
        };
        offer.lacks_profile = Some(why);
        Some((offer, fit))
    }
}

/// The command that makes a profile for an offer.
fn create(offer: &Offer) -> String {
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
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FitsNow => "fits-now",
            Self::NothingFree => "nothing-free",
            Self::NothingFits => "nothing-fits",
        }
    }
}

impl Standing {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::CouldBecome => "could-become",
            Self::Unknown => "unknown",
            Self::Taken => "taken",
        }
    }
}

#[cfg(test)]
mod tests;
