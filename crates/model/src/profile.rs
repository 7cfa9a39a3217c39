//! Names of MIG profiles, such as `3g.40gb`, `1c.3g.40gb` or `1g.10gb+me`.
//!
//! Names come from users (layout files) and are compared with the profiles of a device. A name does not imply that a
//! device has the profile: that is determined by the catalog of each device, because the same name can mean different
//! hardware ids on two models, and the memory figure varies by a gigabyte between drivers.
//!
//! Grammar: `[<C>c.]<G>g.<M>gb[<+|-><attribute>[,<attribute>]]`, with `C <= G`. Source: NVIDIA MIG User Guide, "GPU
//! Instance Profiles"; attribute names as printed by `nvidia-smi mig -lgip`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;

use crate::quantity::Mebibytes;
use crate::text::join;

/// A parsed profile name. Equal names are the same profile *as users write it*: `3c.3g.40gb` equals `3g.40gb`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct ProfileName {
    gpu_slices: u8,
    memory_gb: u16,
    attributes: Attributes,
    /// Always within `1..=gpu_slices`; equal to it if the compute instance takes the whole GPU instance.
    compute_slices: u8,
}

/// Attributes that a profile adds or lacks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Attributes {
    #[default]
    None,
    With(BTreeSet<String>),
    Without(BTreeSet<String>),
}

/// Inputs of a computed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceShape {
    /// NVML's profile index (`NVML_GPU_INSTANCE_PROFILE_*`), not the driver's profile id.
    pub profile_index: u32,
    /// Slices of the compute instance; `None` for a GPU instance as a whole.
    pub compute_slices: Option<u8>,
    /// Memory of the instance.
    pub memory: Mebibytes,
}

/// Error when parsing a profile name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProfileNameError {
    /// The text does not follow the grammar.
    #[error("{0:?} is not a profile name like 1g.10gb, 1c.3g.40gb or 1g.10gb+me")]
    Malformed(String),
    /// A compute instance cannot have more slices than its GPU instance.
    #[error("{name:?} requests {compute} compute slices of a GPU instance that has {gpu}")]
    ComputeExceedsGpu {
        /// The text as it was given.
        name: String,
        /// Requested compute slices.
        compute: u8,
        /// Slices of the GPU instance.
        gpu: u8,
    },
}

impl ProfileName {
    /// GPU slices: the `3` of `3g.40gb`.
    pub fn gpu_slices(&self) -> u8 {
        self.gpu_slices
    }

    /// Memory in gigabytes as in the name. It is rounded; do not calculate with it.
    pub fn memory_gb(&self) -> u16 {
        self.memory_gb
    }

    /// The name given to an instance by NVIDIA's Kubernetes tools, as in labels and resource names.
    ///
    /// It is computed rather than read: eighths of the device's memory, rounded up, times its whole gibibytes. The
    /// same partition is therefore `3g.40gb` under one driver and `3g.39gb` under another. `None` for a profile index
    /// newer than this list, or a device without memory. Source: go-nvlib `pkg/nvlib/device/mig_profile.go`; indices:
    /// `nvml.h`, `NVML_GPU_INSTANCE_PROFILE_*`.
    pub fn computed(instance: &InstanceShape, device_memory: Mebibytes) -> Option<Self> {
        let (gpu_slices, attributes) = shape_of_index(instance.profile_index)?;
        let compute_slices = instance.compute_slices.unwrap_or(gpu_slices);
        let total = device_memory.get();
        let eighths = instance
            .memory
            .get()
            .checked_mul(8)?
            .checked_add(total)?
            .checked_sub(1)?
            .checked_div(total)?;
        let gibibytes = total.div_ceil(1024);
        let memory_gb = eighths.checked_mul(gibibytes)?.checked_add(4)?.checked_div(8)?;
        (1..=gpu_slices).contains(&compute_slices).then_some(Self {
            gpu_slices,
            memory_gb: u16::try_from(memory_gb).ok()?,
            attributes,
            compute_slices,
        })
    }

