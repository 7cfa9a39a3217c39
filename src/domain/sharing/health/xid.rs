//! Xid errors reported by NVIDIA's driver, and the action each requires.
//!
//! The catalog's action decides: an error that ends one program is not a fault of the device; an error that requires
//! a reset is one until the reset. Sources: NVIDIA, "Xid Errors", "Analyzing Xid Errors with the Xid Catalog", column
//! "Immediate Action" (Ampere and newer); NVIDIA k8s-device-plugin 0.20, `internal/rm/health.go`, for errors that it
//! ignores.

use std::collections::BTreeSet;
use std::str::FromStr;

use thiserror::Error;

use crate::domain::id::PciAddress;

/// Keyword for every error.
const ALL: &str = "all";

/// An error reported by a device. Source: NVIDIA, "Xid Errors".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid {
    /// The device.
    pub pci: PciAddress,
    /// The GPU instance to which it is confined, if reported.
    pub gpu_instance: Option<u32>,
    /// The compute instance to which it is confined, if reported.
    pub compute_instance: Option<u32>,
    /// Its number.
    pub number: u64,
}

/// Severity of an error for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// No fault of the device: a program failed, and ends.
    Application,
    /// No fault that prevents allocation: informational, or covered more precisely by another signal.
    Notice,
    /// A program must be restarted. The device is observed for a while before it is healthy again.
    Passing,
    /// Unknown number. The device is observed as well.
    Unknown,
    /// The device must be reset.
    Reset,
    /// The machine must be restarted, or the board inspected.
    Machine,
}

/// Classification of errors by number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    ignored: Ignored,
}

/// Errors that the administrator ignores: comma-separated numbers, or `all`.
///
/// Source of the syntax: NVIDIA k8s-device-plugin 0.20, `DP_DISABLE_HEALTHCHECKS`, which skips invalid entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ignored {
    /// Every error.
    All,
    /// Errors with these numbers.
    These(BTreeSet<u64>),
}

/// Error when parsing a list of ignored errors.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IgnoredError {
    /// The entry is not a number.
    #[error("entry {place} of the list, {text:?}, is no number of an Xid")]
    NotANumber {
        /// Position in the list, from 1.
        place: usize,
        /// The entry.
        text: String,
    },
    /// `all` is combined with other entries.
    #[error("entry {place} of the list is `{ALL}`, which stands alone")]
    AllAmongOthers {
        /// Position in the list, from 1.
        place: usize,
    },
}

impl Class {
    /// Returns whether a device that reports it is healthy.
    pub const fn is_harmless(self) -> bool {
        matches!(self, Self::Application | Self::Notice)
    }
}

impl Table {
    /// Returns a table that treats these errors as harmless.
    #[must_use]
    pub fn without(self, ignored: Ignored) -> Self {
        Self { ignored }
    }

    /// The class of a number, and a short description; empty for an unknown number.
    pub fn look_up(&self, number: u64) -> (Class, &'static str) {
        if self.ignored.has(number) {
            return (Class::Application, "not looked at");
        }
        let row = ROWS.iter().find(|(numbers, ..)| numbers.contains(&number));
        row.map_or((Class::Unknown, ""), |(_, class, what)| (*class, *what))
    }
}

impl Default for Ignored {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Ignored {
    fn has(&self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::These(numbers) => numbers.contains(&number),
        }
    }
}

impl FromStr for Ignored {
    type Err = IgnoredError;

    fn from_str(text: &str) -> Result<Self, IgnoredError> {
        if text.trim() == ALL {
            return Ok(Self::All);
        }
        let entries = text.split(',').map(str::trim).zip(1..);
        let numbers: Result<BTreeSet<u64>, IgnoredError> = entries
            .map(|(entry, place)| match entry.parse() {
                Ok(number) if entry.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
                _ if entry == ALL => Err(IgnoredError::AllAmongOthers { place }),
                Ok(_) | Err(_) => Err(IgnoredError::NotANumber {
                    place,
                    text: entry.to_owned(),
                }),
            })
            .collect();
        numbers.map(Self::These)
    }
}

