//! The errors that NVIDIA's driver reports of a device, and what each asks for.
//!
//! What the catalogue says is to be done decides: an error that ends one program is no fault of the device, one that asks for a
//! reset is, until the reset. Sources: NVIDIA, "Xid Errors", "Analyzing Xid Errors with the Xid Catalog", column "Immediate
//! Action" (Ampere and newer); NVIDIA k8s-device-plugin 0.20, `internal/rm/health.go`, for those that it leaves out.

use std::collections::BTreeSet;
use std::str::FromStr;

use thiserror::Error;

use crate::domain::id::PciAddress;

/// What stands for every error.
const ALL: &str = "all";

/// An error that a device reported by itself. Source: NVIDIA, "Xid Errors".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid {
    /// The device.
    pub pci: PciAddress,
    /// The GPU instance that it is confined to, where the driver says so.
    pub gpu_instance: Option<u32>,
    /// The compute instance, where the driver says so.
    pub compute_instance: Option<u32>,
    /// Its number.
    pub number: u64,
}

/// What an error says of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Nothing: a program did something wrong, and ends.
    Application,
    /// Nothing that would keep work away: the driver noted something, or another fact tells it better.
    Notice,
    /// A program has to be started again. The device is watched for a while before it is given out again.
    Passing,
    /// Nobody knows. The device is watched as well.
    Unknown,
    /// It has to be reset.
    Reset,
    /// The machine has to be restarted, or the board looked at.
    Machine,
}

/// Which class an error is of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    ignored: Ignored,
}

/// Errors that say nothing of the device to whoever runs it: numbers with commas between, or `all`.
///
/// Source of the form: NVIDIA k8s-device-plugin 0.20, `DP_DISABLE_HEALTHCHECKS`. That passes over what it cannot read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ignored {
    /// Every one.
    All,
    /// Those of these numbers.
    These(BTreeSet<u64>),
}

/// Why a list of errors cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IgnoredError {
    /// It is no number.
    #[error("entry {place} of the list, {text:?}, is no number of an Xid")]
    NotANumber {
        /// Which of the list, from 1.
        place: usize,
        /// What is written there.
        text: String,
    },
    /// It has more than can be ignored.
    #[error("entry {place} of the list is `{ALL}`, which stands alone")]
    AllAmongOthers {
        /// Which of the list, from 1.
        place: usize,
    },
}

impl Class {
    /// Whether a device that reports it is fit all the same.
    pub const fn is_harmless(self) -> bool {
        matches!(self, Self::Application | Self::Notice)
    }
}

impl Table {
    /// The same, where these say nothing of the device.
    #[must_use]
    pub fn without(self, ignored: Ignored) -> Self {
        Self { ignored }
    }

    /// The class of a number, and what it is in a few words; none where nobody knows.
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

/// Numbers, class, and what it is. Where the catalogue knows none of a number's uses, it is not here.
const ROWS: &[(&[u64], Class, &str)] = &[
    // Left out by NVIDIA's device plugin. The catalogue asks for a reset after 109 since driver R570; that is then also the
    // driver's recovery action, which is looked at.
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
    // What follows from these two is told by the device itself: rows that wait for a reset, and the recovery action.
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
    // What a fault of NVLink asks for is in registers that the event does not tell, and a device has one when the device at the
    // other end was lost: that shall not take its neighbours along. Where a reset is needed, the recovery action says so.
    (
        &[74, 144, 145, 146, 147, 148, 149, 150],
        Class::Passing,
        "a fault of NVLink",
    ),
    (&[94], Class::Passing, "a memory error that one program had"),
    // RESET_GPU. After 48 the catalogue asks for a reset when it comes alone, and for a drain and a reset beside 63 or 64; 171
    // and 172 tell more of a 48.
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
