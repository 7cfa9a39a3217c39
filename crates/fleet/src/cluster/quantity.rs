//! Kubernetes quantities: `8`, `1500m`, `64Gi`, `2e3`.

use std::str::FromStr;

use thiserror::Error;

/// Quantity in thousandths, rounded up as in Kubernetes, so that a request is never underestimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Quantity {
    thousandths: u128,
}

/// Text that is not a valid quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not an amount like 8, 1500m or 64Gi")]
pub struct QuantityError(String);

/// Maximum number of digits, more than any real machine needs.
const MAX_DIGITS: usize = 30;
/// Decimal and binary suffixes, in thousandths. Source: Kubernetes, `apimachinery/pkg/api/resource`, `suffix.go`.
const SUFFIXES: [(&str, u128); 13] = [
    ("", THOUSAND),
    ("m", 1),
    ("k", THOUSAND.pow(2)),
    ("M", THOUSAND.pow(3)),
    ("G", THOUSAND.pow(4)),
    ("T", THOUSAND.pow(5)),
    ("P", THOUSAND.pow(6)),
    ("E", THOUSAND.pow(7)),
    ("Ki", THOUSAND << 10),
    ("Mi", THOUSAND << 20),
    ("Gi", THOUSAND << 30),
    ("Ti", THOUSAND << 40),
    ("Pi", THOUSAND << 50),
];
const THOUSAND: u128 = 1000;
/// Largest binary suffix; larger ones would overflow.
const EXBI: (&str, u128) = ("Ei", THOUSAND << 60);
/// Suffixes below one thousandth, by which the number is divided; Kubernetes accepts them and rounds up.
const SUBMILLI_SUFFIXES: [(&str, u128); 2] = [("u", 1_000), ("n", 1_000_000)];

impl Quantity {
    /// Quantity of whole units.
    pub fn whole(count: u64) -> Self {
        Self { thousandths: u128::from(count).saturating_mul(THOUSAND) }
    }

    /// Value in thousandths, saturating at `u64::MAX`.
    pub fn thousandths(self) -> u64 {
        u64::try_from(self.thousandths).unwrap_or(u64::MAX)
    }

    /// Value in whole units, rounded up, saturating at `u64::MAX`.
    pub fn rounded_up(self) -> u64 {
        u64::try_from(self.thousandths.div_ceil(THOUSAND)).unwrap_or(u64::MAX)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    /// A negative quantity counts as 0, as in schedulers.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError(text.chars().take(64).collect());
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end =
            unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (digits, decimals) = decimal(number).ok_or_else(wrong)?;
        let scale = scale(suffix).ok_or_else(wrong)?;
        let thousandths = scale.apply(digits, decimals);
        Ok(Self { thousandths: if is_negative { 0 } else { thousandths } })
    }
}

/// Multiplier and divisor of a suffix.
struct Scale {
    times: u128,
    over: u128,
}

impl Scale {
    fn apply(&self, digits: u128, decimals: u32) -> u128 {
        let over = 10_u128.checked_pow(decimals).and_then(|tens| tens.checked_mul(self.over));
        match (digits.checked_mul(self.times), over) {
            (Some(all), Some(over)) => all.div_ceil(over),
            (Some(_), None) => u128::from(digits > 0),
            (None, _) => u128::MAX,
        }
    }
}

/// Digits of `1.25` as one number, and the number of decimals.
fn decimal(number: &str) -> Option<(u128, u32)> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part}");
    let is_number = !digits.is_empty()
        && digits.len() <= MAX_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    let decimals = u32::try_from(part.len()).ok()?;
    is_number.then(|| Some((digits.parse().ok()?, decimals)))?
}

fn scale(suffix: &str) -> Option<Scale> {
    let named =
        |all: &[(&str, u128)]| all.iter().find(|(name, _)| *name == suffix).map(|(_, of)| *of);
    if let Some(times) = named(&SUFFIXES).or_else(|| named(&[EXBI])) {
        return Some(Scale { times, over: 1 });
    }
    if let Some(over) = named(&SUBMILLI_SUFFIXES) {
        return Some(Scale { times: 1, over });
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let tens = 10_u128.checked_pow(exponent.unsigned_abs().min(24))?;
    Some(if exponent < 0 {
        Scale { times: THOUSAND, over: tens }
    } else {
        Scale { times: THOUSAND.saturating_mul(tens), over: 1 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_as_in_kubernetes() {
        for (text, thousandths) in [
            ("8", 8000),
            ("0", 0),
            ("1500m", 1500),
            ("0.5", 500),
            (".5", 500),
            ("1.", 1000),
            ("+3", 3000),
            ("-3", 0),
            ("2k", 2_000_000),
            ("64Gi", 64 * 1024 * 1024 * 1024 * 1000),
            ("1.5Ki", 1536 * 1000),
            ("2e3", 2_000_000),
            ("2E3", 2_000_000),
            ("12e-1", 1200),
            ("100u", 1),
            ("1n", 1),
            ("0.0001", 1),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().thousandths(), thousandths, "{text}");
        }
    }

    #[test]
    fn fractions_round_up() {
        let rounded = |text: &str| text.parse::<Quantity>().unwrap().rounded_up();
        assert_eq!((rounded("1500m"), rounded("1"), rounded("1m")), (2, 1, 1));
    }

    #[test]
    fn huge_quantities_saturate() {
        for text in ["999999999999999999999999999999", "99999999Ei", "1e30"] {
            assert_eq!(text.parse::<Quantity>().unwrap().rounded_up(), u64::MAX, "{text}");
        }
    }

    #[test]
    fn i12_invalid_quantities_are_rejected_and_quoted_in_part() {
        let long = "9".repeat(31);
        for text in ["", "m", "8x", "1 ", "--1", "1.2.3", "e3", "1e", "Ki", "8 Gi", "٣", &long] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
        let error = "x".repeat(500).parse::<Quantity>().unwrap_err();
        assert!(error.to_string().len() < 150);
    }
}
