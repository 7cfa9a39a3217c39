//! The layouts that suit the devices of a node, under the names that mig-parted's `generate-config` gives them.

use std::collections::BTreeMap;

use super::{
    Criteria, DeviceFilter, Dialect, Layout, Layouts, MigWish, Place, ProfileCount, Rule, Selector,
    limits,
};
use crate::domain::catalog::ProfileCatalog;
use crate::domain::id::{PciAddress, TypeName};
use crate::domain::inventory::{Device, Identity, Inventory};
use crate::domain::profile::ProfileName;

/// What makes devices of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Type(TypeName),
    Ids(u16, u16),
    /// Nobody knows its type: it is a kind of its own.
    One(PciAddress),
}

/// A selector and what its devices offer.
type Offer<'a> = (Selector, &'a ProfileCatalog);

/// Layouts for the devices that can be partitioned: none and all in MIG mode, each profile as often as it fits, and a
/// balanced one. None at all where no device can be. Source of the names: NVIDIA mig-parted v0.15.0, `generate-config`.
pub fn generate(inventory: &Inventory, dialect: Dialect) -> Layouts {
    let offers = offers(inventory, dialect);
    let mut layouts = Vec::new();
    if !offers.is_empty() {
        layouts.push(layout(
            "all-disabled",
            vec![rule(Selector::All, MigWish::Disabled)],
        ));
        let empty = MigWish::Enabled(Vec::new());
        layouts.push(layout("all-enabled", vec![rule(Selector::All, empty)]));
        layouts.extend(uniform(&offers));
        let balanced: Vec<Rule> = offers.iter().filter_map(balanced).collect();
        if !balanced.is_empty() {
            layouts.push(layout("all-balanced", balanced));
        }
    }
    Layouts { dialect, layouts }
}

/// One for each kind of device; all of them where there is one kind.
fn offers(inventory: &Inventory, dialect: Dialect) -> Vec<Offer<'_>> {
    let mut kinds: BTreeMap<Kind, &ProfileCatalog> = BTreeMap::new();
    for device in &inventory.devices {
        if let Some(state) = device.mig.state() {
            let known = kinds.entry(kind(device, dialect)).or_insert(&state.catalog);
            // A driver that tells no profiles while MIG mode is off may tell them of the next device.
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

fn kind(device: &Device, dialect: Dialect) -> Kind {
    match (dialect, &device.identity) {
        (Dialect::MigParted, _) => Kind::Ids(device.pci_ids.device, device.pci_ids.vendor),
        (
            Dialect::Octavo | Dialect::DevicePlugin,
            Identity::Known { type_name, .. } | Identity::ByHand { type_name, .. },
        ) => Kind::Type(type_name.clone()),
        (Dialect::Octavo | Dialect::DevicePlugin, Identity::Unknown) => Kind::One(device.pci),
    }
}

fn selector(kind: Kind) -> Selector {
    let criteria = match kind {
        Kind::Type(type_name) => Criteria {
            type_name: Some(vec![type_name]),
            // A device of the type that does not answer is left out and told of, and is no error.
            mig_capable: Some(true),
            ..Criteria::default()
        },
        Kind::Ids(device, vendor) => Criteria {
            device_filter: Some(vec![DeviceFilter {
                device,
                vendor,
                subsystem: None,
            }]),
            ..Criteria::default()
        },
        Kind::One(pci) => Criteria {
            pci: Some(vec![pci]),
            ..Criteria::default()
        },
    };
    Selector::Matching(criteria)
}

/// For each profile that a device offers a layout of as many as fit.
fn uniform(offers: &[Offer<'_>]) -> Vec<Layout> {
    let mut layouts: Vec<Layout> = Vec::new();
    for (selector, catalog) in offers {
        for profile in catalog.profiles() {
            let count = limits::most(catalog, profile);
            if count == 0 {
                continue;
            }
            let wish = MigWish::Enabled(vec![counted(&profile.name, count)]);
            let rule = rule(selector.clone(), wish);
            let name = format!("all-{}", profile.name.to_string().replace('+', "."));
            match layouts.iter_mut().find(|known| known.name == name) {
                // Two profiles of one name, which no layout can tell apart, make one rule.
                Some(known) if known.rules.contains(&rule) => {}
                Some(known) => known.rules.push(rule),
                None => layouts.push(layout(&name, vec![rule])),
            }
        }
    }
    layouts
}

/// Two of one slice, one of two and, on boards of seven slices, one of three: of each the plain one with the least memory.
fn balanced((selector, catalog): &Offer<'_>) -> Option<Rule> {
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
        Some(counted(&least.name, *count))
    });
    let counts = counts.collect::<Option<Vec<ProfileCount>>>()?;
    Some(rule(selector.clone(), MigWish::Enabled(counts)))
}

fn counted(name: &ProfileName, count: u32) -> ProfileCount {
    ProfileCount {
        place: Place::default(),
        profile: name.clone(),
        count,
    }
}

fn rule(devices: Selector, mig: MigWish) -> Rule {
    Rule {
        place: Place::default(),
        devices,
        mig: Some(mig),
        time_slicing: None,
    }
}

fn layout(name: &str, rules: Vec<Rule>) -> Layout {
    Layout {
        name: name.to_owned(),
        place: Place::default(),
        rules,
    }
}
