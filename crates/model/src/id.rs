//! Identifiers of devices, partitions, PCI functions, types and SKUs.
//!
//! Each is parsed once where it enters the program; a value of the type is always well formed. A device is identified
//! by its UUID and its PCI address, never by its index: indices and minor numbers shift when a GPU falls off the bus
//! or changes its MIG mode. Clones of an identifier share its text.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;

/// A text that is not a valid identifier or version of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

impl ParseError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// UUID of a whole GPU as printed by NVML: `GPU-<uuid>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct GpuUuid(Arc<str>);

/// UUID of a MIG device: `MIG-<uuid>`, or `MIG-GPU-<uuid>/<gi>/<ci>` before driver R470. Changes at every creation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct MigUuid(Arc<str>);

/// A canonical accelerator type, `vendor-model-memory`, as used by people and selectors: `nvidia-a100-80gb`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct TypeName(Arc<str>);

/// An id in the hardware catalog, finer than a type: `nvidia-a100-sxm4-80gb`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct Sku(Arc<str>);

/// Name of a Kubernetes Node: an RFC 1123 subdomain of at most 253 characters. Source: Kubernetes, "Object Names and
/// IDs".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct NodeName(Arc<str>);

/// A PCI function: domain, bus, device, function.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr,
)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

macro_rules! text_id {
    ($name:ident, $well_formed:path, $expected:literal) => {
        impl $name {
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                if $well_formed(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(ParseError::new(text, $expected))
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

text_id!(GpuUuid, is_gpu_uuid, "a GPU UUID like GPU-<uuid>");
text_id!(MigUuid, is_mig_uuid, "a MIG UUID like MIG-<uuid>");
text_id!(TypeName, is_label_name, "an accelerator type like nvidia-a100-80gb");
text_id!(NodeName, is_subdomain, "a node name: at most 253 lowercase letters, digits, '-' and '.'");
text_id!(Sku, is_label_name, "a SKU like nvidia-a100-sxm4-80gb");

fn is_gpu_uuid(text: &str) -> bool {
    text.strip_prefix("GPU-").is_some_and(is_uuid)
}

fn is_mig_uuid(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("MIG-") else {
        return false;
    };
    if is_uuid(rest) {
        return true;
    }
    let mut parts = rest.split('/');
    parts.next().is_some_and(is_gpu_uuid)
        && parts.next().is_some_and(is_number)
        && parts.next().is_some_and(is_number)
        && parts.next().is_none()
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Checks for 8, 4, 4, 4 and 12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Returns whether the text is valid in both a label key and a label value, in lower case.
pub fn is_label_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && end(bytes.first()) && end(bytes.last()) && bytes.iter().copied().all(inner)
}

/// Returns whether the text consists of labels of lower-case letters, digits and inner hyphens, joined by dots.
pub fn is_subdomain(text: &str) -> bool {
    let end = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inner)
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

impl PciAddress {
    /// Creates an address from its parts; `None` if the device or function is out of PCI's range (32 and 8).
    pub fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        (device < 32 && function < 8).then_some(Self { domain, bus, device, function })
    }

    /// Placeholder address of a device whose driver reports none, derived from the driver's index. Its domain is
    /// `ffffffff`, like the address that NVML returns for devices that are not on the PCI bus.
    pub fn unreported(index: u32) -> Self {
        let [.., device, bus] = index.to_be_bytes();
        Self { domain: u32::MAX, bus, device: device % 32, function: 0 }
    }

    /// Returns whether it is a placeholder for an address that the driver does not report.
    pub fn is_unreported(&self) -> bool {
        self.domain == u32::MAX
    }
}

impl FromStr for PciAddress {
    type Err = ParseError;

    /// Parses both common forms: sysfs' `0000:07:00.0` and NVML's `00000000:07:00.0`, in either case.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            Self::new(
                parse_hex(domain, 4..=8)?,
                parse_hex(bus, 2..=2)?,
                parse_hex(device, 2..=2)?,
                parse_hex(function, 1..=1)?,
            )
        };
        parse().ok_or_else(|| ParseError::new(text, "a PCI address like 0000:07:00.0"))
    }
}

/// Parses a hexadecimal number of a permitted count of digits, without sign or prefix.
pub(crate) fn parse_hex<T: TryFrom<u64>>(text: &str, digits: RangeInclusive<usize>) -> Option<T> {
    let is_plain = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_plain)?;
    T::try_from(number).ok()
}

impl fmt::Display for PciAddress {
    /// Formats the address as sysfs and `lspci -D` do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "5fd4087b-86f3-7a43-b711-4771313afc50";

    #[test]
    fn gpu_and_mig_uuids_are_distinguished() {
        assert!(format!("GPU-{UUID}").parse::<GpuUuid>().is_ok());
        assert!(format!("MIG-{UUID}").parse::<MigUuid>().is_ok());
        assert!(format!("MIG-GPU-{UUID}/7/0").parse::<MigUuid>().is_ok());
        for wrong in [UUID, "GPU-1", "MIG-", &format!("MIG-{UUID}/7/0")] {
            assert!(wrong.parse::<GpuUuid>().is_err(), "{wrong}");
            assert!(wrong.parse::<MigUuid>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn pci_address_parses_both_spellings_and_prints_sysfs_form() {
        for text in ["00000000:3B:00.0", "0000:3b:00.0"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), "0000:3b:00.0");
        }
        let wide: PciAddress = "00010000:01:1f.7".parse().unwrap();
        assert_eq!(wide.to_string(), "10000:01:1f.7");
    }

    #[test]
    fn invalid_pci_address_is_quoted_in_error() {
        for text in ["", "3b:00.0", "0000:3b:20.0", "0000:3b:00.8", "+000:3b:00.0", "0000:3b:00.0 "]
        {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{text:?} is not a PCI address like 0000:07:00.0")
            );
        }
    }

    #[test]
    fn node_name_follows_kubernetes_rules() {
        for text in ["a", "node-1", "ip-10-0-0-1.eu-west-1.compute.internal"] {
            assert!(text.parse::<NodeName>().is_ok(), "{text}");
        }
        let long = "a".repeat(254);
        for text in ["", ".", "a..b", "-a", "A", "a_b", "a/b", "a\nb", "ü", &long] {
            assert!(text.parse::<NodeName>().is_err(), "{text}");
        }
    }

    #[test]
    fn type_name_is_valid_in_label() {
        assert!("nvidia-h200-141gb".parse::<TypeName>().is_ok());
        for text in ["", "-a", "a-", "NVIDIA", "a_b", &"a".repeat(64)] {
            assert!(text.parse::<TypeName>().is_err(), "{text}");
        }
    }
}
