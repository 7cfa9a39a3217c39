//! A PCI address in NVML's format: `00000000:3B:00.0`.
//!
//! sysfs uses a domain of four digits and lower case; both are parsed, the first is printed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Address of a PCI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// Segment.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, below 32.
    pub device: u8,
    /// Function number, below 8; a GPU is function 0.
    pub function: u8,
}

/// The text is not a PCI address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a PCI address like 0000:3b:00.0")]
pub struct PciAddressError(String);

impl PciAddress {
    /// The name of the directory under `/sys/bus/pci/devices`.
    pub fn sysfs(self) -> String {
        format!("{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }

    /// The format of the first NVML versions, with a domain of four digits (`nvmlPciInfo_t.busIdLegacy`).
    pub fn legacy(self) -> String {
        self.sysfs().to_uppercase()
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08X}:{:02X}:{:02X}.{:X}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// The function may be missing (`0000:3b:00`), and so may the domain, as NVML accepts them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| PciAddressError(text.to_owned()))
    }
}

impl TryFrom<String> for PciAddress {
    type Error = PciAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = rest.rsplit(':');
    let device = hex(parts.next()?, 2)?;
    let bus = hex(parts.next()?, 2)?;
    let domain = parts.next().map_or(Some(0), |part| hex(part, 8))?;
    let function = hex(function, 1)?;
    (parts.next().is_none() && device < 32 && function < 8).then_some(PciAddress {
        domain,
        bus: u8::try_from(bus).ok()?,
        device: u8::try_from(device).ok()?,
        function: u8::try_from(function).ok()?,
    })
}

fn hex(part: &str, longest: usize) -> Option<u32> {
    let plain = !part.is_empty()
        && part.len() <= longest
        && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(part, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, nvml: &str, sysfs: &str) {
        let address: PciAddress = text.parse().unwrap();
        assert_eq!((address.to_string().as_str(), address.sysfs().as_str()), (nvml, sysfs));
    }

    #[test]
    fn every_usual_spelling_is_the_same_address() {
        for text in ["00000000:3B:00.0", "0000:3b:00.0", "3b:00.0", "3b:0", "0000:3B:00"] {
            reads(text, "00000000:3B:00.0", "0000:3b:00.0");
        }
    }

    #[test]
    fn invalid_address_is_rejected() {
        for text in ["", "3b", "x:00.0", "0000:3b:20.0", "0000:3b:00.8", "1:2:3:4.0"] {
            assert_eq!(text.parse::<PciAddress>(), Err(PciAddressError(text.to_owned())));
        }
    }
}
