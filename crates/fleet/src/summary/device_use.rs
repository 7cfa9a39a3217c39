//! Words for the current use of a device.

use strum::{Display, IntoStaticStr};

/// Current use of a device. Every device has exactly one, so counts by use add up to the number of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum DeviceUse {
    /// Whole, without a process.
    Free,
    /// Whole, with a process.
    InUse,
    /// Divided into partitions, which have a use of their own.
    Partitioned,
    /// It fails, has no driver, or requires a reset, reboot or replacement.
    Unavailable,
    /// Reserved for a virtual machine on purpose. This is not a failure.
    Passthrough,
    /// Not reported, or outdated.
    Unknown,
}

impl DeviceUse {
    /// All uses, in the order of tables and documents.
    pub const ALL: [Self; 6] = [
        Self::Free,
        Self::InUse,
        Self::Partitioned,
        Self::Unavailable,
        Self::Passthrough,
        Self::Unknown,
    ];

    /// Identifier: `in-use`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Words in texts: `in use`.
    pub fn title(self) -> &'static str {
        if self == Self::InUse { "in use" } else { self.into() }
    }

    /// Key in JSON: `inUse`.
    pub fn json_key(self) -> &'static str {
        if self == Self::InUse { "inUse" } else { self.into() }
    }

    /// Value of the metric label `occupancy`: `in_use`.
    pub fn metric_value(self) -> &'static str {
        if self == Self::InUse { "in_use" } else { self.into() }
    }

    /// Returns whether a device of unknown use may have this use: a count of zero is then unknown too.
    pub(super) fn may_be_hidden(self) -> bool {
        matches!(self, Self::Free | Self::InUse | Self::Partitioned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_differ_only_in_the_separator() {
        for of in DeviceUse::ALL {
            let word = of.as_str();
            assert_eq!(of.title(), word.replace('-', " "));
            assert_eq!(of.metric_value(), word.replace('-', "_"));
            assert_eq!(of.json_key().to_lowercase(), word.replace('-', ""));
        }
    }
}
