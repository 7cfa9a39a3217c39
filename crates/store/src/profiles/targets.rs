//! Destinations of profiles, for choosing a suitable one.

use std::collections::BTreeSet;

use octavo_fleet::hardware_profile::{
    Finding, FindingSeverity, HardwareProfile, LocalQueues, PlacementTarget, ProfileKey,
    ProfilePlacement, check_profile, placements,
};
use octavo_model::id::TypeName;

use super::ProfileInputs;

/// Profile for accelerators, with its destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileTargets {
    /// Namespace and name.
    pub key: ProfileKey,
    /// Display name.
    pub shown: String,
    /// Types that it declares or selects.
    pub types: Vec<TypeName>,
    /// Its resources, at least one.
    pub targets: Vec<ProfilePlacement>,
    /// Reasons why it cannot be selected, or why its workloads would stay pending.
    pub objections: Vec<String>,
}

impl ProfileInputs {
    /// Collects all profiles for accelerators by namespace and name. If both kinds have an object of the same name, the
    /// current kind is used.
    pub(super) fn led(&self) -> Vec<ProfileTargets> {
        let nothing = LocalQueues::Unknown;
        let queues = self.known.as_ref().map_or(&nothing, |known| &known.queues);
        let mut seen: BTreeSet<&ProfileKey> = BTreeSet::new();
        let profiles = self.profiles().into_iter();
        let profiles = profiles.filter(|profile| seen.insert(&profile.key));
        let all = profiles.filter_map(|profile| {
            let ways = placements(profile, self.snapshot.as_deref());
            (!ways.is_empty()).then(|| ProfileTargets {
                key: profile.key.clone(),
                shown: profile.shown().to_owned(),
                types: profile.types(None),
                objections: objections(profile, &ways, queues),
                targets: ways,
            })
        });
        all.collect()
    }
}

/// Describes errors of the profile itself, and whether it reaches no node.
fn objections(
    profile: &HardwareProfile,
    ways: &[ProfilePlacement],
    queues: &LocalQueues,
) -> Vec<String> {
    let (_, findings) = check_profile(profile, None, queues);
    let is_severe =
        |one: &&Finding| one.severity() == FindingSeverity::Error || **one == Finding::Disabled;
    let found = findings.iter().filter(is_severe).map(ToString::to_string);
    let mut all: Vec<String> = found.collect();
    let is_nowhere = |way: &ProfilePlacement| matches!(&way.to, PlacementTarget::Nodes(places) if places.is_empty());
    if ways.iter().any(is_nowhere) {
        all.push(format!(
            "it matches no node that offers the requested resource; see octavo profiles check {}",
            profile.key.name
        ));
    }
    all
}
