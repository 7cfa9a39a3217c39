//! Durations in their usual notation: `10s`, `500ms`, `5m`, `1h30m`.
//!
//! jiff parses them; this module also rejects values that a setting cannot have: negative, or zero where a wait is
//! meant.

use std::time::Duration;

use jiff::SignedDuration;
use thiserror::Error;

/// Reason why a text is not a valid duration for a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Not a duration; most often the unit is missing.
    #[error("not a duration such as 500ms, 10s, 5m or 1h30m")]
    Malformed,
    /// Negative.
    #[error("the duration must not be negative")]
    Negative,
    /// Zero.
    #[error("the duration must not be zero")]
    Zero,
}

/// Lifetime of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It does not expire.
    Never,
    /// It expires after this time unless renewed.
    After(Duration),
}

/// A duration, or `None` for never. An alias, because clap takes `Option` for a flag that may be absent.
pub type MaybeDuration = Option<Duration>;

/// Parses a duration longer than zero, or `none`.
pub fn maybe(text: &str) -> Result<MaybeDuration, DurationError> {
    if text == "none" {
        return Ok(None);
    }
    positive(text).map(Some)
}

/// Parses a duration longer than zero.
pub fn positive(text: &str) -> Result<Duration, DurationError> {
    let duration = read(text)?;
    if duration.is_zero() {
        return Err(DurationError::Zero);
    }
    Ok(duration)
}

/// Parses a duration, or `0` for no expiry.
pub fn expiry(text: &str) -> Result<Expiry, DurationError> {
    if text == "0" {
        return Ok(Expiry::Never);
    }
    let duration = read(text)?;
    Ok(if duration.is_zero() { Expiry::Never } else { Expiry::After(duration) })
}

fn read(text: &str) -> Result<Duration, DurationError> {
    let signed: SignedDuration = text.parse().map_err(|_| DurationError::Malformed)?;
    Duration::try_from(signed).map_err(|_| DurationError::Negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_their_unit() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
        ] {
            assert_eq!(positive(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in ["", "10", "10x", "s", "99999999999999999999h", "1 parsec"] {
            assert_eq!(positive(text), Err(DurationError::Malformed), "{text}");
        }
        assert_eq!(positive("-5s"), Err(DurationError::Negative));
        assert_eq!(positive("0s"), Err(DurationError::Zero));
    }

    #[test]
    fn zero_expiry_means_never() {
        assert_eq!(expiry("0"), Ok(Expiry::Never));
        assert_eq!(expiry("0s"), Ok(Expiry::Never));
        assert_eq!(expiry("1h"), Ok(Expiry::After(Duration::from_hours(1))));
        assert_eq!(expiry("1"), Err(DurationError::Malformed));
    }
}
