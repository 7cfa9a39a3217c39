//! Generates layouts for the devices of a node, named as in mig-parted's `generate-config`.

use std::collections::BTreeMap;

use octavo_model::catalog::ProfileCatalog;
use octavo_model::id::{PciAddress, TypeName};
use octavo_model::inventory::{Device, Identity, Inventory};

use super::{
    Criteria, DeviceFilter, Dialect, Layout, Layouts, MigSpec, ProfileCount, Rule, Selector, limits,
};

/// Grouping key of devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum DeviceKind {
    Type(TypeName),
    Ids(u16, u16),
    /// The type is unknown: the device forms its own group.
    Single(PciAddress),
}

/// A selector and the profiles that its devices offer.
type KindOffer<'a> = (Selector, &'a ProfileCatalog);

/// Generates layouts for the partitionable devices: MIG mode disabled on all, enabled on all, each profile at its
/// maximum count, and a balanced one. Empty if no device can be partitioned. Source of the names: NVIDIA mig-parted
/// v0.15.0, `generate-config`.
pub fn generate(inventory: &Inventory, dialect: Dialect) -> Layouts {
    let offers = offers(inventory, dialect);
    let mut layouts = Vec::new();
    if !offers.is_empty() {
        layouts.push(Layout::generated(
            "all-disabled",
            vec![Rule::generated(Selector::All, MigSpec::Disabled)],
        ));
        let empty = MigSpec::Enabled(Vec::new());
        layouts.push(Layout::generated("all-enabled", vec![Rule::generated(Selector::All, empty)]));
        layouts.extend(uniform_layouts(&offers));
        let balanced: Vec<Rule> = offers.iter().filter_map(balanced_rule).collect();
        if !balanced.is_empty() {
            layouts.push(Layout::generated("all-balanced", balanced));
        }
    }
    Layouts { dialect, layouts }
}

/// Returns one offer per kind of device, with [`Selector::All`] if there is only one kind.
fn offers(inventory: &Inventory, dialect: Dialect) -> Vec<KindOffer<'_>> {
    let mut kinds: BTreeMap<DeviceKind, &ProfileCatalog> = BTreeMap::new();
    for device in &inventory.devices {
        if let Some(state) = device.mig.state() {
            let known = kinds.entry(kind(device, dialect)).or_insert(&state.catalog);
            // A driver that reports no profiles while MIG mode is off may report them for the next device.
            if known.profiles().is_empty() {
                *known = &state.catalog;
            }
        }
    }
    let one = kinds.len() == 1;
    let offers = kinds.into_iter().map(|(kind, catalog)| {
        let selector = if one { Selector::All } else { selector(kind) };
        (selector, catalog)
    });
    offers.collect()
}

fn kind(device: &Device, dialect: Dialect) -> DeviceKind {
    match (dialect, &device.identity) {
        (Dialect::MigParted, _) => DeviceKind::Ids(device.pci_ids.device, device.pci_ids.vendor),
        (
            Dialect::Octavo | Dialect::DevicePlugin,
            Identity::Known { type_name, .. } | Identity::Manual { type_name, .. },
        ) => DeviceKind::Type(type_name.clone()),
        (Dialect::Octavo | Dialect::DevicePlugin, Identity::Unknown) => {
            DeviceKind::Single(device.pci)
        }
    }
}

fn selector(kind: DeviceKind) -> Selector {
    let criteria = match kind {
        DeviceKind::Type(type_name) => Criteria {
            type_name: Some(vec![type_name]),
            // A device of the type that does not respond becomes a warning instead of an error.
            mig_capable: Some(true),
            ..Criteria::default()
        },
        DeviceKind::Ids(device, vendor) => Criteria {
            device_filter: Some(vec![DeviceFilter { device, vendor, subsystem: None }]),
            ..Criteria::default()
        },
        DeviceKind::Single(pci) => Criteria { pci: Some(vec![pci]), ..Criteria::default() },
    };
    Selector::Matching(criteria)
}

/// Returns a layout for each offered profile, at its maximum count.
fn uniform_layouts(offers: &[KindOffer<'_>]) -> Vec<Layout> {
    let mut layouts: Vec<Layout> = Vec::new();
    for (selector, catalog) in offers {
        for profile in catalog.profiles() {
            let count = limits::max_instances(catalog, profile);
            if count == 0 {
                continue;
            }
            let spec = MigSpec::Enabled(vec![ProfileCount::generated(profile.name.clone(), count)]);
            let rule = Rule::generated(selector.clone(), spec);
            let name = format!("all-{}", profile.name.to_string().replace('+', "."));
            match layouts.iter_mut().find(|known| known.name == name) {
                // Two profiles with the same name, which a layout cannot distinguish, produce one rule.
                Some(known) if known.rules.contains(&rule) => {}
                Some(known) => known.rules.push(rule),
                None => layouts.push(Layout::generated(&name, vec![rule])),
            }
        }
    }
    layouts
}

/// Returns the balanced rule: two instances of one slice, one of two and, on boards with seven slices, one of three.
/// Uses the plain profile with the least memory for each.
fn balanced_rule((selector, catalog): &KindOffer<'_>) -> Option<Rule> {
    let wanted: &[(u8, u32)] = match limits::gpu_slices(catalog) {
        7 => &[(1, 2), (2, 1), (3, 1)],
        4 => &[(1, 2), (2, 1)],
        _ => return None,
    };
    let counts = wanted.iter().map(|(slices, count)| {
        let all = catalog.profiles().iter();
        let fitting =
            all.filter(|profile| profile.name.is_plain() && profile.name.gpu_slices() == *slices);
        let least = fitting.min_by_key(|profile| profile.memory)?;
        Some(ProfileCount::generated(least.name.clone(), *count))
    });
    let counts = counts.collect::<Option<Vec<ProfileCount>>>()?;
    Some(Rule::generated(selector.clone(), MigSpec::Enabled(counts)))
}
