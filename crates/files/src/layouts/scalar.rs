//! Interpretation of scalars as numbers, booleans, ranges and amounts of memory.

use octavo_model::quantity::Mebibytes;
use octavo_planner::layout::{DeviceFilter, IndexRange};

use super::error::LayoutProblem;
use super::node::{Scalar, Value, YamlNode};

/// Returns the text of a scalar.
pub(super) fn text(node: &YamlNode) -> Option<&str> {
    scalar(node).map(|scalar| scalar.text.as_str())
}

/// Returns the text of an unquoted scalar.
pub(super) fn plain(node: &YamlNode) -> Option<&str> {
    scalar(node).filter(|scalar| scalar.plain).map(|scalar| scalar.text.as_str())
}

fn scalar(node: &YamlNode) -> Option<&Scalar> {
    match &node.value {
        Value::Scalar(scalar) => Some(scalar),
        Value::List(_) | Value::Map(_) => None,
    }
}

/// Parses an unsigned integer: hexadecimal, or decimal without leading zeros, which YAML 1.1 interprets as octal.
pub(super) fn number(node: &YamlNode) -> Option<u32> {
    digits(plain(node)?)
}

/// Parses an unsigned integer that may have a fraction of zero: mig-parted's parser reads `1.0` as 1.
pub(super) fn integral_number(node: &YamlNode) -> Option<u32> {
    let text = plain(node)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_zero = fraction.bytes().all(|digit| digit == b'0');
    digits(whole).filter(|_| is_zero && (whole == text || !whole.starts_with("0x")))
}

/// Reports whether NVIDIA's programs read the value as a duration: a number of nanoseconds, or a text with units.
/// Source: k8s-device-plugin v0.20.0, `api/config/v1/duration.go`, and Go, `time.ParseDuration`.
pub(super) fn is_go_duration(node: &YamlNode) -> bool {
    let Some(scalar) = scalar(node) else {
        return false;
    };
    if scalar.plain && scalar.text.parse::<f64>().is_ok_and(f64::is_finite) {
        return true;
    }
    let text = scalar.text.strip_prefix(['+', '-']);
    let mut rest = text.unwrap_or(&scalar.text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let has_digit = number.bytes().any(|byte| byte.is_ascii_digit());
        if !has_digit || number.matches('.').count() > 1 || !units.contains(&unit) {
            return false;
        }
        rest = after;
        parts += 1;
    }
    parts > 0
}

/// Returns the name that mig-parted's parser derives from a key that is an integer in YAML 1.1: `0x10` becomes `16`.
pub(super) fn number_as_name(text: &str) -> Option<String> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let plain = rest.replace('_', "");
    if !rest.starts_with(|c: char| c.is_ascii_digit()) || plain.starts_with("0+") {
        return None;
    }
    let (base, digits) = split_base(&plain);
    u64::from_str_radix(digits, base).ok().map(|number| format!("{sign}{number}"))
}

/// Splits off the prefix of a base, which is `0` for octal numbers as well.
fn split_base(text: &str) -> (u32, &str) {
    let mut prefixes = [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)].into_iter();
    prefixes
        .find_map(|(prefix, base)| {
            let digits = text.strip_prefix(prefix).filter(|digits| !digits.is_empty())?;
            Some((base, digits))
        })
        .unwrap_or((10, text))
}

fn digits(text: &str) -> Option<u32> {
    if let Some(hex) = text.strip_prefix("0x") {
        let well_formed = hex.bytes().all(|b| b.is_ascii_hexdigit());
        return well_formed.then(|| u32::from_str_radix(hex, 16).ok()).flatten();
    }
    let well_formed =
        text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    well_formed.then(|| text.parse().ok()).flatten()
}

/// Parses `true` or `false` by the rules of YAML 1.2.
pub(super) fn boolean(node: &YamlNode) -> Option<bool> {
    match plain(node)? {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Parses a boolean by the rules of YAML 1.1, like mig-parted. Source: YAML 1.1, "Boolean Language-Independent Type".
pub(super) fn yaml_1_1_boolean(node: &YamlNode) -> Option<bool> {
    boolean(node).or_else(|| match plain(node)? {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    })
}

/// Parses an index or a range: `3` or `0-3`. A range may be quoted, and its end may be before its start.
pub(super) fn range(node: &YamlNode) -> Option<IndexRange> {
    if let Some(index) = number(node) {
        return Some(IndexRange { first: index, last: index });
    }
    let (first, last) = text(node)?.split_once('-')?;
    Some(IndexRange { first: decimal(first)?, last: decimal(last)? })
}

fn decimal(text: &str) -> Option<u32> {
    digits(text).filter(|_| !text.starts_with("0x"))
}

/// Parses an amount of memory as a Kubernetes quantity with a unit. A fraction of a MiB is rounded up, because the
/// amount is a lower bound for the device.
pub(super) fn memory(node: &YamlNode) -> Result<Mebibytes, LayoutProblem> {
    parse_memory(node).ok_or_else(|| LayoutProblem::Memory { found: node.describe() })
}

fn parse_memory(node: &YamlNode) -> Option<Mebibytes> {
    let text = text(node)?;
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (amount, unit) = text.split_at(end);
    let unit: u128 = match unit {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    let amount: u64 = amount.parse().ok().filter(|amount| *amount > 0)?;
    let mebibytes = (u128::from(amount) * unit).div_ceil(1 << 20);
    u64::try_from(mebibytes).ok().map(Mebibytes::new)
}

/// Parses a device filter of mig-parted: 32-bit numbers, the second of which is optional.
pub(super) fn filter(text: &str) -> Option<DeviceFilter> {
    let (ids, subsystem) = match text.split_once(':') {
        Some((ids, subsystem)) => (ids, Some(high_and_low(subsystem)?)),
        None => (text, None),
    };
    let (device, vendor) = high_and_low(ids)?;
    Some(DeviceFilter { device, vendor, subsystem })
}

fn high_and_low(text: &str) -> Option<(u16, u16)> {
    let number = go_number(text)?;
    let low = u16::try_from(number & 0xFFFF).ok()?;
    u16::try_from(number >> 16).ok().map(|high| (high, low))
}

/// Parses a number with an optional base prefix and underscores between digits. Source: Go, `strconv.ParseUint` with
/// base 0.
fn go_number(text: &str) -> Option<u32> {
    let text = text.to_ascii_lowercase();
    let (base, digits) = split_base(&text);
    // An underscore may follow a digit or the prefix, and must precede a digit.
    let digits = if base == 10 { digits } else { digits.strip_prefix('_').unwrap_or(digits) };
    let groups: Vec<&str> = digits.split('_').collect();
    let well_formed = |group: &&str| !group.is_empty() && group.chars().all(|c| c.is_digit(base));
    if !groups.iter().all(well_formed) {
        return None;
    }
    u32::from_str_radix(&groups.concat(), base).ok()
}
