//! Xid errors reported by NVIDIA's driver, and the action each requires.
//!
//! The catalog's action decides: an error that ends one program is not a fault of the device; an error that requires
//! a reset is one until the reset. Sources: NVIDIA, "Xid Errors", "Analyzing Xid Errors with the Xid Catalog", column
//! "Immediate Action" (Ampere and newer); NVIDIA k8s-device-plugin 0.20, `internal/rm/health.go`, for errors that it
//! ignores.

use std::collections::BTreeSet;
use std::str::FromStr;

use thiserror::Error;

/// Keyword for every error.
const ALL: &str = "all";

/// Severity of an error for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum XidClass {
    /// No fault of the device: a program failed, and ends.
    Application,
    /// No fault that prevents allocation: informational, or covered more precisely by another signal.
    Notice,
    /// A program must be restarted. The device is observed for a while before it is healthy again.
    RestartApplication,
    /// Unknown number. The device is observed as well.
    Unknown,
    /// The device must be reset.
    Reset,
    /// The machine must be restarted, or the board inspected.
    Machine,
}

/// Classification of errors by number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct XidTable {
    ignored: IgnoredXids,
}

/// Errors that the administrator ignores: comma-separated numbers, or `all`.
///
/// Source of the syntax: NVIDIA k8s-device-plugin 0.20, `DP_DISABLE_HEALTHCHECKS`, which skips invalid entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IgnoredXids {
    /// Every error.
    All,
    /// Errors with these numbers.
    Numbers(BTreeSet<u64>),
}

/// Error when parsing a list of ignored errors.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IgnoredXidsError {
    /// The entry is not a number.
    #[error("entry {place} of the list, {text:?}, is not an Xid number")]
    NotANumber {
        /// Position in the list, from 1.
        place: usize,
        /// The entry.
        text: String,
    },
    /// `all` is combined with other entries.
    #[error("entry {place} of the list is `{ALL}`, which must be the only entry")]
    AllAmongOthers {
        /// Position in the list, from 1.
        place: usize,
    },
}

impl XidClass {
    /// Returns whether a device that reports it is healthy.
    pub const fn is_harmless(self) -> bool {
        matches!(self, Self::Application | Self::Notice)
    }
}

impl XidTable {
    /// Returns a table that treats these errors as harmless.
    #[must_use]
    pub fn ignoring(self, ignored: IgnoredXids) -> Self {
        Self { ignored }
    }

    /// The class of a number, and a short description; empty for an unknown number.
    pub fn classify(&self, number: u64) -> (XidClass, &'static str) {
        if self.ignored.has(number) {
            return (XidClass::Application, "ignored");
        }
        let row = XID_CLASSES.iter().find(|(numbers, ..)| numbers.contains(&number));
        row.map_or((XidClass::Unknown, ""), |(_, class, what)| (*class, *what))
    }
}

impl Default for IgnoredXids {
    fn default() -> Self {
        Self::Numbers(BTreeSet::new())
    }
}

impl IgnoredXids {
    fn has(&self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Numbers(numbers) => numbers.contains(&number),
        }
    }
}

impl FromStr for IgnoredXids {
    type Err = IgnoredXidsError;

    fn from_str(text: &str) -> Result<Self, IgnoredXidsError> {
        if text.trim() == ALL {
            return Ok(Self::All);
        }
        let entries = text.split(',').map(str::trim).zip(1..);
        let numbers: Result<BTreeSet<u64>, IgnoredXidsError> = entries
            .map(|(entry, place)| match entry.parse() {
                Ok(number) if entry.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
                _ if entry == ALL => Err(IgnoredXidsError::AllAmongOthers { place }),
                Ok(_) | Err(_) => {
                    Err(IgnoredXidsError::NotANumber { place, text: entry.to_owned() })
                }
            })
            .collect();
        numbers.map(Self::Numbers)
    }
}

