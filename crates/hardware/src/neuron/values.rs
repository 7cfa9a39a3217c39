//! Parsers of the Neuron driver's file contents. Pure.
//!
//! Each takes trimmed text and returns `None` for implausible content.

use octavo_toolkit::files::ReadError;

use super::MAX_CORES;
use crate::sysfs::parse_number;

/// The driver numbers its devices below this.
pub(super) const MAX_DEVICES: u32 = 64;
const MAX_WORD_BYTES: usize = 63;
const MAX_PARTS: usize = 32;
/// Number of characters of an invalid text that are quoted.
const EXCERPT_CHARS: usize = 24;

/// The last release with all files at their known paths. Source: the release notes of 2.31, which moved some.
const LAST_KNOWN_RELEASE: (u32, u32) = (2, 30);

/// Parses a file's value. `None` if the file is missing or empty; an error message if its content is invalid.
pub(super) fn parse_value<T>(
    text: Result<String, ReadError>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let text = match text {
        Ok(text) => text,
        Err(ReadError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Ok(None);
    }
    parse_checked(trimmed, parse)
}

/// Like [`parse_value`], for a file in which an empty line is an empty list. A file of zero bytes is `None`.
pub(super) fn parse_list<T>(
    text: Result<String, ReadError>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    match text {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => parse_checked(text.trim(), parse),
        Err(ReadError::Missing(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_checked<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    parse(text).map(Some).ok_or_else(|| {
        let shown: String = text.chars().take(EXCERPT_CHARS).collect();
        format!("invalid value: {shown:?}")
    })
}

/// Returns whether a driver of this version has its files at the known paths.
pub(super) fn is_known_release(version: Option<&str>) -> bool {
    let mut parts = version.into_iter().flat_map(|text| text.split('.'));
    let mut next = || parts.next().and_then(parse_number);
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor) <= LAST_KNOWN_RELEASE,
        _ => false,
    }
}

/// Returns the numbers N of the names `<stem>N` in ascending numeric order.
pub(super) fn numbered(names: &[String], stem: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| {
            let number = parse_number(name.strip_prefix(stem)?)?;
            // Another spelling, such as 007, would map to a directory that does not exist.
            (format!("{stem}{number}") == *name).then_some(number)
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

pub(super) fn count(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Parses the number of cores of a device.
pub(super) fn cores(text: &str) -> Option<u32> {
    let most = u32::try_from(MAX_CORES).ok()?;
    parse_number(text).filter(|cores| (1..=most).contains(cores))
}

/// Parses a name or version.
pub(super) fn word(text: &str) -> Option<String> {
    let sound = text.len() <= MAX_WORD_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic());
    sound.then(|| text.to_owned())
}

/// Power draw of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    /// In percent of its maximum.
    Percent(u8),
    /// The driver has no data yet.
    NoData,
}

impl Power {
    pub(super) fn percent(self) -> Option<u8> {
        match self {
            Self::Percent(percent) => Some(percent),
            Self::NoData => None,
        }
    }
}

/// Parses sixteen hexadecimal digits.
pub(super) fn serial(text: &str) -> Option<String> {
    let sound = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    sound.then(|| text.to_ascii_lowercase())
}

/// Returns whether a serial number is set: several devices may report all zeros, which identifies none.
pub(super) fn is_nonzero_serial(serial: &str) -> bool {
    serial.bytes().any(|byte| byte != b'0')
}

/// Parses device numbers, such as `12, 3, 4, 1`.
pub(super) fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut numbers = split_list(text)
        .map(|part| parse_number(part).filter(|number| *number < MAX_DEVICES))
        .collect::<Option<Vec<u32>>>()?;
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// Parses component names, such as `hbm,link_host`.
pub(super) fn parts(text: &str) -> Option<Vec<String>> {
    let parts = split_list(text)
        .filter(|part| !part.eq_ignore_ascii_case("none"))
        .map(word)
        .collect::<Option<Vec<String>>>()?;
    (parts.len() <= MAX_PARTS).then_some(parts)
}

/// Parses the average of a line such as `POWER_STATUS_VALID,1789180860,3.10,80.25,41.50`: state, time, and minimum,
/// maximum and average in percent of the device's maximum power.
pub(super) fn power(text: &str) -> Option<Power> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    match fields.as_slice() {
        [state, ..] if state.ends_with("NO_DATA") || state.ends_with("INVALID") => {
            Some(Power::NoData)
        }
        [state, _, _, _, average] if state.ends_with("VALID") => {
            percent(average).map(Power::Percent)
        }
        _ => None,
    }
}

/// Rounds `41.50` to 42. Values above 100 are possible momentarily and are capped.
fn percent(text: &str) -> Option<u8> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    count(part)?;
    let up = u64::from(part.bytes().next()? >= b'5');
    u8::try_from(count(whole)?.saturating_add(up).min(100)).ok()
}

fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn numbered_names_are_sorted_numerically() {
        let names = [
            "neuron10",
            "neuron2",
            "neuron0",
            "neuron",
            "neuron07",
            "neuron+1",
            "neuron-1",
            "node_id_2",
            "neuron99999999999",
            "neuron_core1",
        ]
        .map(str::to_owned);
        assert_eq!(numbered(&names, "neuron"), [0, 2, 10]);
        assert_eq!(numbered(&names, "neuron_core"), [1]);
    }

    #[test]
    fn unknown_releases_may_differ() {
        for (version, known) in [
            (Some("2.26.5.0"), true),
            (Some("2.30.9.9"), true),
            (Some("1.99"), true),
            (Some("2.31.7.0"), false),
            (Some("3.0"), false),
            (Some("2.x"), false),
            (Some("dev"), false),
            (None, false),
        ] {
            assert_eq!(is_known_release(version), known, "{version:?}");
        }
    }

    #[test]
    fn empty_line_is_an_empty_list_and_empty_file_is_absent() {
        let read = |text: &str| parse_list(Ok(text.to_owned()), numbers);
        assert_eq!(read("12, 3, 4, 1\n"), Ok(Some(vec![1, 3, 4, 12])));
        assert_eq!(read("\n"), Ok(Some(vec![])));
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("1, 64\n"), Err("invalid value: \"1, 64\"".to_owned()));
        assert_eq!(read("1,,2\n"), Err("invalid value: \"1,,2\"".to_owned()));
        assert_eq!(parts("hbm, link_host"), Some(vec!["hbm".to_owned(), "link_host".to_owned()]));
        assert_eq!(parts("none"), Some(vec![]));
        assert_eq!(parts("hbm\u{1b}[31m"), None);
    }

    #[test]
    fn missing_value_is_never_zero() {
        let refused = || Err(io::Error::from_raw_os_error(13).into());
        let missing = || Err(io::Error::from(io::ErrorKind::NotFound).into());
        assert_eq!(parse_value(missing(), count), Ok(None));
        assert_eq!(parse_list(missing(), numbers), Ok(None));
        assert_eq!(parse_value(Ok("\n".to_owned()), count), Ok(None));
        assert_eq!(parse_value(Ok("0\n".to_owned()), count), Ok(Some(0)));
        let message = "Permission denied (os error 13)".to_owned();
        assert_eq!(parse_value(refused(), count), Err(message.clone()));
        assert_eq!(parse_list(refused(), numbers), Err(message));
        for wrong in ["-1", "+1", "0x10", "1 2", "18446744073709551616", "\u{663}"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
        for wrong in ["0", "9", "-2", "two"] {
            assert_eq!(cores(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn power_is_the_average_or_absent() {
        let valid =
            |average: &str| power(&format!("POWER_STATUS_VALID,1789180860,0.00,99.90,{average}"));
        for (text, percent) in [("0.00", 0), ("41.49", 41), ("41.50", 42), ("7", 7), ("130.2", 100)]
        {
            assert_eq!(valid(text), Some(Power::Percent(percent)), "{text}");
        }
        for text in ["-1.0", "1.x", "", ".5", "1e3", "NaN"] {
            assert_eq!(valid(text), None, "{text}");
        }
        for state in ["NO_DATA", "INVALID"] {
            assert_eq!(
                power(&format!("POWER_STATUS_{state},0,0.00,0.00,0.00")),
                Some(Power::NoData)
            );
        }
        assert_eq!(power("POWER_STATUS_VALID,1,2"), None);
        assert_eq!(power("12"), None);
    }

    #[test]
    fn serial_has_sixteen_digits_and_is_not_zero() {
        let given = serial("9FF5434815c8bd80").unwrap();
        assert_eq!(given, "9ff5434815c8bd80");
        assert!(is_nonzero_serial(&given) && !is_nonzero_serial("0000000000000000"));
        assert_eq!(serial("9ff5434815c8bd8"), None);
        assert_eq!(serial("9ff5434815c8bd8g"), None);
    }
}
