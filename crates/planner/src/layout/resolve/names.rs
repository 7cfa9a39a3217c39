//! Looks up profile names of a layout in the catalog of a device.

use octavo_model::catalog::GpuInstanceProfile;
use octavo_model::inventory::{Inventory, MigState};
use octavo_model::profile::ProfileName;

use super::split::compute_name;
use crate::layout::error::DeviceRef;

/// A successful lookup.
pub(super) struct ProfileMatch<'a> {
    pub(super) profile: &'a GpuInstanceProfile,
    /// True if the device uses exactly this spelling.
    pub(super) exact: bool,
}

/// Reason why a lookup failed.
pub(super) enum LookupError {
    /// Several profiles have exactly this name; holds their ids.
    SameName(Vec<u32>),
    /// Several profiles nearly match; holds their names.
    Ambiguous(Vec<String>),
    /// No profile matches; holds the offered names, closest match first.
    Unknown(Vec<String>),
}

/// Returns the GPU instance profile that `requested` denotes on this device, ignoring the compute part. If several profiles
/// have exactly that name, returns the only one of them that existing instances use.
pub(super) fn look_up<'a>(
    state: &'a MigState,
    requested: &ProfileName,
) -> Result<ProfileMatch<'a>, LookupError> {
    let catalog = &state.catalog;
    let whole = requested.gpu_instance();
    for (exact, matches_name) in
        [(true, is_same as fn(&ProfileName, &ProfileName) -> bool), (false, is_nearly_equal)]
    {
        let all = catalog.profiles().iter();
        let matches: Vec<_> = all.filter(|profile| matches_name(&whole, &profile.name)).collect();
        match matches.as_slice() {
            [] => {}
            [profile] => return Ok(ProfileMatch { profile, exact }),
            several if exact => {
                let has = |profile: &&&GpuInstanceProfile| {
                    let mut instances = state.gpu_instances.iter();
                    instances.any(|instance| instance.profile_id == profile.id)
                };
                let used: Vec<_> = several.iter().filter(has).collect();
                return match used.as_slice() {
                    [profile] => Ok(ProfileMatch { profile, exact }),
                    [] | [_, _, ..] => Err(LookupError::SameName(
                        several.iter().map(|profile| profile.id).collect(),
                    )),
                };
            }
            several => return Err(LookupError::Ambiguous(names(several))),
        }
    }
    let mut offers: Vec<_> = catalog.profiles().iter().collect();
    offers.sort_by_key(|profile| distance(&whole, &profile.name));
    Err(LookupError::Unknown(names(&offers)))
}

/// Returns `requested`, including its compute part, as the device spells it.
pub(super) fn device_spelling(profile: &GpuInstanceProfile, requested: &ProfileName) -> String {
    compute_name(profile, u32::from(requested.compute_slices()))
}

/// Returns the devices of the node that offer a profile of exactly this name.
pub(super) fn devices_offering(inventory: &Inventory, requested: &ProfileName) -> Vec<DeviceRef> {
    let whole = requested.gpu_instance();
    let offering = inventory.devices.iter().filter(|device| {
        device.mig.state().is_some_and(|state| {
            let mut profiles = state.catalog.profiles().iter();
            profiles.any(|profile| profile.name == whole)
        })
    });
    offering.map(DeviceRef::from_device).collect()
}

fn is_same(requested: &ProfileName, own: &ProfileName) -> bool {
    requested == own
}

/// Returns true if the names differ only by the driver's rounding of memory: by one gigabyte that is at most a tenth of
/// the memory, or by at most a fiftieth. Drivers calculate the number from reported memory, which varies:
/// NVIDIA/mig-parted issue 31 (3g.39gb for 3g.40gb). One gigabyte is too much for small profiles: 1g.5gb is A100's and
/// 1g.6gb is A30's.
fn is_nearly_equal(requested: &ProfileName, own: &ProfileName) -> bool {
    let off = u32::from(requested.memory_gb().abs_diff(own.memory_gb()));
    let memory = u32::from(own.memory_gb());
    let rounded =
        (off <= 1 && off.saturating_mul(10) <= memory) || off.saturating_mul(50) <= memory;
    requested.gpu_slices() == own.gpu_slices() && requested.same_attributes(own) && rounded
}

/// Returns the distance between two names for sorting: slices weigh more than attributes, and attributes more than
/// memory.
fn distance(requested: &ProfileName, own: &ProfileName) -> (u8, bool, u16) {
    (
        requested.gpu_slices().abs_diff(own.gpu_slices()),
        !requested.same_attributes(own),
        requested.memory_gb().abs_diff(own.memory_gb()),
    )
}

fn names(profiles: &[&GpuInstanceProfile]) -> Vec<String> {
    let names = profiles.iter();
    names.map(|profile| profile.name.to_string()).collect()
}