/// Numbers, class and description. Numbers whose uses are all unknown to the catalog are not listed.
const ROWS: &[(&[u64], Class, &str)] = &[
    // Ignored by NVIDIA's device plugin. Since driver R570 the catalog requires a reset after 109; the driver's
    // recovery action, which is read, then requires it too.
    (&[13], Class::Application, "a fault of a program's kernel"),
    (&[31], Class::Application, "a program's page fault"),
    (&[43], Class::Application, "a program was stopped"),
    (&[45], Class::Application, "a program's work was removed"),
    (&[68], Class::Application, "a fault of a video decoder"),
    (&[109], Class::Application, "a context switch took too long"),
    // IGNORE.
    (&[14], Class::Notice, "an error that somebody made up"),
    (&[37, 38, 44, 66, 67], Class::Notice, "noted by the driver"),
    (&[92, 93, 121, 141], Class::Notice, "noted by the driver"),
    (&[106, 107], Class::Notice, "a test message"),
    (&[108, 137], Class::Notice, "a program's fault over NVLink"),
    // The device itself reports the consequences of these two: pending rows, and the recovery action.
    (&[63], Class::Notice, "a row of memory is remapped"),
    (&[154], Class::Notice, "the recovery action changed"),
    (&[157, 160, 161], Class::Notice, "a resource is retired"),
    (&[162, 163, 164, 165], Class::Notice, "power smoothing"),
    // RESTART_APP.
    (&[8], Class::Passing, "a program's work did not end"),
    (&[11, 25, 32, 69, 80], Class::Passing, "corrupted commands"),
    (&[39, 40, 41], Class::Passing, "a fault of a copy engine"),
    (
        &[70, 71, 72, 75, 76],
        Class::Passing,
        "a fault of a copy engine",
    ),
    (&[77, 85], Class::Passing, "a fault of a copy engine"),
    (
        &[126, 127, 128, 129, 130, 131, 132, 133, 134, 135],
        Class::Passing,
        "a fault of a copy engine",
    ),
    (
        &[60, 82, 83, 84, 86, 88, 89],
        Class::Passing,
        "a fault of a video engine",
    ),
    (
        &[96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 139],
        Class::Passing,
        "a fault of a video engine",
    ),
    // The action for an NVLink fault is in registers that the event does not contain. A device also reports one when
    // the device at the other end was lost, which must not make its neighbors unhealthy. If a reset is needed, the
    // recovery action requests it.
    (
        &[74, 144, 145, 146, 147, 148, 149, 150],
        Class::Passing,
        "a fault of NVLink",
    ),
    (&[94], Class::Passing, "a memory error that one program had"),
    // RESET_GPU. The catalog requires a reset after 48 alone, and a drain and a reset after 48 with 63 or 64; 171 and
    // 172 are details of a 48.
    (&[46], Class::Reset, "it stopped processing"),
    (
        &[48, 171, 172],
        Class::Reset,
        "a memory error that cannot be corrected",
    ),
    (&[62], Class::Reset, "its micro-controller halted"),
    (&[64], Class::Reset, "a row of memory could not be remapped"),
    (&[95], Class::Reset, "a memory error that is not contained"),
    (&[110], Class::Reset, "a security fault"),
    (
        &[119, 120],
        Class::Reset,
        "its system processor does not answer",
    ),
    (&[136, 155], Class::Reset, "a link did not come up"),
    (
        &[140],
        Class::Reset,
        "a memory error that could not be recovered",
    ),
    (&[143], Class::Reset, "it did not start"),
    (&[156], Class::Reset, "a resource is retired"),
    (&[158], Class::Reset, "it took too long"),
    // RESTART_BM, CHECK_MECHANICALS, RESTART_VM.
    (&[79], Class::Machine, "it has fallen off the bus"),
    (&[54], Class::Machine, "its power is not connected"),
    (&[151], Class::Machine, "a fault of its keys"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_in_the_table_twice() {
        let mut seen = BTreeSet::new();
        for number in ROWS.iter().flat_map(|(numbers, ..)| *numbers) {
            assert!(seen.insert(number), "{number}");
        }
    }

    #[test]
    fn what_nvidias_plugin_leaves_out_says_nothing_of_the_device() {
        for number in [13, 31, 43, 45, 68, 109] {
            assert!(Table::default().look_up(number).0.is_harmless(), "{number}");
        }
    }

    #[test]
    fn classes_are_what_the_catalogue_asks_for() {
        let class = |number| Table::default().look_up(number).0;
        assert_eq!(class(63), Class::Notice);
        assert_eq!(class(94), Class::Passing);
        assert_eq!(class(95), Class::Reset);
        assert_eq!(class(79), Class::Machine);
        for number in [0, 999, u64::MAX] {
            assert_eq!(class(number), Class::Unknown);
        }
    }

    #[test]
    fn what_an_administrator_leaves_out_says_nothing_of_the_device() {
        let without = |text: &str| Table::default().without(text.parse().unwrap());
        let table = without("95, 119");
        assert!(table.look_up(95).0.is_harmless());
        assert!(table.look_up(119).0.is_harmless());
        assert_eq!(table.look_up(79).0, Class::Machine);
        for number in [0, 79, 95, 999, u64::MAX] {
            assert!(without("all").look_up(number).0.is_harmless(), "{number}");
        }
    }

    #[test]
    fn i12_a_list_with_something_else_in_it_is_refused_with_the_place() {
        let read = |text: &str| text.parse::<Ignored>().unwrap_err();
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
            let expected = IgnoredError::NotANumber {
                place,
                text: text_of,
            };
            assert_eq!(read(text), expected, "{text:?}");
        }
        assert_eq!(read("79,48,all"), IgnoredError::AllAmongOthers { place: 3 });
    }
}
