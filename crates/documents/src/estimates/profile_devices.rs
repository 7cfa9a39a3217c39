//! Derivation of an estimate request from a hardware profile: the devices that one workload of the profile runs on.

use octavo_fleet::accelerator_resource::is_accelerator;
use octavo_fleet::availability::Shape;
use thiserror::Error;

use super::{DevicesJson, MAX_ITEMS};
use crate::hardware_profiles::document::ProfileRow;

/// Why a profile has no estimate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProfileDevicesError {
    /// The profile requests no accelerator.
    #[error("the profile asks for no accelerator")]
    NoAccelerator,
    /// The profile requests several kinds of accelerators.
    #[error("the profile asks for several accelerators: {0}")]
    MultipleAccelerators(String),
    /// The profile requests a partition, a core or a time slice.
    #[error(
        "the profile asks for {0}, which is less than a whole device: only those are estimated"
    )]
    NotWholeDevice(String),
    /// The requested amount is not a number of devices.
    #[error("the profile asks for {0:?} of {1}, which is no count of devices")]
    InvalidCount(String, String),
    /// The profile's accelerator type is unknown.
    #[error("nobody knows of which type the devices of the profile are")]
    UnknownType,
}

/// Devices of each type that `profile` declares or matches: `count` of them, or the profile's default number.
pub fn devices_of_profile(
    profile: &ProfileRow,
    count: Option<u64>,
) -> Result<Vec<DevicesJson>, ProfileDevicesError> {
    let all = profile.identifiers.iter();
    let asked: Vec<_> = all.filter(|one| is_accelerator(&one.identifier)).collect();
    let one = match asked.as_slice() {
        [] => return Err(ProfileDevicesError::NoAccelerator),
        [one] => one,
        several => {
            let names: Vec<&str> = several.iter().map(|one| one.identifier.as_str()).collect();
            return Err(ProfileDevicesError::MultipleAccelerators(names.join(", ")));
        }
    };
    if Shape::from_resource(&one.identifier, None) != Shape::Device {
        return Err(ProfileDevicesError::NotWholeDevice(one.identifier.clone()));
    }
    let usual = || {
        let count = one.default.parse::<u64>().ok().filter(|count| *count > 0);
        count.ok_or_else(|| {
            ProfileDevicesError::InvalidCount(one.default.clone(), one.identifier.clone())
        })
    };
    let count = count.map_or_else(usual, Ok)?;
    if profile.types.is_empty() {
        return Err(ProfileDevicesError::UnknownType);
    }
    let types = profile.types.iter().take(MAX_ITEMS);
    Ok(types
        .map(|type_name| DevicesJson {
            type_name: type_name.clone(),
            count,
        })
        .collect())
}

/// Default number of devices of a workload of `profile`, or `None` if its default is not a valid count and has to be
/// given.
pub fn default_count(profile: &ProfileRow) -> Result<Option<u64>, ProfileDevicesError> {
    match devices_of_profile(profile, None) {
        Err(ProfileDevicesError::InvalidCount(..)) => {
            devices_of_profile(profile, Some(1)).map(|_| None)
        }
        told => told.map(|devices| devices.first().map(|one| one.count)),
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::hardware_profile::{HardwareProfile, Specs};

    use super::*;
    use crate::hardware_profiles::document::IdentifierJson;

    fn profile(identifiers: &[(&str, &str)], types: &[&str]) -> ProfileRow {
        let bare = HardwareProfile::default();
        let mut row = ProfileRow::new(&bare, (None, &[]), |_| Specs::default());
        row.types = types.iter().map(ToString::to_string).collect();
        row.identifiers = identifiers
            .iter()
            .map(|(resource, default)| IdentifierJson {
                display_name: String::new(),
                identifier: (*resource).to_owned(),
                min: "1".to_owned(),
                max: None,
                default: (*default).to_owned(),
            })
            .collect();
        row
    }

    #[test]
    fn whole_device_profile_yields_its_default_count() {
        let asks = [("cpu", "4"), ("nvidia.com/gpu", "2"), ("memory", "8Gi")];
        let row = profile(&asks, &["nvidia-h100-80gb", "nvidia-h200-141gb"]);
        let told = |count| -> Vec<(String, u64)> {
            let all = devices_of_profile(&row, count).unwrap().into_iter();
            all.map(|one| (one.type_name, one.count)).collect()
        };
        let both =
            |count| ["nvidia-h100-80gb", "nvidia-h200-141gb"].map(|name| (name.to_owned(), count));
        assert_eq!(told(None), both(2));
        assert_eq!(told(Some(64)), both(64));
    }

    #[test]
    fn profile_without_default_count_requires_an_explicit_one() {
        let types = ["nvidia-h100-80gb"];
        for (default, told) in [("2", Some(2)), ("0", None), ("500m", None)] {
            let row = profile(&[("nvidia.com/gpu", default)], &types);
            assert_eq!(default_count(&row), Ok(told), "{default}");
            assert_eq!(devices_of_profile(&row, Some(3)).unwrap()[0].count, 3);
        }
        let nowhere = profile(&[("nvidia.com/gpu", "0")], &[]);
        assert_eq!(
            default_count(&nowhere),
            Err(ProfileDevicesError::UnknownType)
        );
    }

    #[test]
    fn unsupported_profiles_are_rejected_with_a_reason() {
        let types = ["nvidia-h100-80gb"];
        for (asks, types, why) in [
            (&[("cpu", "4")][..], &types[..], "asks for no accelerator"),
            (
                &[("nvidia.com/mig-1g.10gb", "1")][..],
                &types[..],
                "less than a whole device",
            ),
            (
                &[("nvidia.com/gpu.shared", "1")][..],
                &types[..],
                "less than a whole device",
            ),
            (
                &[("aws.amazon.com/neuroncore", "1")][..],
                &types[..],
                "less than a whole device",
            ),
            (
                &[("nvidia.com/gpu", "1"), ("amd.com/gpu", "1")][..],
                &types[..],
                "several accelerators: nvidia.com/gpu, amd.com/gpu",
            ),
            (
                &[("nvidia.com/gpu", "many")][..],
                &types[..],
                "\"many\" of nvidia.com/gpu",
            ),
            (
                &[("nvidia.com/gpu", "1")][..],
                &[],
                "nobody knows of which type",
            ),
        ] {
            let error = devices_of_profile(&profile(asks, types), None).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
