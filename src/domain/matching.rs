//! Which of what there is suits a request, in which order, and why not the rest.
//!
//! Called by the aggregator with offers made of the fleet. It is pure and knows no fleet of its own, so that offers can come
//! from anywhere: agents' summaries, a cluster's resources, profiles that an administrator wrote. The answer depends on the
//! request and on the offers alone, and not on the order in which they are given.
//!
//! ```text
//! request.rs        what is asked for
//! offer.rs          what there is
//! architectures.rs  which chip family is newer, where that can be said
//! fit.rs            one offer against the request: it fits, or it does not and why
//! rank.rs           the order of those that fit, and their warnings
//! ```

mod architectures;
mod fit;
mod offer;
mod rank;
mod request;

pub use self::architectures::{Generation, generation};
pub use self::offer::{Change, Free, Link, Offer, Shape, Traits};
pub use self::request::{Bytes, Interconnect, Isolation, Request, RequestError, type_named};
use crate::domain::price::Amount;

/// Most offers of one answer; a fleet has a few dozens, and who invents types shall not make an answer long.
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

/// The answer to `request` from `offers`.
pub fn answer(request: &Request, offers: Vec<Offer>) -> Answer {
    let mut offers = offers;
    offers.sort_by(|one, other| one.name.cmp(&other.name));
    offers.dedup_by(|one, other| one.name == other.name);
    offers.truncate(MOST_OFFERS);
    let mut fitting = Vec::new();
    let mut refused = Vec::new();
    let hopes = fit::best_memory(&offers);
    for offer in offers {
        match fit::judge(request, &offer) {
            Ok(fit) => fitting.push((offer, fit)),
            Err(why) => refused.push((offer, why)),
        }
    }
    let matches = rank::ranked(request, fitting, &refused);
    let verdict = match matches.iter().map(|one| one.standing).min() {
        Some(Standing::Free) => Verdict::FitsNow,
        Some(Standing::CouldBecome | Standing::Unknown | Standing::Taken) => Verdict::NothingFree,
        None => Verdict::NothingFits,
    };
    let summary = rank::summary(request, &matches, &refused, hopes.as_ref());
    let told = |(offer, why): (Offer, Vec<fit::Why>)| Refusal {
        name: offer.name,
        why: why.iter().map(ToString::to_string).collect(),
    };
    Answer {
        verdict,
        summary,
        matches,
        refused: refused.into_iter().map(told).collect(),
    }
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