    /// Compute slices: the `1` of `1c.3g.40gb`, or all slices if the name has no `c` part.
    pub fn compute_slices(&self) -> u8 {
        self.compute_slices
    }

    /// The name of the whole GPU instance: `3g.40gb` for `1c.3g.40gb`.
    #[must_use]
    pub fn gpu_instance(&self) -> Self {
        Self { compute_slices: self.gpu_slices, ..self.clone() }
    }

    /// The name of a compute instance of it with this many slices: `1c.3g.40gb`; `None` for zero or more slices than
    /// it has.
    pub fn with_compute_slices(&self, slices: u32) -> Option<Self> {
        let compute_slices = u8::try_from(slices).ok()?;
        (1..=self.gpu_slices)
            .contains(&compute_slices)
            .then(|| Self { compute_slices, ..self.clone() })
    }

    /// Returns whether both have the same attributes.
    pub fn same_attributes(&self, other: &Self) -> bool {
        self.attributes == other.attributes
    }

    /// Returns whether it has no attributes.
    pub fn is_plain(&self) -> bool {
        self.attributes == Attributes::None
    }

    /// Returns whether it has the media engines of which a board has only one set: `+me` and `+me.all`.
    pub fn has_media_extensions(&self) -> bool {
        match &self.attributes {
            Attributes::None | Attributes::Without(_) => false,
            Attributes::With(names) => names.contains("me") || names.contains("me.all"),
        }
    }
}

impl FromStr for ProfileName {
    type Err = ProfileNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = parse(text).ok_or_else(|| ProfileNameError::Malformed(text.to_owned()))?;
        if name.compute_slices > name.gpu_slices {
            return Err(ProfileNameError::ComputeExceedsGpu {
                name: text.to_owned(),
                compute: name.compute_slices,
                gpu: name.gpu_slices,
            });
        }
        Ok(name)
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.compute_slices != self.gpu_slices {
            write!(f, "{}c.", self.compute_slices)?;
        }
        write!(f, "{}g.{}gb", self.gpu_slices, self.memory_gb)?;
        let (sign, names) = match &self.attributes {
            Attributes::None => return Ok(()),
            Attributes::With(names) => ('+', names),
            Attributes::Without(names) => ('-', names),
        };
        write!(f, "{sign}{}", join(names.iter(), ","))
    }
}

/// GPU slices and attributes of a profile index.
fn shape_of_index(index: u32) -> Option<(u8, Attributes)> {
    let with = |name: &str| Attributes::With(BTreeSet::from([name.to_owned()]));
    let without = |name: &str| Attributes::Without(BTreeSet::from([name.to_owned()]));
    Some(match index {
        0 | 9 => (1, Attributes::None),
        1 => (2, Attributes::None),
        2 => (3, Attributes::None),
        3 => (4, Attributes::None),
        4 => (7, Attributes::None),
        5 => (8, Attributes::None),
        6 => (6, Attributes::None),
        7 => (1, with("me")),
        8 => (2, with("me")),
        10 => (1, with("gfx")),
        11 => (2, with("gfx")),
        12 => (4, with("gfx")),
        13 => (1, without("me")),
        14 => (2, without("me")),
        15 => (1, with("me.all")),
        16 => (2, with("me.all")),
        17 => (3, with("gfx")),
        _ => return None,
    })
}

fn parse(text: &str) -> Option<ProfileName> {
    let (base, attributes) = split_attributes(text)?;
    let mut parts = base.split('.').rev();
    let memory_gb = number(parts.next()?, "gb")?;
    let gpu_slices = number(parts.next()?, "g")?;
    let compute_slices = parts.next().map_or(Some(gpu_slices), |part| number(part, "c"))?;
    parts.next().is_none().then_some(ProfileName {
        gpu_slices,
        memory_gb,
        attributes,
        compute_slices,
    })
}