/// Numbers, class and description. Numbers whose uses are all unknown to the catalog are not listed.
const XID_CLASSES: &[(&[u64], XidClass, &str)] = &[
    // Ignored by NVIDIA's device plugin. Since driver R570 the catalog requires a reset after 109; the driver's
    // recovery action, which is read, then requires it too.
    (&[13], XidClass::Application, "a fault of an application's kernel"),
    (&[31], XidClass::Application, "a page fault of an application"),
    (&[43], XidClass::Application, "an application was terminated"),
    (&[45], XidClass::Application, "channels of an application were removed"),
    (&[68], XidClass::Application, "a video decoder fault"),
    (&[109], XidClass::Application, "a context switch timed out"),
    // IGNORE.
    (&[14], XidClass::Notice, "an injected error"),
    (&[37, 38, 44, 66, 67], XidClass::Notice, "a driver notice"),
    (&[92, 93, 121, 141], XidClass::Notice, "a driver notice"),
    (&[106, 107], XidClass::Notice, "a test message"),
    (&[108, 137], XidClass::Notice, "a fault of an application over NVLink"),
    // The device itself reports the consequences of these two: pending rows, and the recovery action.
    (&[63], XidClass::Notice, "a memory row was remapped"),
    (&[154], XidClass::Notice, "the recovery action changed"),
    (&[157, 160, 161], XidClass::Notice, "a resource is retired"),
    (&[162, 163, 164, 165], XidClass::Notice, "power smoothing"),
    // RESTART_APP.
    (&[8], XidClass::RestartApplication, "the work of an application did not finish"),
    (&[11, 25, 32, 69, 80], XidClass::RestartApplication, "corrupted commands"),
    (&[39, 40, 41], XidClass::RestartApplication, "a copy engine fault"),
    (&[70, 71, 72, 75, 76], XidClass::RestartApplication, "a copy engine fault"),
    (&[77, 85], XidClass::RestartApplication, "a copy engine fault"),
    (
        &[126, 127, 128, 129, 130, 131, 132, 133, 134, 135],
        XidClass::RestartApplication,
        "a copy engine fault",
    ),
    (&[60, 82, 83, 84, 86, 88, 89], XidClass::RestartApplication, "a video engine fault"),
    (
        &[96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 139],
        XidClass::RestartApplication,
        "a video engine fault",
    ),
    // The action for an NVLink fault is in registers that the event does not contain. A device also reports one when
    // the device at the other end was lost, which must not make its neighbors unhealthy. If a reset is needed, the
    // recovery action requests it.
    (&[74, 144, 145, 146, 147, 148, 149, 150], XidClass::RestartApplication, "an NVLink fault"),
    (&[94], XidClass::RestartApplication, "a memory error contained in one application"),
    // RESET_GPU. The catalog requires a reset after 48 alone, and a drain and a reset after 48 with 63 or 64; 171 and
    // 172 are details of a 48.
    (&[46], XidClass::Reset, "the GPU stopped processing"),
    (&[48, 171, 172], XidClass::Reset, "an uncorrectable memory error"),
    (&[62], XidClass::Reset, "its microcontroller halted"),
    (&[64], XidClass::Reset, "a memory row could not be remapped"),
    (&[95], XidClass::Reset, "an uncontained memory error"),
    (&[110], XidClass::Reset, "a security fault"),
    (&[119, 120], XidClass::Reset, "its system processor does not respond"),
    (&[136, 155], XidClass::Reset, "a link did not come up"),
    (&[140], XidClass::Reset, "an unrecoverable memory error"),
    (&[143], XidClass::Reset, "the GPU did not start"),
    (&[156], XidClass::Reset, "a resource is retired"),
    (&[158], XidClass::Reset, "a timeout"),
    // RESTART_BM, CHECK_MECHANICALS, RESTART_VM.
    (&[79], XidClass::Machine, "the GPU has fallen off the bus"),
    (&[54], XidClass::Machine, "its power is not connected"),
    (&[151], XidClass::Machine, "a key fault"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_the_table_once() {
        let mut seen = BTreeSet::new();
        for number in XID_CLASSES.iter().flat_map(|(numbers, ..)| *numbers) {
            assert!(seen.insert(number), "{number}");
        }
    }

    #[test]
    fn xids_ignored_by_nvidia_plugin_are_harmless() {
        for number in [13, 31, 43, 45, 68, 109] {
            assert!(XidTable::default().classify(number).0.is_harmless(), "{number}");
        }
    }

    #[test]
    fn xid_classes_match_catalog() {
        let class = |number| XidTable::default().classify(number).0;
        assert_eq!(class(63), XidClass::Notice);
        assert_eq!(class(94), XidClass::RestartApplication);
        assert_eq!(class(95), XidClass::Reset);
        assert_eq!(class(79), XidClass::Machine);
        for number in [0, 999, u64::MAX] {
            assert_eq!(class(number), XidClass::Unknown);
        }
    }

    #[test]
    fn ignored_xids_are_harmless() {
        let without = |text: &str| XidTable::default().ignoring(text.parse().unwrap());
        let table = without("95, 119");
        assert!(table.classify(95).0.is_harmless());
        assert!(table.classify(119).0.is_harmless());
        assert_eq!(table.classify(79).0, XidClass::Machine);
        for number in [0, 79, 95, 999, u64::MAX] {
            assert!(without("all").classify(number).0.is_harmless(), "{number}");
        }
    }

    #[test]
    fn i12_invalid_xid_list_is_rejected_with_position() {
        let read = |text: &str| text.parse::<IgnoredXids>().unwrap_err();
        for (text, place, entry) in [
            ("79,x", 2, "x"),
            ("", 1, ""),
            ("79,,48", 2, ""),
            ("79,", 2, ""),
            ("-1", 1, "-1"),
            ("+79", 1, "+79"),
            ("18446744073709551616", 1, "18446744073709551616"),
            ("xids", 1, "xids"),
        ] {
            let text_of = entry.to_owned();
            let expected = IgnoredXidsError::NotANumber { place, text: text_of };
            assert_eq!(read(text), expected, "{text:?}");
        }
        assert_eq!(read("79,48,all"), IgnoredXidsError::AllAmongOthers { place: 3 });
    }
}
