//! Opaque configuration of claims, in the format of NVIDIA's driver.
//!
//! Octavo accepts what it can do: containers that share a claim time-slice the GPU, with the time slice of the driver.
//! Source: kubernetes-sigs/dra-driver-nvidia-gpu, `api/nvidia.com/resource/v1beta1`.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// Driver whose configuration is accepted in addition to our own.
pub const NVIDIA_DRIVER: &str = "gpu.nvidia.com";

/// Part of a configuration that Octavo does not support.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
pub struct ConfigError {
    place: String,
    reason: String,
}

/// `GpuConfig` or `MigDeviceConfig`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeviceConfig {
    #[serde(rename = "apiVersion")]
    _version: ConfigVersion,
    #[serde(rename = "kind")]
    _kind: ConfigKind,
    sharing: Option<Sharing>,
}

#[derive(Debug, Deserialize)]
enum ConfigVersion {
    #[serde(rename = "resource.nvidia.com/v1beta1")]
    V1Beta1,
}

#[derive(Debug, Deserialize)]
enum ConfigKind {
    GpuConfig,
    MigDeviceConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sharing {
    #[serde(rename = "strategy")]
    _strategy: SharingStrategy,
    time_slicing_config: Option<TimeSlicingConfig>,
}

#[derive(Debug, Deserialize)]
enum SharingStrategy {
    TimeSlicing,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TimeSlicingConfig {
    interval: Option<Interval>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
enum Interval {
    Default,
    Short,
    Medium,
    Long,
}

/// Checks the parameters of the configuration at `index` in the allocation of a claim.
pub fn check_config(index: usize, parameters: &Value) -> Result<(), ConfigError> {
    let error = |path: &str, reason: String| {
        let path = if path == "." { String::new() } else { format!(".{path}") };
        ConfigError { place: format!("config[{index}].opaque.parameters{path}"), reason }
    };
    let config: DeviceConfig = serde_path_to_error::deserialize(parameters)
        .map_err(|source| error(&source.path().to_string(), source.inner().to_string()))?;
    let slicing = config.sharing.and_then(|sharing| sharing.time_slicing_config);
    match slicing.and_then(|slicing| slicing.interval) {
        None | Some(Interval::Default) => Ok(()),
        Some(Interval::Short | Interval::Medium | Interval::Long) => {
            let reason = "Octavo does not set the time slice for claims; use `Default`";
            Err(error("sharing.timeSlicingConfig.interval", reason.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(kind: &str, sharing: &Value) -> Result<(), String> {
        let version = "resource.nvidia.com/v1beta1";
        let config = json!({"apiVersion": version, "kind": kind, "sharing": sharing});
        check_config(1, &config).map_err(|error| error.to_string())
    }

    #[test]
    fn time_slicing_with_the_slice_of_the_driver_is_accepted() {
        for kind in ["GpuConfig", "MigDeviceConfig"] {
            assert_eq!(checked(kind, &json!({"strategy": "TimeSlicing"})), Ok(()));
            assert_eq!(checked(kind, &Value::Null), Ok(()));
        }
        for slicing in [json!({}), json!({"interval": "Default"})] {
            let sharing = json!({"strategy": "TimeSlicing", "timeSlicingConfig": slicing});
            assert_eq!(checked("GpuConfig", &sharing), Ok(()));
        }
    }

    #[test]
    fn i12_unsupported_configuration_is_refused_with_its_place() {
        for (sharing, place) in [
            (json!({"strategy": "MPS"}), ".sharing.strategy: unknown variant `MPS`"),
            (
                json!({"strategy": "TimeSlicing", "mpsConfig": {}}),
                ".sharing.mpsConfig: unknown field `mpsConfig`",
            ),
            (
                json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
                ".sharing.timeSlicingConfig.interval: Octavo does not set the time slice",
            ),
            (json!({}), ".sharing: missing field `strategy`"),
            (json!([]), ".sharing"),
        ] {
            let refused = checked("GpuConfig", &sharing).unwrap_err();
            let expected = format!("config[1].opaque.parameters{place}");
            assert!(refused.starts_with(&expected), "{refused}");
        }
        let refused = checked("VfioDeviceConfig", &Value::Null).unwrap_err();
        assert!(refused.starts_with("config[1].opaque.parameters.kind: "), "{refused}");
        let refused = check_config(0, &json!({"kind": "GpuConfig"})).unwrap_err().to_string();
        assert_eq!(refused, "config[0].opaque.parameters: missing field `apiVersion`");
    }
}
