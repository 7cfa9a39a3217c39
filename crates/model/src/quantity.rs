//! Quantities with their units, and version numbers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

use crate::id::ParseError;

/// Memory in MiB (2^20 bytes), the unit of NVML's MIG attributes and of `nvidia.com/gpu.memory`.
/// `text::format_memory` formats it for users.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema,
)]
#[serde(transparent)]
pub struct Mebibytes(u64);

impl Mebibytes {
    /// An amount in MiB.
    pub const fn new(mebibytes: u64) -> Self {
        Self(mebibytes)
    }

    /// Converts bytes to whole MiB, rounded down as in NVIDIA's tools.
    pub fn from_bytes(bytes: u64) -> Self {
        Self(bytes >> 20)
    }

    /// The number of MiB.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// A CUDA compute capability, such as 9.0.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr,
)]
pub struct ComputeCapability {
    /// Major number: 8 for Ampere and Ada, 9 for Hopper.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

/// The CUDA version supported by a driver, such as 12.8.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr,
)]
pub struct CudaVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl CudaVersion {
    /// Converts NVML's number, such as 12080 for 12.8. Source: `nvmlSystemGetCudaDriverVersion`.
    pub fn from_nvml(number: u32) -> Self {
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

impl FromStr for ComputeCapability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (major, minor) = two_numbers(text, "a compute capability like \"9.0\"")?;
        Ok(Self { major, minor })
    }
}

impl FromStr for CudaVersion {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (major, minor) = two_numbers(text, "a CUDA version like 12.8")?;
        Ok(Self { major, minor })
    }
}

fn two_numbers(text: &str, expected: &'static str) -> Result<(u32, u32), ParseError> {
    let number = |part: &str| {
        let digits = part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<u32>().ok()).flatten()
    };
    text.split_once('.')
        .and_then(|(major, minor)| Some((number(major)?, number(minor)?)))
        .ok_or_else(|| ParseError::new(text, expected))
}

/// An NVIDIA driver version: `570.133.20`, or `470.82` with two parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct DriverVersion(Arc<str>);

impl DriverVersion {
    /// The whole version.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The branch: `570` of `570.133.20`. Leading zeros are preserved (`01` stays `01`).
    pub fn major(&self) -> &str {
        self.part(0)
    }

    /// `133` of `570.133.20`.
    pub fn minor(&self) -> &str {
        self.part(1)
    }

    /// `20` of `570.133.20`; empty if there are only two parts.
    pub fn revision(&self) -> &str {
        self.part(2)
    }

    fn part(&self, number: usize) -> &str {
        self.0.split('.').nth(number).unwrap_or_default()
    }
}

impl FromStr for DriverVersion {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parts = text.split('.');
        let numeric = parts.all(|part| {
            !part.is_empty() && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_digit())
        });
        if numeric && (2..=3).contains(&text.split('.').count()) {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::new(text, "a driver version like 570.133.20 or 470.82"))
        }
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_versions_have_two_or_three_parts_and_keep_their_zeros() {
        let version: DriverVersion = "525.85.05".parse().unwrap();
        assert_eq!((version.major(), version.minor(), version.revision()), ("525", "85", "05"));
        let short: DriverVersion = "470.82".parse().unwrap();
        assert_eq!((short.minor(), short.revision()), ("82", ""));
        for text in ["", "570", "570.", "570.1.2.3", "r570.1", "570.-1", "9999999999.1"] {
            let error = text.parse::<DriverVersion>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("{text:?} is not a driver version like 570.133.20 or 470.82")
            );
        }
    }

    #[test]
    fn nvml_cuda_number_is_split_as_the_header_specifies() {
        assert_eq!(CudaVersion::from_nvml(12080).to_string(), "12.8");
        assert_eq!(CudaVersion::from_nvml(13000).to_string(), "13.0");
    }

    #[test]
    fn bytes_round_down_to_mebibytes() {
        assert_eq!(Mebibytes::from_bytes((81_559 << 20) + 1_048_575).get(), 81_559);
    }
}
