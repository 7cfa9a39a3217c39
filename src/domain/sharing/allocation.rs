//! Which of what is free a container should have. It is kubelet's to choose; this is our advice, and it can always be given.

use std::collections::BTreeSet;

use super::offer::Offer;
use super::resource::ShareId;
use crate::domain::inventory::Inventory;

/// What kubelet asks advice for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// What it may choose among.
    pub available: Vec<ShareId>,
    /// What has to be among what is chosen; a part of `available`.
    pub must_include: Vec<ShareId>,
    /// How many.
    pub size: usize,
}

/// How replicas are laid over units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Each goes to the unit that has most left.
    #[default]
    Spread,
    /// Each goes to the unit that has least left.
    Pack,
}

/// The advice: at most `size` of what is available, each once, with all that has to be among it.
pub fn prefer(
    question: &Question,
    _policy: Policy,
    _offer: &Offer,
    _inventory: &Inventory,
) -> Vec<ShareId> {
    let free: BTreeSet<&ShareId> = question.available.iter().collect();
    let mut chosen = question.must_include.clone();
    for id in free {
        if chosen.len() >= question.size {
            break;
        }
        if !chosen.contains(id) {
            chosen.push(id.clone());
        }
    }
    chosen
}