fn split_attributes(text: &str) -> Option<(&str, Attributes)> {
    let Some(at) = text.find(['+', '-']) else {
        return Some((text, Attributes::None));
    };
    let (base, rest) = text.split_at(at);
    let (sign, list) = rest.split_at(1);
    let names: BTreeSet<String> = list.split(',').map(str::to_owned).collect();
    let well_formed = names
        .iter()
        .all(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '.'));
    let attributes = if sign == "+" { Attributes::With(names) } else { Attributes::Without(names) };
    well_formed.then_some((base, attributes))
}

/// Parses a positive number without sign or leading zero, followed by `unit`.
fn number<T: FromStr>(part: &str, unit: &str) -> Option<T> {
    let digits = part.strip_suffix(unit)?;
    let plain = !digits.is_empty()
        && !digits.starts_with('0')
        && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, prints: &str, slices: (u8, u8), memory_gb: u16) {
        let name: ProfileName = text.parse().unwrap();
        assert_eq!(
            (
                name.to_string().as_str(),
                (name.compute_slices(), name.gpu_slices()),
                name.memory_gb()
            ),
            (prints, slices, memory_gb)
        );
    }

    #[test]
    fn name_without_compute_part_takes_the_whole_gpu_instance() {
        reads("3g.40gb", "3g.40gb", (3, 3), 40);
        reads("7g.141gb", "7g.141gb", (7, 7), 141);
    }

    #[test]
    fn canonical_form_drops_redundant_compute_part() {
        reads("3c.3g.40gb", "3g.40gb", (3, 3), 40);
        reads("1c.3g.40gb", "1c.3g.40gb", (1, 3), 40);
    }

    #[test]
    fn attributes_are_a_set_with_one_sign() {
        reads("1g.10gb+me", "1g.10gb+me", (1, 1), 10);
        reads("1g.24gb-me", "1g.24gb-me", (1, 1), 24);
        reads("1g.24gb+me.all,gfx", "1g.24gb+gfx,me.all", (1, 1), 24);
    }

    #[test]
    fn computed_name_follows_memory_reported_by_driver() {
        let name = |profile_index, memory, total| {
            let shape = InstanceShape {
                profile_index,
                compute_slices: None,
                memory: Mebibytes::new(memory),
            };
            ProfileName::computed(&shape, Mebibytes::new(total)).map(|name| name.to_string())
        };
        assert_eq!(name(2, 40_192, 81_920).as_deref(), Some("3g.40gb"));
        assert_eq!(name(0, 16_384, 143_771).as_deref(), Some("1g.18gb"));
        assert_eq!(name(9, 33_024, 143_771).as_deref(), Some("1g.35gb"));
        assert_eq!(name(15, 24_192, 97_887).as_deref(), Some("1g.24gb+me.all"));
        assert_eq!(name(13, 24_192, 97_887).as_deref(), Some("1g.24gb-me"));
        assert_eq!(name(18, 24_192, 97_887), None);
        assert_eq!(name(0, 24_192, 0), None);
    }

    #[test]
    fn malformed_profile_names_are_rejected() {
        for text in [
            "",
            "g.gb",
            "0g.5gb",
            "01g.5gb",
            "+1g.5gb",
            "1g.5gb+",
            "1g.5gb+me-gfx",
            "1g.5GB",
            "1g.5gb ",
            "1c.1g",
            "1c.1c.1g.5gb",
            "999g.5gb",
        ] {
            assert_eq!(
                text.parse::<ProfileName>(),
                Err(ProfileNameError::Malformed(text.to_owned()))
            );
        }
    }

    #[test]
    fn more_compute_than_gpu_slices_is_rejected() {
        let error = "4c.3g.20gb".parse::<ProfileName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""4c.3g.20gb" requests 4 compute slices of a GPU instance that has 3"#
        );
    }
}
