//! What a profile name that a person wrote means on one device.

use crate::domain::catalog::GpuInstanceProfile;
use crate::domain::inventory::{Inventory, MigState};
use crate::domain::layout::error::DeviceRef;
use crate::domain::profile::ProfileName;

/// A profile that a name means.
pub(super) struct Found<'a> {
    pub(super) profile: &'a GpuInstanceProfile,
    /// Whether the device spells it so.
    pub(super) exact: bool,
}

/// Why a name means no profile.
pub(super) enum Missing {
    /// Several profiles have exactly this name; their ids.
    SameName(Vec<u32>),
    /// It is not quite any of these.
    Ambiguous(Vec<String>),
    /// It is none of these, the nearest first.
    Unknown(Vec<String>),
}

/// The profile of a GPU instance that `asked` means on this device, whatever its compute part. Of several profiles with exactly that
/// name, it is the one that the device has instances of.
pub(super) fn look_up<'a>(state: &'a MigState, asked: &ProfileName) -> Result<Found<'a>, Missing> {
    let catalog = &state.catalog;
    let whole = asked.gpu_instance();
    for (exact, is_meant) in [
        (true, is_same as fn(&ProfileName, &ProfileName) -> bool),
        (false, is_nearly),
    ] {
        let all = catalog.profiles().iter();
        let meant: Vec<_> = all
            .filter(|profile| is_meant(&whole, &profile.name))
            .collect();
        match meant.as_slice() {
            [] => {}
            [profile] => return Ok(Found { profile, exact }),
            several if exact => {
                let has = |profile: &&&GpuInstanceProfile| {
                    let mut instances = state.gpu_instances.iter();
                    instances.any(|instance| instance.profile_id == profile.id)
                };
                let used: Vec<_> = several.iter().filter(has).collect();
                return match used.as_slice() {
                    [profile] => Ok(Found { profile, exact }),
                    [] | [_, _, ..] => Err(Missing::SameName(
                        several.iter().map(|profile| profile.id).collect(),
                    )),
                };
            }
            several => return Err(Missing::Ambiguous(names(several))),
        }
    }
    let mut offers: Vec<_> = catalog.profiles().iter().collect();
    offers.sort_by_key(|profile| distance(&whole, &profile.name));
    Err(Missing::Unknown(names(&offers)))
}

/// How the device spells what was asked for, compute part and all.
pub(super) fn own_spelling(profile: &GpuInstanceProfile, asked: &ProfileName) -> String {
    let compute = u32::from(asked.compute_slices());
    let own = profile.name.with_compute_slices(compute);
    own.unwrap_or_else(|| profile.name.clone()).to_string()
}

/// The devices of the node that offer a profile of exactly this name.
pub(super) fn elsewhere(inventory: &Inventory, asked: &ProfileName) -> Vec<DeviceRef> {
    let whole = asked.gpu_instance();
    let offering = inventory.devices.iter().filter(|device| {
        device.mig.state().is_some_and(|state| {
            let mut profiles = state.catalog.profiles().iter();
            profiles.any(|profile| profile.name == whole)
        })
    });
    offering.map(DeviceRef::of).collect()
}

fn is_same(asked: &ProfileName, own: &ProfileName) -> bool {
    asked == own
}

/// Whether the names differ only by how a driver rounds memory: by one gigabyte that is no tenth of it, or by a fiftieth.
/// The figure is computed from what the driver reports, which drifts: NVIDIA/mig-parted issue 31 (3g.39gb for 3g.40gb).
/// A gigabyte alone is too much for small profiles: 1g.5gb is A100's and 1g.6gb is A30's.
fn is_nearly(asked: &ProfileName, own: &ProfileName) -> bool {
    let off = u32::from(asked.memory_gb().abs_diff(own.memory_gb()));
    let memory = u32::from(own.memory_gb());
    let rounded =
        (off <= 1 && off.saturating_mul(10) <= memory) || off.saturating_mul(50) <= memory;
    asked.gpu_slices() == own.gpu_slices() && asked.same_attributes(own) && rounded
}

/// How far a name is from another: other slices weigh more than other engines, and these more than other memory.
fn distance(asked: &ProfileName, own: &ProfileName) -> (u8, bool, u16) {
    (
        asked.gpu_slices().abs_diff(own.gpu_slices()),
        !asked.same_attributes(own),
        asked.memory_gb().abs_diff(own.memory_gb()),
    )
}

fn names(profiles: &[&GpuInstanceProfile]) -> Vec<String> {
    let names = profiles.iter();
    names.map(|profile| profile.name.to_string()).collect()
}
