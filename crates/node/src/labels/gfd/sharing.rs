//! NVIDIA's keys about sharing: `product`, `replicas` and `sharing-strategy`.
//!
//! Source: NVIDIA/k8s-device-plugin v0.20.0, `internal/lm/resource.go`. The original reads its configuration, in which
//! all units of a resource have the same number of replicas. Here every unit is looked up, and the number is omitted if
//! units differ.

use std::collections::BTreeSet;

use octavo_model::resource::ResourceName;

use crate::labels::Omission;
use crate::labels::note::LabelsBuilder;
use crate::sharing::Offers;

/// Sharing of the units that one set of keys describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Replicas of each unit; `None` if units differ.
    replicas: Option<u32>,
    is_shared: bool,
    /// True if a shared unit keeps the resource name of an exclusive one.
    keeps_name: bool,
}

impl Sharing {
    /// Units that are not shared.
    pub(super) const EXCLUSIVE: Self =
        Self { replicas: Some(1), is_shared: false, keeps_name: false };

    /// Determines the sharing of the units with these UUIDs, whose resource name is `name` unless renamed.
    pub(super) fn from_offers<'u>(
        offers: Option<&Offers>,
        name: &ResourceName,
        uuids: impl Iterator<Item = &'u str>,
    ) -> Self {
        let Some(offers) = offers else {
            return Self::EXCLUSIVE;
        };
        let mut sharing = Self::EXCLUSIVE;
        let mut counts = BTreeSet::new();
        for uuid in uuids {
            let found = offers.unit(uuid);
            let shared = found.and_then(|(offer, unit)| Some((offer, unit.replicas?)));
            counts.insert(shared.map_or(1, |(_, replicas)| replicas));
            if let Some((offer, _)) = shared {
                sharing.is_shared = true;
                sharing.keeps_name |= offer.name == *name;
            }
        }
        if sharing.is_shared {
            let only = counts.first().filter(|_| counts.len() == 1);
            sharing.replicas = only.copied();
        }
        sharing
    }

    /// Returns the suffix of the product name.
    pub(super) fn suffix(self) -> &'static str {
        if self.keeps_name { "-SHARED" } else { "" }
    }

    /// Adds `replicas` and `sharing-strategy` of a resource.
    pub(super) fn put(self, draft: &mut LabelsBuilder, resource: &str) {
        let key = format!("{resource}.replicas");
        match self.replicas {
            Some(replicas) => draft.put(&key, &replicas),
            None => draft.omit(&key, Omission::DevicesDisagree),
        }
        self.put_strategy(draft, resource);
    }

    /// Adds `sharing-strategy` of a resource.
    pub(super) fn put_strategy(self, draft: &mut LabelsBuilder, resource: &str) {
        let strategy = if self.is_shared { "time-slicing" } else { "none" };
        draft.put(&format!("{resource}.sharing-strategy"), strategy);
    }
}
