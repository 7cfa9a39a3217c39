//! Derivation of an estimate request from a hardware profile: the devices that one workload of the profile runs on.

use thiserror::Error;

use super::{DeviceGroup, MAX_ITEMS};
use crate::accelerator_resource::is_accelerator;
use crate::availability::Shape;
use crate::hardware_profile::document::ProfileRow;

/// Why a profile has no estimate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProfileDevicesError {
    /// The profile requests no accelerator.
    #[error("the profile requests no accelerator")]
    NoAccelerator,
    /// The profile requests several kinds of accelerators.
    #[error("the profile requests several accelerators: {0}")]
    MultipleAccelerators(String),
    /// The profile requests a partition, a core or a time slice.
    #[error(
        "the profile requests {0}, which is less than a whole device; only whole devices are estimated"
    )]
    NotWholeDevice(String),
    /// The requested amount is not a number of devices.
    #[error("the profile requests {0:?} of {1}, which is not a number of devices")]
    InvalidCount(String, String),
    /// The profile's accelerator type is unknown.
    #[error("the type of the profile's devices is unknown")]
    UnknownType,
}

/// Devices of each type that `profile` declares or matches: `count` of them, or the profile's default number.
pub fn devices_of_profile(
    profile: &ProfileRow,
    count: Option<u32>,
) -> Result<Vec<DeviceGroup>, ProfileDevicesError> {
    let all = profile.identifiers.iter();
    let accelerators: Vec<_> = all.filter(|one| is_accelerator(&one.resource)).collect();
    let one = match accelerators.as_slice() {
        [] => return Err(ProfileDevicesError::NoAccelerator),
        [one] => one,
        several => {
            let names: Vec<&str> = several.iter().map(|one| one.resource.as_str()).collect();
            return Err(ProfileDevicesError::MultipleAccelerators(names.join(", ")));
        }
    };
    if Shape::from_resource(&one.resource, None) != Shape::Device {
        return Err(ProfileDevicesError::NotWholeDevice(one.resource.clone()));
    }
    let usual = || {
        let count = one.default.text.parse::<u32>().ok().filter(|count| *count > 0);
        count.ok_or_else(|| {
            ProfileDevicesError::InvalidCount(one.default.text.clone(), one.resource.clone())
        })
    };
    let count = count.map_or_else(usual, Ok)?;
    if profile.types.is_empty() {
        return Err(ProfileDevicesError::UnknownType);
    }
    let types = profile.types.iter().take(MAX_ITEMS);
    Ok(types.map(|type_name| DeviceGroup { type_name: type_name.clone(), count }).collect())
}

/// Default number of devices of a workload of `profile`, or `None` if its default is not a valid count and has to be
/// given.
pub fn default_count(profile: &ProfileRow) -> Result<Option<u32>, ProfileDevicesError> {
    match devices_of_profile(profile, None) {
        Err(ProfileDevicesError::InvalidCount(..)) => {
            devices_of_profile(profile, Some(1)).map(|_| None)
        }
        known => known.map(|devices| devices.first().map(|one| one.count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware_profile::{Count, HardwareProfile, Identifier, Specs};

    fn profile(identifiers: &[(&str, &str)], types: &[&str]) -> ProfileRow {
        let bare = HardwareProfile::default();
        let mut row = ProfileRow::new(&bare, (None, &[]), |_| Specs::default());
        row.types = types.iter().map(|name| name.parse().unwrap()).collect();
        row.identifiers = identifiers
            .iter()
            .map(|(resource, default)| Identifier {
                display_name: String::new(),
                resource: (*resource).to_owned(),
                min: Count::whole(1),
                max: None,
                default: Count::from((*default).to_owned()),
                resource_type: None,
            })
            .collect();
        row
    }

    #[test]
    fn whole_device_profile_yields_its_default_count() {
        let asks = [("cpu", "4"), ("nvidia.com/gpu", "2"), ("memory", "8Gi")];
        let row = profile(&asks, &["nvidia-h100-80gb", "nvidia-h200-141gb"]);
        let devices_of = |count| -> Vec<(String, u32)> {
            let all = devices_of_profile(&row, count).unwrap().into_iter();
            all.map(|one| (one.type_name.to_string(), one.count)).collect()
        };
        let both =
            |count| ["nvidia-h100-80gb", "nvidia-h200-141gb"].map(|name| (name.to_owned(), count));
        assert_eq!(devices_of(None), both(2));
        assert_eq!(devices_of(Some(64)), both(64));
    }

    #[test]
    fn profile_without_default_count_requires_an_explicit_one() {
        let types = ["nvidia-h100-80gb"];
        for (default, count) in [("2", Some(2)), ("0", None), ("500m", None)] {
            let row = profile(&[("nvidia.com/gpu", default)], &types);
            assert_eq!(default_count(&row), Ok(count), "{default}");
            assert_eq!(devices_of_profile(&row, Some(3)).unwrap()[0].count, 3);
        }
        let nowhere = profile(&[("nvidia.com/gpu", "0")], &[]);
        assert_eq!(default_count(&nowhere), Err(ProfileDevicesError::UnknownType));
    }

    #[test]
    fn unsupported_profiles_are_rejected_with_a_reason() {
        let types = ["nvidia-h100-80gb"];
        for (asks, types, why) in [
            (&[("cpu", "4")][..], &types[..], "requests no accelerator"),
            (&[("nvidia.com/mig-1g.10gb", "1")][..], &types[..], "less than a whole device"),
            (&[("nvidia.com/gpu.shared", "1")][..], &types[..], "less than a whole device"),
            (&[("aws.amazon.com/neuroncore", "1")][..], &types[..], "less than a whole device"),
            (
                &[("nvidia.com/gpu", "1"), ("amd.com/gpu", "1")][..],
                &types[..],
                "several accelerators: nvidia.com/gpu, amd.com/gpu",
            ),
            (&[("nvidia.com/gpu", "many")][..], &types[..], "\"many\" of nvidia.com/gpu"),
            (&[("nvidia.com/gpu", "1")][..], &[], "the type of the profile's devices is unknown"),
        ] {
            let error = devices_of_profile(&profile(asks, types), None).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
